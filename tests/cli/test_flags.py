"""A flag that does not apply is refused, in one line, before anything is read or written."""

import numpy as np
import pytest
from commands import refused

from maccal.cli.train import parsed


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A folder that stands for a run, a file of features, and one of predictions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    np.savez("features.npz", z=np.zeros((4, 2), np.float32), y=np.arange(4) % 2)
    np.savez("said.npz", probs=np.full((4, 2), 0.5), labels=np.arange(4) % 2)
    return tmp_path


REFUSED = [
    ("calibrate run --accuracy 0.9", "--accuracy does not apply to a run"),
    ("calibrate run --seed 2", "--seed does not apply to a run"),
    ("calibrate run --out x", "--out does not apply to a run"),
    ("calibrate run --head fc", "--head does not apply to a run"),
    ("calibrate run --cache c", "--cache does not apply to a run"),
    ("calibrate run --gamma 0.9", "--gamma does not apply to held-out, views or mixed feedback"),
    ("calibrate run --feedback mixed --gamma 0.9", "pass --feedback training with it"),
    ("calibrate run --calibrator temperature --epochs 3", "temperature has none of them"),
    ("calibrate run --calibrator platt", "no calibrator 'platt'"),
    ("calibrate features.npz --feedback mixed", "--feedback does not apply to a file or a model"),
    ("calibrate features.npz --root d", "--root does not apply to a file or a model"),
    ("calibrate features.npz --head fc", "--head does not apply to a file of features"),
    ("calibrate features.npz --device cpu", "--device does not apply to a file of features"),
    ("calibrate features.npz --calibrator tst", "tst is for runs"),
    ("calibrate m.py:build --root d", "--root does not apply to a file or a model"),
    ("evaluate said.npz --limit 5", "--limit does not apply to an evaluation without --ood"),
    ("evaluate said.npz --root d", "--root does not apply to an evaluation without --ood"),
    ("evaluate said.npz --device cpu", "--device does not apply to an evaluation without --ood"),
    ("evaluate said.npz --published", "--published does not apply to an evaluation without"),
    ("evaluate said.npz --made", "--made does not apply to an evaluation without --shift"),
    ("evaluate run --shift --made --published", "--published and --made say the opposite"),
    ("evaluate run --kind logits", "--kind does not apply to a run"),
    ("bench cost --scale cpu --gpus 1", "--gpus does not apply to runs on this machine"),
    ("bench cost --scale cpu --address a", "--address does not apply to runs on this machine"),
    ("bench cost --scale cpu --executor ray --workers 2", "--workers does not apply to a Ray"),
    ("evaluate said.npz --plugin nowhere.py", "nowhere.py: no such Python file"),
    ("evaluate said.npz --plugin", "--plugin: expected a file"),
]


@pytest.mark.parametrize(("command", "words"), REFUSED, ids=[command for command, _ in REFUSED])
def test_refused(sources, monkeypatch, capsys, command, words):
    before = sorted(sources.rglob("*"))
    assert words in refused(monkeypatch, capsys, *command.split())
    assert sorted(sources.rglob("*")) == before


def test_settings_are_pairs():
    assert parsed(("gamma=2", "where=all", "gammas=5,3")) == {
        "gamma": 2.0,
        "where": "all",
        "gammas": (5.0, 3.0),
    }
    with pytest.raises(ValueError, match="--set gamma: expected name=value"):
        parsed(("gamma",))
