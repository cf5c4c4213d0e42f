"""Multiple-choice samples of lm-evaluation-harness as predictions: samples_<task>.jsonl.

    lm_eval --model ... --tasks arc_easy --log_samples --output_path out
    maccal evaluate out/samples_arc_easy_2026.jsonl

A line is one question. The model's log-likelihoods of its answers are turned into probabilities by
a softmax, so the most probable answer is the one that the harness counts as `acc`; they are not
divided by the answers' lengths, as `acc_norm` does. The label is the number of the right answer.

Questions may have different numbers of answers. Those that a question does not have get the
probability 0, and are never right. So accuracy, confidence, ECE, NLL, Brier score and every other
number of the top label are those of the real answers alone. Classwise ECE is not: it averages over
positions of answers, the absent ones included. It means little for multiple choice anyway.

Refused with the line's number: tasks that are not multiple choice, questions with several right
answers, a file of two filters, in which every question comes twice, and a line whose `acc` is not
what follows from its answers and target.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from maccal.evaluation.arrays import reading
from maccal.evaluation.tables import Columns
from maccal.io import FileError, open_regular, parse_json
from maccal.metrics import softmax

MUTUAL = "acc_mutual_info"  # of such a task the second half are answers without the question
ONLY = "only multiple-choice tasks have probabilities"


def read_harness(path: Path) -> Columns:
    """The probabilities of all answers, and the right one's number."""
    scores: list[list[float]] = []
    labels: list[int] = []
    seen: set[str] = set()
    with reading(path, "a file of lm-evaluation-harness samples"), open_regular(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"line {number}: "
            sample = parse_json(line, path, where)
            check_new(sample, seen, path, where)
            answers = log_likelihoods(sample, path, where)
            scores.append(answers)
            labels.append(right_answer(sample, len(answers), path, where))
            check_right(sample, answers, labels[-1], path, where)
    if not scores:
        raise FileError(path, "no samples; run lm_eval with --log_samples")
    return Columns({"probs": padded(scores), "labels": np.array(labels, np.int64)})


def check_new(sample: dict[str, Any], seen: set[str], path: Path, where: str) -> None:
    """FileError for a question that came before: under another filter, say."""
    if "doc_id" not in sample or "filtered_resps" not in sample:
        keys = ", ".join(list(sample)[:6])
        problem = f"the keys {keys}; expected doc_id, filtered_resps and target"
        raise FileError(path, f"{where}{problem}, as lm_eval --log_samples writes them")
    key = json.dumps(sample["doc_id"])
    if key in seen:
        remedy = "keep the lines of one filter"
        raise FileError(path, f"{where}the question {key} comes twice; {remedy}")
    seen.add(key)


def log_likelihoods(sample: dict[str, Any], path: Path, where: str) -> list[float]:
    """One number per answer; the harness writes pairs of it and of whether it is greedy."""
    found = []
    answers = sample["filtered_resps"]
    for answer in answers if isinstance(answers, list) else ():
        pair = answer[0] if isinstance(answer, list) and len(answer) == 1 else answer
        if not isinstance(pair, list) or len(pair) != 2:
            raise FileError(path, f"{where}an answer without log-likelihood; {ONLY}")
        try:
            found.append(float(pair[0]))
        except (TypeError, ValueError):
            shown = str(pair[0])[:40]
            raise FileError(path, f"{where}{shown!r} is no log-likelihood; {ONLY}") from None
    if MUTUAL in sample:
        found = found[: len(found) // 2]
    if len(found) < 2:
        raise FileError(path, f"{where}{len(found)} answers; {ONLY}")
    if not np.isfinite(found).all():
        raise FileError(path, f"{where}a log-likelihood is not finite")
    return found


def right_answer(sample: dict[str, Any], answers: int, path: Path, where: str) -> int:
    """The number of the right answer: the target is it, or is its text."""
    target = str(sample.get("target")).strip()
    if target.isdecimal() and len(target) < 10:
        label = int(target)
    else:
        texts = answer_texts(sample)[:answers]
        if texts.count(target) != 1:
            problem = f"the target {target[:60]!r} is neither the number of an answer nor one"
            raise FileError(path, f"{where}{problem}; questions with several targets are refused")
        label = texts.index(target)
    if label >= answers:
        raise FileError(path, f"{where}the target is answer {label} of {answers}, counted from 0")
    return label


def check_right(
    sample: dict[str, Any], answers: list[float], label: int, path: Path, where: str
) -> None:
    """FileError unless the harness counted the same.

    A target 3 may be the number of an answer, or one of the answers 1, 3 and 7; the file does not
    say which.
    """
    counted = sample.get("acc")
    if counted in (0, 1) and counted != (int(np.argmax(answers)) == label):
        problem = f"acc is {counted:g}, which does not fit the target as answer {label} from 0"
        raise FileError(path, f"{where}{problem}; let doc_to_target give the answer's number")


def answer_texts(sample: dict[str, Any]) -> list[str]:
    """The answers as the model was asked to go on with them."""
    arguments = sample.get("arguments")
    if isinstance(arguments, dict):
        asked = [list(one.values()) for one in arguments.values() if isinstance(one, dict)]
    else:
        asked = [one for one in arguments or [] if isinstance(one, list)]
    return [str(one[1]).strip() for one in asked if len(one) > 1]


def padded(scores: list[list[float]]) -> np.ndarray:
    """Probabilities, with 0 for the answers that a question does not have."""
    most = max(len(one) for one in scores)
    probs = np.zeros((len(scores), most))
    for row, one in enumerate(scores):
        probs[row, : len(one)] = softmax(np.array([one], np.float64))[0]
    return probs
