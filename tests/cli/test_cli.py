"""The command line as a user meets it."""

import errno
import io
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from commands import refused, run

from maccal.cli import evaluate as cli
from maccal.cli import report as report_verb
from maccal.cli.evaluate import told_apart
from maccal.cli.failures import answered
from maccal.evaluation.predictions import read
from maccal.io import FileError, readable
from maccal.metrics import softmax, summary


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two models' predictions of the same rows, in the working folder."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(600, 4)) * 2
    labels = (softmax(logits).cumsum(1) > rng.random((600, 1))).argmax(1)
    np.savez(tmp_path / "sharp.npz", logits=3 * logits, labels=labels)
    np.savez(tmp_path / "plain.npz", probs=softmax(logits), labels=labels)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_evaluate(files, monkeypatch, capsys):
    run(monkeypatch, "evaluate", "sharp.npz", "--resamples", "100")
    said = capsys.readouterr()
    out = " ".join(said.out.split())
    row = json.loads((files / "sharp.row.json").read_text())
    with np.load("sharp.npz") as saved:
        expected = summary(
            logits=saved["logits"], labels=saved["labels"], interval=True, resamples=100
        )
    numbers = row["numbers"]
    measured = {**numbers, **row["measured"], "verdict": row["verdict"]}
    assert {key: measured[key] for key in expected} == expected
    low, high = 100 * numbers["ece_low"], 100 * numbers["ece_high"]
    assert f"ECE {100 * numbers['ece']:.2f} % {low:.2f} % to {high:.2f} %" in out
    assert row["verdict"] in out
    assert said.err == "report: sharp.report.html\n"
    assert (files / "sharp.report.html").read_text().startswith("<!doctype html>")


def test_compare(files, monkeypatch, capsys):
    run(
        monkeypatch,
        "evaluate",
        "sharp.npz",
        "--compare",
        "plain.npz",
        "--resamples",
        "100",
        "--out",
        "deep/er",
    )
    out = capsys.readouterr().out
    assert "plain minus sharp" in out
    assert sorted(p.name for p in (files / "deep" / "er").iterdir()) == [
        "plain.row.json",
        "sharp.report.html",
        "sharp.row.json",
    ]
    page = (files / "deep" / "er" / "sharp.report.html").read_text()
    assert "ECE: plain is better by" in page
    assert "Accuracy: no difference that chance would not explain" in page


def test_two_files_of_one_name_are_two_models(files, monkeypatch, capsys):
    """Two rows, two names on the page and in the table; each row has its own numbers."""
    for name in ("sharp", "plain"):
        (files / name).mkdir()
        (files / f"{name}.npz").rename(files / name / "test.npz")
    run(
        monkeypatch,
        "evaluate",
        "sharp/test.npz",
        "--compare",
        "plain/test.npz",
        "--resamples",
        "50",
        "--out",
        "out",
    )
    made = sorted(path.name for path in (files / "out").iterdir())
    assert made == ["plain-test.row.json", "sharp-test.report.html", "sharp-test.row.json"]
    rows = [
        json.loads((files / "out" / f"{name}-test.row.json").read_text())
        for name in ("sharp", "plain")
    ]
    assert [row["name"] for row in rows] == ["sharp/test", "plain/test"]
    assert rows[0]["numbers"]["ece"] > 2 * rows[1]["numbers"]["ece"]
    assert "plain/test minus sharp/test" in capsys.readouterr().out
    assert "ECE: plain/test is better by" in (files / "out" / "sharp-test.report.html").read_text()


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a.npz"], ["a"]),
        (["a.npz", "b.npz"], ["a", "b"]),
        (["a.npz", "a.csv"], ["a.npz", "a.csv"]),
        (["x/a.npz", "y/a.npz"], ["x/a", "y/a"]),
        (["x/s1/a.npz", "y/s1/a.npz"], ["x/s1/a", "y/s1/a"]),
        (["x/a.npz", "y/A.npz"], ["x/a", "y/A"]),  # one file to a disk that ignores case
        (["a.npz", "A.npz"], ["a", "A"]),
    ],
)
def test_names_that_tell_models_apart(paths, names):
    assert told_apart([Path(path) for path in paths]) == names


def test_a_file_is_not_compared_with_itself(files, monkeypatch, capsys):
    (files / "link.npz").symlink_to("sharp.npz")
    for other in ("sharp.npz", "./sharp.npz", "link.npz"):
        assert "are the same" in refused(
            monkeypatch, capsys, "evaluate", "sharp.npz", "--compare", other
        )


def test_the_row_of_a_run_keeps_its_name(files, monkeypatch):
    """Other rows go by it, whatever the page calls the model; and what fails writes nothing."""
    monkeypatch.setattr(cli, "whole_row", lambda folder, row: row)
    monkeypatch.setattr(cli, "predictions_of", predictions_in)
    for name in ("x", "y"):
        (files / name / "run").mkdir(parents=True)
        shutil.copy("sharp.npz", files / name / "run" / "test.npz")
    run(monkeypatch, "evaluate", "x/run", "--compare", "y/run", "--resamples", "20")
    assert [
        json.loads((files / name / "run" / "row.json").read_text())["name"] for name in "xy"
    ] == ["run", "run"]
    page = (files / "x" / "run" / "report.html").read_text()
    assert "<h3>x/run</h3>" in page
    assert "<h3>y/run</h3>" in page


def predictions_in(folder):
    """Of a folder that is not a whole run."""
    return read(folder / "test.npz")


def broken(*args, **settings):
    raise FileError("row.json", "it is damaged")


def test_nothing_is_written_before_all_is_computed(files, monkeypatch, capsys):
    (files / "run").mkdir()
    shutil.copy("sharp.npz", files / "run" / "test.npz")
    monkeypatch.setattr(cli, "predictions_of", predictions_in)
    monkeypatch.setattr(cli, "whole_row", broken)
    assert "damaged" in refused(monkeypatch, capsys, "evaluate", "run", "--resamples", "20")
    monkeypatch.setattr(cli, "whole_row", lambda folder, numbers: dict(numbers))
    monkeypatch.setattr(cli, "ood_run", broken)
    assert "damaged" in refused(
        monkeypatch, capsys, "evaluate", "run", "--resamples", "20", "--ood", "svhn"
    )
    assert {path.name for path in (files / "run").iterdir()} <= {"test.npz", ".lock"}


@contextmanager
def small_disk(size):
    """No file can be larger: to a program, much like a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_nothing(files, monkeypatch, capsys):
    """The row would fit, the page does not."""
    with small_disk(20_000):
        message = refused(
            monkeypatch, capsys, "evaluate", "sharp.npz", "--resamples", "20", "--out", "out"
        )
    assert message == "maccal: out/sharp.report.html: cannot be written (File too large)"
    assert list((files / "out").iterdir()) == []


def test_a_full_disk_leaves_no_page_of_the_benchmark(files, monkeypatch, capsys):
    rows = str(Path(__file__).parents[2] / "results" / "bench-cpu.jsonl")
    monkeypatch.setattr(report_verb, "leaderboard_page", lambda rows, title: "a page")
    monkeypatch.setattr(
        report_verb, "figure_files", lambda rows, folder: ({folder / "a.svg": b"0" * 30_000}, [])
    )
    with small_disk(20_000):
        message = refused(
            monkeypatch, capsys, "report", rows, "--out", "out/page.html", "--figures", "out"
        )
    assert message == "maccal: out/a.svg: cannot be written (File too large)"
    assert list((files / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["caf\udce9", "\x1b[31mred", "two\nlines", "naïve 模型"])
def test_any_file_name_on_any_console(files, monkeypatch, name):
    """Bytes that are not UTF-8, and a console that knows ASCII alone."""
    (files / "plain.npz").rename(files / f"{name}.npz")
    console = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", console)
    run(monkeypatch, "evaluate", f"{name}.npz", "--resamples", "20")
    printed = console.buffer.getvalue().decode("ascii")
    assert printed.splitlines()[0] == name.encode("ascii", "backslashreplace").decode().replace(
        "\x1b", r"\x1b"
    ).replace("\n", r"\n")
    row = json.loads((files / f"{readable(name)}.row.json").read_text())
    assert row["name"] == readable(name)


def test_bare_arrays(files, monkeypatch):
    with np.load("plain.npz") as saved:
        np.save("p.npy", saved["probs"])
        np.save("y.npy", saved["labels"])
    run(
        monkeypatch,
        "evaluate",
        "p.npy",
        "--kind",
        "probs",
        "--labels",
        "y.npy",
        "--resamples",
        "50",
    )
    assert json.loads((files / "p.row.json").read_text())["measured"]["n"] == 600


def test_other_labels_cannot_be_compared(files, monkeypatch, capsys):
    with np.load("plain.npz") as saved:
        np.savez("other.npz", probs=saved["probs"], labels=saved["labels"][::-1])
    message = refused(monkeypatch, capsys, "evaluate", "sharp.npz", "--compare", "other.npz")
    assert "do not have the same labels" in message
    assert not list(files.glob("*.report.html"))


def test_bad_rows_write_nothing(files, monkeypatch, capsys):
    np.savez("bad.npz", probs=np.array([[0.5, 0.5], [np.nan, 1.0]]), labels=np.array([0, 1]))
    assert refused(monkeypatch, capsys, "evaluate", "bad.npz").startswith(
        "maccal: probs row 1 holds nan"
    )
    assert sorted(p.name for p in files.iterdir()) == ["bad.npz", "plain.npz", "sharp.npz"]


def test_missing_file(files, monkeypatch, capsys):
    assert (
        refused(monkeypatch, capsys, "evaluate", "nothing.npz")
        == "maccal: nothing.npz: no such file"
    )


@pytest.mark.parametrize(
    ("flag", "value"), [("--bins", "0"), ("--bins", "100000000"), ("--resamples", "0")]
)
def test_bad_settings(files, monkeypatch, capsys, flag, value):
    assert flag.strip("-") in refused(monkeypatch, capsys, "evaluate", "sharp.npz", flag, value)


MENDABLE = {
    "memory": (
        MemoryError("Unable to allocate 80 GiB"),
        "not enough memory (Unable to allocate 80 GiB)",
    ),
    "torch's memory": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: 8 bytes"),
        "not enough memory",
    ),
    "depth": (RecursionError("maximum recursion depth exceeded"), "nested too deeply"),
    "letters": (
        UnicodeEncodeError("utf-8", "\udce9", 0, 1, "surrogates not allowed"),
        "text that is not Unicode",
    ),
    "zlib": (
        zlib.error("Error -3 while decompressing"),
        "a file is damaged (Error -3 while decompressing)",
    ),
    "zip": (zipfile.BadZipFile("File is not a zip file"), "a file is damaged"),
    "end": (EOFError(), "a file is damaged (EOFError)"),
    "disk": (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    "lines": (ValueError("a\n  b\x1b[31m"), r"maccal: a b\x1b[31m"),
}


def failing(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(("error", "words"), MENDABLE.values(), ids=MENDABLE)
def test_what_can_be_mended_is_one_line(capsys, error, words):
    with pytest.raises(SystemExit) as caught:
        answered(failing(error))
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("maccal: ")
    assert words in line


@pytest.mark.parametrize(
    "error", [KeyError("ece"), TypeError("no"), RuntimeError("mat1 and mat2"), AssertionError()]
)
def test_a_fault_shows_where_and_what_to_send(capsys, error):
    with pytest.raises(SystemExit) as caught:
        answered(failing(error))
    assert caught.value.code == 1
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "in command" in text
    assert text.splitlines()[-1].startswith("maccal: this is a fault in maccal; please report it")
    assert f"Python {platform.python_version()}" in text


def test_ctrl_c_is_one_line(capsys):
    with pytest.raises(SystemExit) as caught:
        answered(failing(KeyboardInterrupt()))
    assert caught.value.code == 130
    assert capsys.readouterr().err.splitlines() == [
        "maccal: interrupted; what was saved is whole, and the same command goes on from it"
    ]


PRINTS = (
    "from rich.console import Console; from maccal.cli.failures import answered; "
    "answered(lambda: Console().print('x'))"
)


def test_nobody_reads(files):
    """As in `maccal report ... | head`: quiet. On a full disk, one line."""
    for reads, code, words in (
        (False, 1, ""),
        (True, 2, "maccal: [Errno 28] No space left on device\n"),
    ):
        target = os.open("/dev/full", os.O_WRONLY) if reads else closed_pipe()
        done = subprocess.run(
            [sys.executable, "-c", PRINTS], stdout=target, stderr=subprocess.PIPE, text=True
        )
        os.close(target)
        assert (done.returncode, done.stderr) == (code, words)


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


INTERRUPTED = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
import maccal.__main__ as entry

real = builtins.__import__

def telling(name, *rest):
    if name.startswith("rich"):
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)

builtins.__import__, sys.argv = telling, ["maccal", "report"]
entry.main()
"""


def test_ctrl_c_while_it_is_being_imported():
    """The signal comes in the middle of an import, where an exception would be printed or swallowed
    by others.
    """
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "maccal: interrupted\n")


@pytest.mark.slow
def test_the_report_needs_no_torch():
    """Which takes two seconds to import; nor scipy.stats, which takes half a one."""
    words = (
        "import sys, maccal.cli.report; "
        "print([name for name in ('torch', 'scipy.stats', 'sklearn') if name in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", words], capture_output=True, text=True).stdout
        == "[]\n"
    )


@pytest.mark.slow
def test_as_a_program(files):
    """In a process of its own, as installed: exit codes, and no traceback for a user's mistake."""
    good = subprocess.run(
        [sys.executable, "-m", "maccal", "evaluate", "plain.npz", "--resamples", "50"],
        capture_output=True,
        text=True,
    )
    assert good.returncode == 0, good.stderr
    bad = subprocess.run(
        [sys.executable, "-m", "maccal", "evaluate", "no.npz"], capture_output=True, text=True
    )
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr
    usage = subprocess.run(
        [sys.executable, "-m", "maccal", "--help"], capture_output=True, text=True
    )
    assert "evaluate" in usage.stdout
