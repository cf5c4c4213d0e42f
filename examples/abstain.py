"""Answer only when right 95 % of the time, and say "one of these" otherwise.

    python examples/abstain.py

A naive Bayes classifier of handwritten digits says 99 % and is right 90 % of the time. A third of
the digits trains it, a third chooses the thresholds, a third is new. Its confidence is not worth
much, but both promises hold: they need no calibrated model, only rows like those to come.
"""

from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

import maccal as mc

x, labels = load_digits(return_X_y=True)
model = GaussianNB(var_smoothing=1e-2).fit(x[::3], labels[::3])
held_out, y = model.predict_proba(x[1::3]), labels[1::3]
new, truth = model.predict_proba(x[2::3]), labels[2::3]

answering = mc.AbstainingClassifier(risk=0.05, delta=0.1).fit(held_out, y)
print(answering.verdict_)
found = answering.measure(new, truth)
print(f"new digits: {found['coverage']:.1%} answered, {found['risk']:.1%} of the answers wrong")

sets = mc.ConformalSets("aps", coverage=0.95).fit(held_out, y)
print("new digits:", sets.measure(new, truth).sentence())

chosen = sets.predict(new)
unsure = answering.predict(new).abstained & (chosen.sum(1) > 1)
row = int(unsure.argmax())  # the first that is not answered and has several candidates
candidates = chosen[row].nonzero()[0].tolist()
print(f"digit {row} is not answered: it may be one of {candidates}; in truth it is {truth[row]}")
