"""The command line as a user types it."""

import sys

import pytest

from maccal.cli.main import main


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["maccal", *words])
    main()


def refused(monkeypatch, capsys, *words):
    """What a command that must fail says."""
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, *words)
    assert caught.value.code == 2
    return " ".join(capsys.readouterr().err.split())
