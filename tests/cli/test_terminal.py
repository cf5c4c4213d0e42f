"""The program as a user meets it: a process of its own, with a terminal and without."""

import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from maccal.cli.main import chosen
from maccal.cli.verbs import GROUPS, VERBS

MACCAL = [sys.executable, "-m", "maccal"]
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Predictions of three models; two files have one name."""
    where = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    logits = rng.normal(size=(300, 3)) + 2 * np.eye(3)[labels]
    for name, factor in (("a/said", 1), ("b/said", 2), ("c", 3)):
        file = where / f"{name}.npz"
        file.parent.mkdir(exist_ok=True)
        np.savez(file, logits=factor * logits, labels=labels)
    return where


def environment(**settings):
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    return {**kept, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **settings}


def piped(folder, *words, **settings):
    """Exit code, stdout and stderr of a process without a terminal."""
    text = settings.pop("text", None)
    done = subprocess.run(
        [*MACCAL, *words],
        cwd=folder,
        env=environment(**settings),
        input=text,
        stdin=subprocess.DEVNULL if text is None else None,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def at_terminal(folder, *words, **settings):
    """Exit code and what a terminal of 60 columns shows."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*MACCAL, *words],
        cwd=folder,
        env=environment(COLUMNS="60", **settings),
        stdin=side,
        stdout=side,
        stderr=side,
    )
    os.close(side)
    shown = b""
    while True:
        ready, _, _ = select.select([main], [], [], 60)
        try:
            part = os.read(main, 1 << 16) if ready else b""
        except OSError:  # the other side is closed
            part = b""
        if not part:
            break
        shown += part
    os.close(main)
    return process.wait(), shown.decode().replace("\r\n", "\n")


def test_help_is_quick_and_names_every_verb(folder):
    code, out, err = piped(folder, "--help")
    assert (code, err) == (0, "")
    names = {name.split()[0] for name in VERBS}
    assert set(re.findall(r"^  (\w+) ", out, re.MULTILINE)) == names
    assert ESCAPE not in out
    code, out, _ = piped(folder, "data", "--help")
    assert (code, set(re.findall(r"^  (\w+) ", out, re.MULTILINE))) == (0, {"list", "get", "check"})


def test_help_needs_no_torch():
    words = (
        "import sys; sys.argv = ['maccal', '--help']; import maccal.__main__ as m; m.main();"
        "print([n for n in ('torch', 'sklearn', 'matplotlib') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_help_of_a_verb(folder, name):
    """Its examples, a word for every flag, and no noise."""
    code, out, err = piped(folder, *name.split(), "--help", COLUMNS="100")
    assert (code, err) == (0, "")
    for example in VERBS[name].examples:
        assert f"  maccal {example.words}\n      {example.about}\n" in out
    assert "None" not in out
    assert "| " not in out
    flags = re.findall(r"^│ (--?[\w-]+.*?) *│\n│( +[^ │][^│]*)?", out, re.MULTILINE)
    for flag, below in flags:
        words = re.split(r" {2,}", flag)  # the flag, and its words beside it or below
        assert len(words) > 1 or below.strip(), flag
    for shared in ("--json", "--quiet", "--help"):
        assert shared in out
    assert "--version" in out


GOLDEN = """\
usage: maccal demo [-h] [--out PATH] [--seed INT] [--json] [--quiet]

Train a small network on digits, calibrate it, and report: no download, half a minute.

╭─ options ───────────────────────────────────────────────────────────────────────────────╮
│ -h, --help  show this help message and exit                                             │
│ --out PATH  folder for demo.report.html, the predictions, their rows, and the features. │
│             (default: build/demo)                                                       │
│ --seed INT  number that settles the images, the network and its calibration. (default:  │
│             1)                                                                          │
│ --json      print the result as JSON on stdout, and nothing else there.                 │
│ --quiet     no notes and no progress on stderr; errors are still said.                  │
╰─────────────────────────────────────────────────────────────────────────────────────────╯
examples:
  maccal demo
      everything into build/demo; open build/demo/demo.report.html
  maccal demo --out /tmp/demo --seed 2
      elsewhere, with other images and weights

with every verb: --version shows the version; --plugin FILE runs your Python file first
"""


@pytest.mark.slow
def test_the_help_of_the_demo(folder):
    assert piped(folder, "demo", "--help", COLUMNS="91")[1] == GOLDEN


NOISE = re.compile(r"None|LITERAL|default: unset|\[FLOAT|\[INT|\d\.\d{7}")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["evaluate", "trust", "calibrate", "train"])
def test_no_help_has_the_noise_of_types(folder, verb):
    code, out, err = piped(folder, verb, "--help", COLUMNS="100")
    assert (code, err) == (0, "")
    assert NOISE.findall(out) == []
    flags = re.findall(r"^│ (--[\w-]+)", out, re.MULTILINE)
    assert len(flags) > 10


@pytest.mark.parametrize("name", VERBS)
def test_examples_are_of_their_verb(name):
    verb = VERBS[name]
    assert 2 <= len(verb.examples) <= 3
    for example in verb.examples:
        assert chosen(shlex.split(example.words))[0] == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("evalute", "x.npz"), "no verb 'evalute'; did you mean evaluate? See maccal --help"),
        (("raport",), "no verb 'raport'; did you mean report? See maccal --help"),
        (("data", "chek"), "no verb 'chek'; did you mean check? See maccal data --help"),
        (("help",), "no verb 'help'; did you mean --help? See maccal --help"),
        (("--verison",), "no verb '--verison'; did you mean --version? See maccal --help"),
        (("xyzzy",), "no verb 'xyzzy'; choose demo, evaluate, "),
        (("--bins", "3"), "--bins: the verb comes first; choose demo"),
        ((), "no verb; choose demo, evaluate, "),
        (("data",), "no verb; choose list, get, check, or see maccal data --help"),
    ],
)
def test_did_you_mean(folder, words, said):
    code, out, err = piped(folder, *words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"maccal: {said}")


@pytest.mark.slow
def test_a_flag_that_is_mistyped(folder):
    code, out, err = piped(folder, "evaluate", "c.npz", "--resample", "3")
    assert (code, out) == (2, "")
    assert "--resamples" in err


@pytest.mark.parametrize("words", [("--version",), ("evaluate", "--version"), ("-V",)])
def test_version(folder, words):
    code, out, err = piped(folder, *words)
    assert (code, err) == (0, "")
    assert re.fullmatch(r"maccal \d+\.\d+\.\d+\n", out)


@pytest.mark.slow
def test_empty_plans_and_reports(folder):
    for words, said in ((("bench", "--plan"), "no table or figure"), (("report",), "no file of")):
        code, out, err = piped(folder, *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert said in err
    (folder / "empty.jsonl").write_text("")
    code, out, err = piped(folder, "report", "empty.jsonl")
    assert (code, out, len(err.splitlines())) == (2, "", 1)


@pytest.mark.slow
def test_results_and_nothing_else_on_stdout(folder):
    """Three models, two of one file name: nothing is overwritten."""
    words = ("evaluate", "a/said.npz", "--compare", "b/said.npz", "c.npz", "--resamples", "20")
    code, out, err = piped(folder, *words, "--out", "made")
    assert code == 0, err
    page = "made/a-said.report.html"
    assert err == f"report: {page}\n"
    assert "b/said minus a/said" in out
    assert "c minus a/said" in out
    assert "report" not in out
    assert ESCAPE not in out + err
    made = sorted(path.name for path in (folder / "made").iterdir())
    rows = ["a-said.row.json", "b-said.row.json", "c.row.json"]
    assert made == sorted(["a-said.report.html", *rows])
    eces = [json.loads((folder / "made" / row).read_text())["numbers"]["ece"] for row in rows]
    assert len(set(eces)) == 3
    code, out, err = piped(folder, *words, "--out", "made", "--json", "--quiet")
    values = json.loads(out)
    assert (code, err) == (0, "")
    assert [row["numbers"]["ece"] for row in values["models"]] == eces
    assert [one["second"] for one in values["differences"]] == ["b/said", "c"]
    assert page in values["files"]


@pytest.mark.slow
def test_a_narrow_terminal_wraps_no_path(folder):
    long = "a-folder-with-a-long-name/" * 4
    words = ("evaluate", "c.npz", "--resamples", "20", "--out", long)
    code, shown = at_terminal(folder, *words)
    assert code == 0
    assert f"report: {long}c.report.html" in shown
    assert ESCAPE in shown  # bold numbers
    code, shown = at_terminal(folder, *words, NO_COLOR="1")
    assert (code, ESCAPE in shown) == (0, False)
    code, shown = at_terminal(folder, *words, "--quiet")
    assert (code, "report:" in shown) == (0, False)
    code, shown = at_terminal(folder, "nothing", NO_COLOR="1")
    assert (code, ESCAPE in shown) == (2, False)
    code, shown = at_terminal(folder, "data", "list", "--help", NO_COLOR="1")
    assert (code, ESCAPE in shown) == (0, False)


FEATURES = """
import numpy as np
rng = np.random.default_rng(0)
y = rng.integers(3, size=600)
z = rng.normal(size=(600, 8)).astype(np.float32) + np.eye(8, dtype=np.float32)[y]
np.savez("features.npz", z=z, y=y, val_z=z[:200], val_y=y[:200])
"""


@pytest.mark.slow
def test_progress_is_a_bar_on_a_terminal_alone(folder):
    subprocess.run([sys.executable, "-c", FEATURES], cwd=folder, check=True)
    words = ("calibrate", "features.npz", "--epochs", "3", "--out", "calibrated")
    code, out, err = piped(folder, *words)
    assert code == 0, err
    assert "stage II" not in out + err
    assert ESCAPE not in out + err
    assert [line.split()[0] for line in err.splitlines()] == ["wrote", "wrote"]
    code, shown = at_terminal(folder, *words)
    assert code == 0
    assert "stage II" in shown
    code, shown = at_terminal(folder, *words, "--quiet")
    assert (code, "stage II" in shown) == (0, False)


@pytest.mark.slow
def test_standard_input(folder):
    rows = [{"label": "cat", "probs": {"cat": 0.7, "dog": 0.3}}] * 20
    rows += [{"label": "dog", "probs": {"cat": 0.6, "dog": 0.4}}] * 10
    text = "\n".join(json.dumps(row) for row in rows)
    words = ("evaluate", "-", "--format", "jsonl", "--resamples", "20", "--out", "piped", "--json")
    code, out, err = piped(folder, *words, text=text)
    assert (code, err) == (0, "report: piped/stdin.report.html\n")
    (model,) = json.loads(out)["models"]
    assert model["numbers"]["accuracy"] == pytest.approx(2 / 3)
    assert (model["name"], model["measured"]["file"]) == ("stdin", "stdin.jsonl")
    for wrong, said in (
        (("evaluate", "-"), "standard input: say what it holds: --format npz, "),
        (("evaluate", "-", "--format", "csv"), "standard input: "),
        (("compare", "-", "--format", "npz"), "standard input: not a readable .npz file"),
    ):
        code, out, err = piped(folder, *wrong, text=text)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith(f"maccal: {said}")


@pytest.mark.slow
def test_completion_knows_verbs_flags_and_groups(folder):
    """The script that bash reads, asked as bash asks it."""
    code, script, err = piped(folder, "--tyro-print-completion", "bash")
    assert (code, err) == (0, "")
    (folder / "completion").write_text(script)
    for words, expected in (
        ("maccal ev", "evaluate"),
        ("maccal evaluate --norm", "--normalise"),
        ("maccal data ch", "check"),
        ("maccal evaluate --kind pr", "probs"),
        ("maccal evaluate comp", "completion"),  # a file
        ("maccal evaluate --compare a.csv comp", "completion"),
    ):
        asked = f"source ./completion; COMP_WORDS=({words}); COMP_CWORD={words.count(' ')};"
        asked += (
            f'COMP_LINE="{words}"; COMP_POINT={len(words)}; _tyro_maccal; echo "${{COMPREPLY[@]}}"'
        )
        done = subprocess.run(["bash", "-c", asked], cwd=folder, capture_output=True, text=True)
        assert expected in done.stdout.split(), (words, done)
    assert "'unset'" not in script


@pytest.mark.slow
def test_completion_of_zsh_counts_words_as_zsh_does(folder):
    """tyro's script takes the number of the word from 0; in zsh it is from 1."""
    code, script, _ = piped(folder, "--tyro-print-completion", "zsh")
    assert code == 0
    assert '"${words[@]}" "$((CURRENT - 1))"' in script
    assert "'unset'" not in script


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.02, 0.1, 0.3, 0.6, 1.0])
def test_ctrl_c_at_any_moment_is_quiet(folder, delay):
    """Before Python runs our first line there is nothing that could be said otherwise."""
    ready = "import signal, sys, maccal.__main__ as m; sys.argv = ['maccal', 'demo', '--out', 'x'];"
    # a job in the background ignores it, and so would what it starts
    ready += "signal.signal(signal.SIGINT, signal.default_int_handler);"
    ready += "print('go', flush=True); m.main()"
    process = subprocess.Popen(
        [sys.executable, "-c", ready],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "go\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    (line,) = err.splitlines()
    assert line.startswith("maccal: interrupted")


def test_every_group_has_verbs():
    assert {name.split()[0] for name in VERBS if " " in name} == set(GROUPS)


def test_every_verb_is_in_the_docs():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    for name, verb in VERBS.items():
        assert f"## `maccal {name.split()[0]}`" in page
        for example in verb.examples:
            assert f"maccal {example.words}" in page
