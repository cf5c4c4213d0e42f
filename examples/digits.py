"""Two classifiers of scikit-learn's handwritten digits, saved as files that `maccal evaluate`
reads.

    python examples/digits.py build/demo
    maccal evaluate build/demo/naive-bayes.npz --compare build/demo/logistic.npz --out build/demo

Naive Bayes multiplies probabilities that are far from independent, so it is nearly certain of
everything, right or wrong. Half of the 1,797 images train the models, the other half is predicted.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
folder.mkdir(parents=True, exist_ok=True)

images, labels = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(
    images, labels, test_size=0.5, random_state=0, stratify=labels
)
models = {
    "naive-bayes": GaussianNB(var_smoothing=1e-2),
    "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
}
for name, model in models.items():
    probs = model.fit(train_x, train_y).predict_proba(test_x)
    np.savez(folder / f"{name}.npz", probs=probs, labels=test_y)
    rows, classes = probs.shape
    accuracy = (probs.argmax(1) == test_y).mean()
    print(f"{folder / name}.npz: {rows} rows, {classes} classes, accuracy {accuracy:.1%}")
