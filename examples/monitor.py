"""A classifier in use, watched: labels come a day late, and one day the camera is dirty.

    python examples/monitor.py FOLDER

Writes the state of the monitor and its page into FOLDER; takes a few seconds. The same from the
command line, with files: docs/monitor.md.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import maccal as mc
from maccal.io import write
from maccal.report.monitor import monitor_page

folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
images, digits = load_digits(return_X_y=True)
order = rng.permutation(len(images))
train, fitting, reference, used = np.split(order, [300, 500, 900])
model = LogisticRegression(C=0.01, max_iter=1000).fit(images[train], digits[train])
scaling = mc.TemperatureScaling()
scaling.fit(model.decision_function(images[fitting]), digits[fitting])


def predicted(seen: np.ndarray) -> np.ndarray:
    """Calibrated probabilities."""
    return scaling.predict_proba(model.decision_function(seen))


probs = predicted(images[reference])
watch = mc.Monitor.create(folder / "state", probs=probs, labels=digits[reference])

yesterday = None
for day, rows in enumerate(np.array_split(used, 14), 1):
    seen = images[rows]
    if day > 8:  # dirt on the lens
        seen = seen + rng.normal(0, 7, seen.shape)
    watch.add(predicted(seen), ids=rows, time=f"2026-03-{day:02d}T18:00")
    if yesterday is not None:
        watch.label(yesterday, digits[yesterday], time=f"2026-03-{day:02d}T20:00")
    yesterday = rows

found = watch.standing()
print(found.rows, "rows,", found.labelled, "with labels")
for sentence in found.words():
    print(sentence)
print("page:", write(folder / "monitor.html", monitor_page(watch, "Digits")))
