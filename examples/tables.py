"""A table of numbers, and probabilities that can be trusted: no network, no scaler, no option.

    python examples/tables.py

Logistic regression is too timid about its irises: its penalty keeps the logits small. Predictions
are of rows that were held out, five times a fifth of them.
"""

from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import maccal as mc

x, y = load_iris(return_X_y=True)
models = {
    "logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "MaCCalClassifier": mc.MaCCalClassifier(),
}
for name, model in models.items():
    folds = StratifiedKFold(5, shuffle=True, random_state=1)
    probs = cross_val_predict(model, x, y, cv=folds, method="predict_proba")
    found = mc.summary(probs, y)
    print(f"{name}: accuracy {found['accuracy']:.1%}, ECE {found['ece']:.1%}")
