"""`maccal data` as a user meets it."""

import sys

import pytest
from test_downloads import INSIDE, files, server  # noqa: F401

from maccal.cli.data import NAMES, check_sets, get_set, list_sets
from maccal.cli.main import command, nothing
from maccal.data.download import SOURCES


def run(*words):
    """As main does it, without what it does with errors."""
    sys.argv = ["maccal", "data", *words]
    command(nothing)


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", sys.argv)


def said(capsys):
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_list(tmp_path, capsys):
    (tmp_path / "svhn").mkdir()
    run("list", "--root", str(tmp_path))
    lines = said(capsys)
    assert "cifar10 www.cs.toronto.edu 170 MB no cifar-10-batches-py" in lines
    assert "svhn ufldl.stanford.edu 246 MB partly svhn" in lines
    assert "digits scikit-learn embedded" in lines
    assert len(lines) == len(NAMES) + 2
    assert lines[-1] == f"in {tmp_path}"


def test_get_and_check(server, tmp_path, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr("maccal.cli.data.NAMES", (*NAMES, "toy"))
    monkeypatch.setenv("MACCAL_DATA", str(tmp_path))
    run("get", "toy", "--keep")
    run("get", "toy")
    run("check")
    assert said(capsys) == [
        f"toy is in {tmp_path}/toy-1",
        f"toy is already in {tmp_path}/toy-1",
        "toy: all is well",
    ]
    assert files(tmp_path) == {"toy.tar.gz", *INSIDE}
    (tmp_path / "toy-1" / "b" / "c.txt").unlink()
    with pytest.raises(ValueError, match="1 of 2 data sets has problems"):
        run("check", "toy", "digits")
    assert said(capsys) == ["toy:", "toy-1/b/c.txt: no such file", "digits: all is well"]


def test_nothing_here(tmp_path, capsys):
    check_sets(root=tmp_path)
    out, err = capsys.readouterr()
    words = f"no data sets in {tmp_path}; `maccal data get NAME` downloads one"
    assert (out, err) == ("", f"{words}\n")
    with pytest.raises(ValueError, match="2 of 2 data sets have problems"):
        run("check", "cifar10", "cifar10-c", "--root", str(tmp_path))
    assert "no folder cifar-10-batches-py or cifar-10-batches-bin" in " ".join(said(capsys))


def test_the_embedded_set(tmp_path, capsys):
    get_set("digits", tmp_path)
    assert said(capsys) == ["digits is embedded: nothing to download"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", ["get", "check"])
def test_unknown_names(tmp_path, verb):
    with pytest.raises(ValueError, match="no data set 'mnist'; the data sets are cifar10, "):
        run(verb, "mnist", "--root", str(tmp_path))


def test_help(capsys):
    run("--help")
    for words in (["list"], ["get"], ["check"]):
        with pytest.raises(SystemExit) as caught:
            run(*words, "--help")
        assert caught.value.code == 0
    out = capsys.readouterr().out
    for wanted in (
        "Download a data set from its publisher",
        "List the data sets",
        "Check that data sets are complete",
        "--keep",
    ):
        assert wanted in out


def test_names(tmp_path, capsys):
    """Every set is listed, whether or not it can be downloaded."""
    list_sets(tmp_path)
    assert [line.split()[0] for line in said(capsys)[1:-1]] == [*SOURCES, "digits"]
