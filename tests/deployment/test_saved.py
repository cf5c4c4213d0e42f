"""A calibrated model comes back to the bit, into the same architecture and no other."""

import copy

import pytest
import torch
from extraction import X, mostly_right, net
from torch import nn

import maccal as mc
from maccal.deployment.facts import weights_sha256
from maccal.deployment.saved import CALIBRATED
from maccal.io import FileError, read_tensors, write_tensors

FRESH = mc.Stage2(start="fresh", hidden=7, epochs=2)


def calibrated(**choices):
    model = net()
    rows = mostly_right(model, X)
    return mc.calibrate(model, rows, val=rows, **choices)


@pytest.mark.parametrize(
    "choices",
    [{}, {"calibrator": "temperature"}, {"config": FRESH}],
    ids=["maccal", "temperature", "several layers"],
)
def test_there_and_back(choices, tmp_path):
    model = calibrated(**choices)
    mc.save_calibrated(model, str(tmp_path))
    torch.manual_seed(9)
    fresh = net()
    found = mc.load_calibrated(fresh, str(tmp_path))
    assert found is fresh
    assert not found.training
    assert torch.equal(found(X), model.eval()(X))
    head = found.get_submodule("4")
    assert head.feedback == model.get_submodule("4").feedback
    assert head.history == model.get_submodule("4").history
    mc.save_calibrated(found, tmp_path / "again")
    same = [
        (folder / "model.safetensors").read_bytes() for folder in (tmp_path, tmp_path / "again")
    ]
    assert same[0] == same[1]


class Two(nn.Module):
    """The mean of two classifiers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.a, self.b = nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x):
        z = self.body(x).relu()
        return (self.a(z) + self.b(z)) / 2


def test_two_classifiers_both_say_it(tmp_path):
    model = Two()
    model = mc.calibrate(model, mostly_right(model, X), accuracy=0.8, calibrator="temperature")
    mc.save_calibrated(model, tmp_path)
    found = mc.load_calibrated(Two(), tmp_path)
    assert found.a.feedback == found.b.feedback == model.a.feedback
    assert torch.equal(found(X), model.eval()(X))


class Tied(nn.Module):
    """Two names for one weight, which is not the classifier's."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 5)
        self.again.weight = self.first.weight

    def forward(self, x):
        return self.head(self.again(self.first(x)).relu())


def test_shared_weights(tmp_path):
    model = Tied()
    model = mc.calibrate(model, mostly_right(model, X), accuracy=0.8, calibrator="temperature")
    mc.save_calibrated(model, tmp_path)
    found = mc.load_calibrated(Tied(), tmp_path)
    assert torch.equal(found(X), model.eval()(X))


def test_a_model_that_is_not_calibrated_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pass what calibrate returned"):
        mc.save_calibrated(net(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_head_that_is_no_linear_layers_is_refused(tmp_path):
    config = mc.calibration.CALIBRATORS["vtst"].choices
    model = calibrated(calibrator="vtst", config=config)
    with pytest.raises(ValueError, match=r"save its state_dict with torch\.save"):
        mc.save_calibrated(model, tmp_path)


def wider():
    model = net()
    model[0] = nn.Linear(6, 9)
    return model


WRONG = {
    "another type": (lambda: Two(), r"weights of a torch.*Sequential; the model .* is a .*Two"),
    "another shape": (wider, r"0.bias is \(8,\) of torch.float32 in the file and \(9,\)"),
    "another dtype": (lambda: net().double(), r"float32 in the file and .* of torch.float64"),
    "fewer layers": (lambda: net()[:2], "weights of another architecture: no layer '4'"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("choices", [{}, {"config": FRESH}], ids=["in place", "several layers"])
def test_another_architecture_is_refused_and_left_as_it_was(kind, choices, tmp_path):
    build, problem = WRONG[kind]
    mc.save_calibrated(calibrated(**choices), tmp_path)
    model = build()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=problem):
        mc.load_calibrated(model, tmp_path)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_a_damaged_file_is_refused(tmp_path):
    mc.save_calibrated(calibrated(), tmp_path)
    path = tmp_path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileError, match="checksum is wrong"):
        mc.load_calibrated(net(), tmp_path)
    mc.save_head(nn.Sequential(nn.Linear(6, 5)), str(path))
    with pytest.raises(FileError, match="format 'maccal head 1'; expected 'maccal calibrated 1'"):
        mc.load_calibrated(net(), tmp_path)


FEEDBACK = mc.calibration.feedback.Feedback("accuracy", accuracy=0.8).card()
NOTES = {
    "weights_sha256": ("0" * 64, "not those that were saved"),
    "feedback": ("a text", "its note 'feedback' is no dict"),
    "history": (None, "its note 'history' is no list"),
    "classifier": (["9"], "no layer '9' in the model"),
    "classifier ": ([""], "'' is a Sequential, no classifier, in the model"),
    "classifier  ": ([], "does not say which layer was calibrated"),
    "head": ("rocket", "its note 'head' is 'rocket'"),
    "history ": ([{"epoch": 1}, None], "'history' holds what is no dict"),
    "feedback ": ({}, "'feedback' is not what calibrate says"),
    "feedback  ": ({**FEEDBACK, "rows": "many"}, "'feedback' is not what calibrate says"),
    "feedback   ": ({**FEEDBACK, "words": "trust me"}, "'feedback' is not what calibrate says"),
    "feedback    ": (
        {**FEEDBACK, "words": FEEDBACK["words"] + "\n---"},
        "'feedback' is not what calibrate says",
    ),
}  # the spaces behind a key tell the cases apart


@pytest.mark.parametrize("key", NOTES)
def test_notes_that_were_changed_are_refused_before_a_weight_is_written(key, tmp_path):
    """By somebody who mended the checksum too."""
    value, problem = NOTES[key]
    mc.save_calibrated(calibrated(), tmp_path)
    path = tmp_path / "model.safetensors"
    weights, notes = read_tensors(path, CALIBRATED)
    write_tensors(path, CALIBRATED, weights, **{**notes, key.strip(): value})
    model = net()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(FileError, match=problem):
        mc.load_calibrated(model, tmp_path)
    assert all(torch.equal(before[name], kept) for name, kept in model.state_dict().items())


def test_weights_of_another_version_of_torch_are_read(tmp_path):
    saved = calibrated()
    mc.save_calibrated(saved, tmp_path)
    path = tmp_path / "model.safetensors"
    weights, notes = read_tensors(path, CALIBRATED)
    versions = {**notes["versions"], "torch": "99.0"}
    write_tensors(path, CALIBRATED, weights, **{**notes, "versions": versions})
    assert torch.equal(mc.load_calibrated(net(), tmp_path)(X), saved.eval()(X))


def test_the_fingerprint_is_of_names_types_and_values():
    state = {"b": torch.ones(2, 3), "a": torch.zeros(2)}
    found = weights_sha256(state)
    assert weights_sha256(dict(reversed(state.items()))) == found
    others = [
        {**state, "a": torch.tensor([0.0, -0.0])},
        {**state, "a": torch.zeros(2, dtype=torch.float64)},
        {**state, "b": torch.ones(3, 2)},
        {"b": state["b"], "c": state["a"]},
    ]
    assert len({weights_sha256(other) for other in others} | {found}) == 5


def test_a_file_in_place_of_the_folder(tmp_path):
    model = calibrated()
    mc.save_calibrated(model, tmp_path / "out")
    file = tmp_path / "out" / "model.safetensors"
    with pytest.raises(FileError, match="pass the folder that save_calibrated wrote"):
        mc.load_calibrated(net(), file)
    before = file.read_bytes()
    with pytest.raises(FileError, match="a file, where a folder is needed"):
        mc.save_calibrated(model, file)
    assert file.read_bytes() == before
