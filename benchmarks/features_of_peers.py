"""What maccal and eleven peers can do, found by asking them.

    python -m venv peers
    peers/bin/pip install --constraint constraints.txt torch==2.13.0 torch-uncertainty lightning \\
        torchvision probmetrics numba netcal torchmetrics relplot mapie venn-abers laplace-torch \\
        pytorch-ood probly
    peers/bin/pip install --constraint constraints.txt torch-geometric transformers
    peers/bin/pip install --no-deps torchcp       # its torchsort does not build without a GPU
    PYTHONPATH=. peers/bin/python benchmarks/features_of_peers.py         results/peers.json
    PYTHONPATH=. peers/bin/python benchmarks/features_of_peers.py maccal  its answers alone anew

Every peer runs in a process of its own, with the lines that peer_calls.py has for a feature. A cell
of the table is one of

    yes       the lines ran; what they answered is recorded
    failed    the lines are there and raised; the error is recorded
    named     no lines, but the peer's source defines a name with the feature's words: not tried
    no        neither; or the lines ran and their answer is not the one that makes the feature

About five minutes on one core, most of it imports.
"""

import importlib.util
import json
import re
import subprocess
import sys
import warnings
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any

import numpy as np
from peer_calls import CALLS, FEATURES, WANTED

FILE = Path(__file__).parents[1] / "results" / "peers.json"
# the module that a package is imported by
MODULES = {
    "maccal": "maccal",
    "torch-uncertainty": "torch_uncertainty",
    "probmetrics": "probmetrics",
    "netcal": "netcal",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "sklearn",
    "relplot": "relplot",
    "MAPIE": "mapie",
    "TorchCP": "torchcp",
    "laplace-torch": "laplace",
    "pytorch-ood": "pytorch_ood",
    "probly": "probly",
}
LONGEST = 160  # characters of an answer that are kept
DEFINITION = re.compile(r"^\s*(?:def|class) (\w+)", re.MULTILINE)


def given() -> dict[str, Any]:
    """What the lines of peer_calls.py see."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    # the torchvision wheel needs these two where there is no CUDA
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    rng = np.random.default_rng(0)
    true = 2 * rng.normal(size=(2000, 5))
    shares = np.exp(true) / np.exp(true).sum(1, keepdims=True)
    labels = (rng.random(2000)[:, None] > shares.cumsum(1)).sum(1).clip(max=4)
    logits = 1.5 * true
    probs = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    z = torch.tensor(true, dtype=torch.float32)
    y = torch.tensor(labels)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(z), y).backward()
        optimiser.step()
    return {
        "np": np,
        "torch": torch,
        "library": library,
        "logits": logits,
        "probs": probs,
        "labels": labels,
        "L": torch.tensor(logits, dtype=torch.float32),
        "P": torch.tensor(probs, dtype=torch.float32),
        "Y": y,
        "confidence": probs.max(1),
        "correct": (probs.argmax(1) == labels).astype(float),
        "edge": (np.array([[0.95, 0.05, 0], [1, 0, 0], [0.25, 0.25, 0.5]]), np.arange(3)),
        "model": model.eval(),
        "loader": DataLoader(TensorDataset(z, y), batch_size=500),
        "z_train": true[:1000],
        "y_train": labels[:1000],
    }


def asked(feature: str, lines: str, names: dict[str, Any]) -> dict[str, str]:
    """The lines, and what they answered or raised."""
    try:
        exec(lines, names)
    except Exception as error:  # whatever it is belongs into the table
        return {"state": "failed", "call": lines, "answer": shortened(f"{error!r}")}
    answer = names["answer"]
    right = feature not in WANTED or abs(float(answer) - WANTED[feature]) < 1e-5
    return {"state": "yes" if right else "no", "call": lines, "answer": shortened(f"{answer}")}


def shortened(text: str) -> str:
    """One line, without addresses in memory, which differ from run to run."""
    line = re.sub(r" at 0x[0-9a-f]+", "", " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."


def defined(module: str) -> set[str]:
    """Public names of functions and classes in the source of a package, tests left out."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    found: set[str] = set()
    for file in Path(spec.origin).parent.rglob("*.py"):
        if "tests" not in file.parts:
            found |= set(DEFINITION.findall(file.read_text(encoding="utf-8")))
    return {name for name in found if not name.startswith("_")}


def looked_for(words: str, names: set[str]) -> dict[str, Any]:
    pattern = re.compile(words, re.IGNORECASE)
    named = sorted(name for name in names if pattern.search(name))
    return {"state": "named" if named else "no", "words": words, "names": named[:8]}


def program(package: str) -> dict[str, Any]:
    """Whether installing the package also installs a command."""
    points = distribution(package).entry_points
    commands = [point.name for point in points if point.group == "console_scripts"]
    return {"state": "yes" if commands else "no", "call": "its entry points", "answer": commands}


def one_peer(peer: str) -> dict[str, Any]:
    """Every feature of one peer; in a process of its own."""
    warnings.simplefilter("ignore")
    names = given()
    own = defined(MODULES[peer])
    cells: dict[str, Any] = {}
    for feature, words in FEATURES.items():
        lines = CALLS[peer].get(feature)
        if feature == "command line":
            cells[feature] = program(peer)
        elif lines is None:
            cells[feature] = looked_for(words, own)
        else:
            cells[feature] = asked(feature, lines, dict(names))
    return {"version": version(peer), "features": cells}


def main(peers: list[str]) -> None:
    """Ask these peers; what others answered stays."""
    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    for peer in peers:
        command = [sys.executable, __file__, "--answer", peer]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{peer}: {done.stderr}")
        found[peer] = json.loads(done.stdout.splitlines()[-1])
        states = [cell["state"] for cell in found[peer]["features"].values()]
        print(peer, found[peer]["version"], {state: states.count(state) for state in set(states)})
    ordered = {peer: found[peer] for peer in MODULES if peer in found}
    FILE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        print(json.dumps(one_peer(sys.argv[2])))
    else:
        main(sys.argv[1:] or list(MODULES))
