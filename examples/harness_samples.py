"""How far to trust a language model's answers: the samples of lm-evaluation-harness, measured.

    lm_eval --model hf --tasks arc_easy --log_samples --output_path out      # your model
    maccal evaluate out/samples_arc_easy_2026.jsonl

    python examples/harness_samples.py                                       # pretended answers

The pretended model is right as often as its log-likelihoods say, of half as many nats. Questions
have three to five answers.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import maccal as mc

rng = np.random.default_rng(0)
lines = []
for number in range(2000):
    scores = rng.normal(0, 2, rng.integers(3, 6))
    truth = rng.choice(len(scores), p=mc.softmax(scores[None])[0])
    answers = [[str(2 * score - 20), "False"] for score in scores]
    lines.append(json.dumps({"doc_id": number, "target": str(truth), "filtered_resps": answers}))

path = Path(tempfile.mkdtemp()) / "samples_pretended.jsonl"
path.write_text("\n".join(lines))
predictions = mc.read(path)
print(f"{predictions.name}: probabilities {predictions.probs.shape}")
print(predictions.summary()["verdict"])
