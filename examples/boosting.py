"""Gradient boosting on a table: which calibrator does it need?

    python examples/boosting.py FOLDER          FOLDER/boosting.png; about 20 seconds on one core

Boosted trees are sure of nearly everything. The table is scikit-learn's 569 breast tumours with 30
measurements each. All predictions are of rows that the trees have not seen, and every calibrator is
cross-fitted: each row is corrected by a map that was fitted without it.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict

import maccal as mc

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    x, y = load_breast_cancer(return_X_y=True)
    trees = HistGradientBoostingClassifier(random_state=0)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    score = cross_val_predict(trees, x, y, cv=folds, method="decision_function")
    logits = np.stack([np.zeros_like(score), score], 1)  # a binary score as two columns

    names = ["temperature", "beta", "isotonic"]
    print(mc.compare_calibrators(logits, y, names=names).advice)

    calibrated = np.empty_like(logits)
    for fit, apply in folds.split(x, y):
        calibrated[apply] = (
            mc.TemperatureScaling().fit(logits[fit], y[fit]).predict_proba(logits[apply])
        )
    found = {"boosted trees": mc.softmax(logits), "with a temperature": calibrated}
    for name, probs in found.items():
        print(f"{name}: {mc.summary(probs, y, interval=True)['verdict']}")
    mc.reliability(found, y).savefig(folder / "boosting.png", dpi=110)
