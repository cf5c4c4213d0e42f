"""Tripwires: short trainings, heads of every reading, one whole row and the page's tables, as they
were.

A refactoring leaves them as they are, to the bit; a change of numbers writes them anew and shows
the rows before and after:

    python tests/test_golden.py

Bits depend on the processor and on torch, so a golden says which ones it was made with. Elsewhere
the sizes of the weights and the numbers of the row are compared, to within their rounding.
"""

import hashlib
import json
import platform
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import maccal as mc

GOLDEN = Path(__file__).with_name("golden")
RESULTS = Path(__file__).parents[1] / "results"


def processor():
    """Its name: those of one instruction set may still add up in different orders."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


MACHINE = f"torch {torch.__version__}, {processor()}"
RECIPE = replace(mc.Recipe(), epochs=2, batch_size=32, padding=1, flip=False, precision="fp32")
FIRST = [name for name, row in mc.METHODS.items() if row.second is None]
READINGS = {
    "default": mc.Stage2(epochs=4),
    "paper": mc.Stage2.paper(epochs=4),
    "bottleneck": mc.Stage2(epochs=4, hidden=32),
    "reset": mc.Stage2(epochs=4, masking="reset"),
    "frozen": mc.Stage2(epochs=4, restrict="frozen"),
    "last": mc.Stage2(epochs=4, inference="last"),
    "static": mc.Stage2(epochs=4, eta="static"),
    "training": mc.Stage2(epochs=4, statistics="deployed", gamma=0.9),
    **{
        f"ablation {row}": mc.Stage2.ablation(row, epochs=4)
        for row in ("vanilla", "masked", "restricted")
    },
}
UNSTEADY = ("format", "checksum", "files", "seconds", "made_with")


def fingerprint(module):
    """A hash of all weights, and their size: the sum of their absolute values."""
    total, size = hashlib.blake2b(digest_size=12), 0.0
    for name, value in sorted(module.state_dict().items()):
        total.update(name.encode() + value.contiguous().numpy().tobytes())
        size += float(value.double().abs().sum())
    return {"hash": total.hexdigest(), "size": size}


def stage1(name):
    """Two epochs on 96 digits."""
    train = mc.load("digits", limit=96).train
    torch.manual_seed(0)
    network = mc.METHODS[name].network(mc.build("resnet8", 10), 0)
    objective = mc.METHODS[name].objective(network, **mc.METHODS[name].settings)
    mc.fit(network, train, RECIPE, pixels=pixels(), objective=objective, seed=1)
    return fingerprint(network)


def pixels():
    from maccal.data.pixels import PIXELS

    return PIXELS["digits"]


def stage2(name):
    """Four epochs on 256 rows of 16 features, with 128 rows of feedback."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 384)
    z = (rng.normal(size=(384, 16)) + 1.5 * np.eye(16)[y]).astype(np.float32)
    held_out = None if READINGS[name].statistics == "deployed" else (z[256:], y[256:])
    return fingerprint(
        mc.calibrate_head(z[:256], y[:256], val=held_out, config=READINGS[name], seed=1)
    )


def row(folder):
    """A calibrated network on 320 digits: the numbers of its row."""
    from maccal.runs import Config, make_run

    head = mc.Stage2(start="fresh", epochs=4)
    config = Config("digits", "resnet8", "maccal", 1, 320, RECIPE, stage2=head)
    return steady(json.loads((make_run(config, runs=folder) / "row.json").read_text()))


def steady(values):
    if isinstance(values, dict):
        return {key: steady(value) for key, value in values.items() if key not in UNSTEADY}
    return [steady(value) for value in values] if isinstance(values, list) else values


def page():
    """What the tables and claims of the committed benchmark say, one hash per table."""
    from maccal.bench.claims import claims
    from maccal.cli.bench import read
    from maccal.report.tables import tables

    rows = list(read(RESULTS / "bench-cpu.jsonl").values())
    parts = {sheet.name: repr(list(sheet.rows)) for sheet in tables(rows)}
    parts["claims"] = repr([(claim.verdict, claim.words) for claim in claims(rows)])
    return {
        name: hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        for name, text in parts.items()
    }


def stored(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


def same_weights(found, golden, machine):
    if machine == MACHINE:
        assert found["hash"] == golden["hash"]
    assert found["size"] == pytest.approx(golden["size"], rel=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST)
def test_stage1(name):
    golden = stored("stage1")
    same_weights(stage1(name), golden["methods"][name], golden["machine"])


@pytest.mark.parametrize("name", READINGS)
def test_stage2(name):
    golden = stored("stage2")
    same_weights(stage2(name), golden["readings"][name], golden["machine"])


@pytest.mark.slow
def test_row(tmp_path):
    golden, found = stored("row"), row(tmp_path)
    if golden["machine"] == MACHINE:
        assert found == golden["row"]
    for name in ("accuracy", "ece", "nll", "brier"):
        numbers = golden["row"]["numbers"]
        assert found["numbers"][name] == pytest.approx(numbers[name], abs=0.05)


def test_page():
    assert page() == stored("page")


def main():
    torch.set_num_threads(1)
    GOLDEN.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = {
            "stage1": {"machine": MACHINE, "methods": {name: stage1(name) for name in FIRST}},
            "stage2": {"machine": MACHINE, "readings": {name: stage2(name) for name in READINGS}},
            "row": {"machine": MACHINE, "row": row(Path(folder))},
            "page": page(),
        }
    for name, value in made.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
