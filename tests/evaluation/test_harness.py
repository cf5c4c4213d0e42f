"""Samples of lm-evaluation-harness: its accuracy, whatever number of answers; the rest refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import run

import maccal as mc
from maccal.io import FileError


def sample(number, scores, target, **more):
    """As lm_eval writes it: everything as text."""
    answers = [[str(score), "False"] for score in scores]
    return {"doc_id": number, "target": str(target), "filtered_resps": answers, **more}


def written(folder, samples):
    path = folder / "samples_task.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in samples))
    return path


def drawn(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for number in range(rows):
        scores = rng.normal(-20, 3, rng.integers(2, 6))
        target = int(rng.integers(len(scores)))
        right = float(scores.argmax() == target)
        found.append(sample(number, scores, target, acc=right))
    return found


def test_the_accuracy_is_that_of_the_harness(tmp_path):
    samples = drawn()
    said = mc.read(str(written(tmp_path, samples)))
    numbers = said.summary(resamples=100)
    assert numbers["accuracy"] == pytest.approx(np.mean([one["acc"] for one in samples]))
    assert said.probs.shape == (300, 5)
    assert np.allclose(said.probs.sum(1), 1)


def test_absent_answers_change_nothing(tmp_path):
    """NLL, Brier and ECE of questions with different numbers of answers, by hand."""
    samples = drawn()
    numbers = mc.read(written(tmp_path, samples)).summary(resamples=100)
    surprise, distance, confidence, right = [], [], [], []
    for one in samples:
        scores = np.array([float(score) for score, _ in one["filtered_resps"]])
        p = np.exp(scores - scores.max())
        p /= p.sum()
        truth = int(one["target"])
        surprise.append(-np.log(p[truth]))
        distance.append(((p - np.eye(len(p))[truth]) ** 2).sum())
        confidence.append(p.max())
        right.append(p.argmax() == truth)
    assert numbers["nll"] == pytest.approx(np.mean(surprise))
    assert numbers["brier"] == pytest.approx(np.mean(distance))
    ece = mc.metrics.ece(np.array(confidence), np.array(right))
    assert numbers["ece"] == pytest.approx(ece, abs=1e-12)


def test_other_ways_to_write_the_same(tmp_path):
    """Numbers, not text; answers in lists of one; a target by its text; mutual information."""
    arguments = {
        f"gen_args_{i}": {"arg_0": "Q:", "arg_1": f" {word}"} for i, word in enumerate("ab")
    }
    samples = [
        {"doc_id": 0, "target": 1, "filtered_resps": [[-1.0, True], [-2.0, False]]},
        {"doc_id": 1, "target": "1", "filtered_resps": [[["-1.0", "True"]], [["-2.0", "False"]]]},
        sample(2, [-1.0, -2.0], "b", arguments=arguments),
        sample(3, [-1.0, -2.0], "b", arguments=[["Q:", " a"], ["Q:", " b"]]),
        sample(4, [-1.0, -2.0, -9.0, -8.0], 1, acc_mutual_info=0.0),
    ]
    said = mc.read(written(tmp_path, samples))
    assert said.labels.tolist() == [1] * 5
    expected = [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))]
    np.testing.assert_allclose(said.probs, [expected] * 5)


WRITTEN = Path(__file__).parent / "harness"  # by lm_eval 0.4.13, of its model `dummy`


@pytest.mark.parametrize("task", ["kinds", "kinds_text", "kinds_letters", "kinds_mutual"])
def test_files_that_the_harness_itself_wrote(task):
    """Targets as numbers and as texts; the same two answers; with mutual information."""
    path = WRITTEN / f"samples_{task}.jsonl"
    samples = [json.loads(line) for line in path.read_text().splitlines()]
    said = mc.read(path)
    found = said.probs.argmax(1) == said.labels
    assert found.tolist() == [one["acc"] == 1 for one in samples]
    assert 0 < found.sum() < len(found) == 12
    if task != "kinds_letters":
        assert said.labels.tolist() == [one["doc"]["answer"] for one in samples]
        given = (said.probs > 0).sum(1)
        assert given.tolist() == [len(one["doc"]["choices"]) for one in samples]


WRONG = {
    "another count": (
        sample(1, [-1.0, -2.0, -3.0], 1, acc=1.0, arguments=[["", "0"], ["", "1"], ["", "7"]]),
        "line 2: acc is 1, which does not fit the target as answer 1 from 0",
    ),
    "other keys": ({"name": "row"}, "line 2: the keys name; expected doc_id"),
    "twice": (sample(0, [1, 2], 0), "line 2: the question 0 comes twice; keep the lines of one"),
    "generated": ({"doc_id": 1, "target": "4", "filtered_resps": ["4"]}, "only multiple-choice"),
    "no number": (sample(1, ["long", "short"], 0), "'long' is no log-likelihood"),
    "one answer": (sample(1, [-1.0], 0), "line 2: 1 answers"),
    "infinite": (sample(1, [-1.0, "-inf"], 0), "line 2: a log-likelihood is not finite"),
    "several targets": (sample(1, [-1.0, -2.0], [0, 1]), "several targets are refused"),
    "beyond": (sample(1, [-1.0, -2.0], 2), "the target is answer 2 of 2, counted from 0"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_with_its_line(kind, tmp_path):
    line, problem = WRONG[kind]
    path = written(tmp_path, [sample(0, [-1.0, -2.0], 0), line])
    with pytest.raises(FileError, match=problem):
        mc.read(path)


@pytest.mark.parametrize("text", ["", "\n", "[1]", "not json"])
def test_files_of_something_else(text, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text(text)
    with pytest.raises(FileError):
        mc.read(path)


@pytest.mark.slow
def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    path = written(tmp_path, drawn())
    run(monkeypatch, "evaluate", str(path), "--out", str(tmp_path), "--resamples", "100")
    assert "samples_task" in capsys.readouterr().out
    assert (tmp_path / "samples_task.report.html").exists()
