"""Which precision a training has: what the processor announces, and what it survives."""

import pytest
import torch

from maccal.training.precision import bf16_runs, has_bf16, precise
from maccal.training.recipe import Recipe


@pytest.mark.parametrize(
    ("known", "runs", "expected"),
    [
        ({"avx512_bf16": True}, False, True),
        ({"avx512_bf16": True, "amx_bf16": True}, True, True),
        ({"avx512_bf16": True, "amx_bf16": True}, False, False),
        ({}, True, False),
    ],
)
def test_bf16_is_used_where_the_processor_has_it(monkeypatch, known, runs, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    monkeypatch.setattr("maccal.training.precision.bf16_runs", lambda: runs)
    assert has_bf16(torch.device("cpu")) is expected


def test_an_older_torch_does_not_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert has_bf16(torch.device("cpu")) is False


@pytest.mark.parametrize(
    ("code", "expected"),
    [("", True), ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", False)],
)
def test_a_processor_that_dies_of_bf16_is_noticed(monkeypatch, code, expected):
    monkeypatch.setattr("maccal.training.precision.PROBE", code)
    assert bf16_runs.__wrapped__() is expected


def test_bf16_that_would_kill_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    monkeypatch.setattr("maccal.training.precision.bf16_runs", lambda: False)
    assert precise(Recipe(), torch.device("cpu")).precision == "fp32"
    with pytest.raises(ValueError, match="cannot run them; pass precision fp32"):
        precise(Recipe(precision="bf16"), torch.device("cpu"))
