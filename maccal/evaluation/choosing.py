"""compare_calibrators: every post-hoc calibrator on the same predictions, and which to use.

Cross-fitted: stratified folds, each predicted by a calibrator that was fitted on the others, so
that all rows are measured and none by a map that has seen its label. With features z of the same
rows MaC-Cal takes part, as MaCCalClassifier on z alone.

The best has the lowest NLL. The one to use is the simplest that is really worse than the best in
none of accuracy, ECE, NLL and Brier, by paired tests at 5 % divided by the number of comparisons:
many calibrators are compared, and the best of many is in part the luckiest. Other ways to split the
rows (`repeats`) show whether the choice depends on the folds.

Cost: as many fits as there are folds of every calibrator, and their intervals. With many rows and
classes some would take hours, so unless they are named, those are left out that would take longer
than `seconds`, by what they took elsewhere (results/posthoc.md); the reason is given. Memory: the
probabilities of one calibrator at a time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from maccal.calibration.estimator import MaCCalClassifier
from maccal.calibration.posthoc import FAMILY
from maccal.calibration.posthoc.inputs import Inputs, fit_inputs, shares
from maccal.evaluation.choice import UNTOUCHED, Candidate, Choice, chosen, score, with_votes
from maccal.evaluation.pace import SECONDS as SECONDS
from maccal.evaluation.pace import too_long
from maccal.metrics import summary
from maccal.metrics.arguments import as_tensor, check_bins, check_count
from maccal.metrics.given import Classes
from maccal.metrics.inputs import Array, Labels
from maccal.metrics.paired import Difference, RowNumbers, compare_rows

DRAWS = 80  # for each calibrator compared: the rarest p-value is then a quarter of the level
COPIES = 0.01  # the share of rows that are there again which is worth a word
FEATURES = "MaC-Cal (z)"  # on features, of the same rows
Predict = Callable[[np.ndarray, np.ndarray], np.ndarray]  # rows to fit on, rows to predict


def compare_calibrators(
    logits: Array,
    labels: Labels,
    *,
    inputs: Inputs = "logits",
    classes: Classes | None = None,
    z: Array | None = None,
    names: Sequence[str] | None = None,
    folds: int = 5,
    repeats: int = 1,
    seconds: float = SECONDS,
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
) -> Choice:
    """Cross-fit post-hoc calibrators by name, and MaC-Cal on features z, and say which to use.

    Without names all that take about `seconds` or less for their fits. Numbers are of the first of
    `repeats` ways to split the rows into folds; the others only say what they would advise. Labels
    may be names where `classes` has them in the order of the columns.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.integers(3, size=600)
    >>> logits = 6 * rng.normal(size=(600, 3)) + 9 * np.eye(3)[labels]
    >>> compare_calibrators(logits, labels, names=["temperature", "vector"], resamples=100).use
    'temperature'
    """
    known_names(names)
    numbers, codes = fit_inputs(logits, labels, inputs, classes)
    values, y = numbers.numpy(), codes.numpy()
    features = None if z is None else checked_features(z, len(y))
    if len(y) < 4:
        raise ValueError(f"{len(y)} rows are too few for two folds; at least 4 are needed")
    folds = check_count(folds, "folds", least=2)
    if folds > len(y) // 2:
        few = f"{len(y)} rows are too few for {folds} folds"
        raise ValueError(f"{few}; say folds={len(y) // 2}, or pass more rows")
    repeats = check_count(repeats, "repeats", least=1)
    left_out = {} if names is not None else too_long(len(y), values.shape[1], folds, seconds)
    taking_part = [name for name in names or FAMILY if name not in left_out]
    seed = check_count(seed, "seed", least=0)
    settings = Settings(folds, check_bins(bins), resamples, seed)
    untouched = shares(numbers, inputs).numpy()
    choices = []
    for repeat in range(repeats):
        found = predictors(values, y, inputs, taking_part, features, seed + repeat)
        fold = fold_of(y, folds, seed + repeat)
        choices.append(compared(untouched, y, found, fold, settings, left_out))
    return with_a_word(with_votes(choices), repeated(values, y), len(y))


@dataclass(frozen=True)
class Settings:
    """What every split is measured by."""

    folds: int
    bins: int
    resamples: int
    seed: int


def known_names(names: Sequence[str] | None) -> None:
    """ValueError for no names, and for one that FAMILY does not have."""
    if names is None:
        return
    unknown = [name for name in names if name not in FAMILY]
    if unknown or not names:
        found = f"no calibrator {unknown[0]!r}" if unknown else "no calibrator is named"
        raise ValueError(f"{found}; the calibrators are {', '.join(FAMILY)}")


def compared(
    untouched: np.ndarray,
    y: np.ndarray,
    found: Mapping[str, Predict],
    fold: np.ndarray,
    settings: Settings,
    left_out: Mapping[str, str],
) -> Choice:
    """All calibrators with one way to split the rows."""
    failed = dict(left_out)
    bins, resamples, seed = settings.bins, settings.resamples, settings.seed
    measure = partial(summary, labels=y, bins=bins, interval=True, resamples=resamples, seed=seed)
    measured = {UNTOUCHED: measure(untouched)}
    rows = {UNTOUCHED: RowNumbers.of(untouched, y)}
    for name, predict in found.items():
        try:
            probs = cross_fitted(predict, fold, untouched.shape)
        except ValueError as error:
            failed[name] = str(error)
            continue
        measured[name] = measure(probs)
        rows[name] = RowNumbers.of(probs, y)
    best = min(measured, key=lambda name: score(measured[name]))
    # with fewer draws no difference of ECE could be as rare as `chosen` asks for
    draws = max(resamples, DRAWS * len(rows))
    test = partial(compare_rows, bins=bins, resamples=draws, seed=seed)
    candidates = []
    for name, here in rows.items():
        from_best = test(rows[best], here)
        from_temperature: dict[str, Difference] = {}
        if best == "temperature":
            from_temperature = from_best
        elif "temperature" in rows:
            from_temperature = test(rows["temperature"], here)
        candidates.append(Candidate(name, measured[name], from_best, from_temperature))
    return chosen(tuple(candidates), failed, best)


def repeated(values: np.ndarray, y: np.ndarray) -> int:
    """How many rows have the numbers and the label of an earlier one."""
    pairs = zip(values, y.tolist(), strict=True)
    return len(y) - len({hash((row.tobytes(), label)) for row, label in pairs})


def with_a_word(choice: Choice, again: int, rows: int) -> Choice:
    """Copies of a row may be in several folds: then each is measured by a map that has seen it."""
    if again < COPIES * rows:
        return choice
    seen = f" {again:,} of {rows:,} rows have the numbers and the label of another"
    remedy = "where they are copies, remove them, for a calibrator has seen what it is measured on"
    return replace(choice, advice=f"{choice.advice}{seen}: {remedy}.")


def checked_features(z: Array, rows: int) -> np.ndarray:
    found = as_tensor(z, "z").cpu().numpy()
    if found.ndim != 2 or len(found) != rows:
        problem = f"z has shape {found.shape}"
        raise ValueError(f"{problem}; expected the features of the same {rows} rows")
    finite = np.isfinite(found).all(1)
    if not finite.all():
        raise ValueError(f"z row {finite.argmin()} is not finite; remove such rows")
    return found


def fold_of(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The number of each row's fold: every class is spread over all folds evenly."""
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    found = np.empty(len(labels), np.int64)
    found[order] = np.arange(len(labels)) % folds
    return found


def predictors(
    values: np.ndarray,
    y: np.ndarray,
    inputs: Inputs,
    names: Sequence[str],
    z: np.ndarray | None,
    seed: int,
) -> dict[str, Predict]:
    """The simplest first, as FAMILY has them."""
    found: dict[str, Predict] = {}
    for name in FAMILY:
        if name in names:
            found[name] = partial(by_family, name, values, y, inputs)
    if z is not None:
        found[FEATURES] = partial(by_features, z, y, values.shape[1], seed)
    return found


def by_family(
    name: str,
    values: np.ndarray,
    y: np.ndarray,
    inputs: Inputs,
    old: np.ndarray,
    new: np.ndarray,
) -> np.ndarray:
    made = FAMILY[name](inputs=inputs).fit(values[old], y[old])
    probs: np.ndarray = made.predict_proba(values[new])
    return probs


def by_features(
    z: np.ndarray, y: np.ndarray, classes: int, seed: int, old: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """A classifier of its own on the features; a class that it has not seen gets nothing."""
    made = MaCCalClassifier(random_state=seed).fit(z[old], y[old])
    probs = np.zeros((len(new), classes))
    probs[:, made.classes_] = made.predict_proba(z[new])
    return probs


def cross_fitted(predict: Predict, fold: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Each row's probabilities, from a calibrator that was fitted on the other folds."""
    found = np.empty(shape)
    for number in range(fold.max() + 1):
        new = np.flatnonzero(fold == number)
        found[new] = predict(np.flatnonzero(fold != number), new)
    return found
