"""Calibration as a metric of Hugging Face evaluate, loaded from a file of the package.

    python examples/evaluate_metric.py

Naive Bayes on handwritten digits is nearly certain of everything, right or wrong.
"""

import evaluate
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from maccal.integrations import hf_evaluate

x, y = load_digits(return_X_y=True)
train_x, test_x, train_y, test_y = train_test_split(x, y, test_size=0.5, random_state=0)
model = GaussianNB(var_smoothing=1e-2).fit(train_x, train_y)
metric = evaluate.load(hf_evaluate.__file__)
metric.add_batch(predictions=model.predict_proba(test_x), references=test_y)
found = metric.compute(kind="probs", interval=True)
print(f"accuracy {found['accuracy']:.1%}, ECE {found['ece']:.1%}")
print(found["verdict"])
