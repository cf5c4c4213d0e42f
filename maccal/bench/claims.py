"""The paper's claims, each judged by rows: by seeds, or the intervals of one seed, and the bands of
calibrated models.

claims(rows)     what the paper says, whether it holds here, and the numbers
"""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, pairwise
from statistics import fmean

from maccal.bench import paper
from maccal.bench.contrasts import Contrast, contrast, paired
from maccal.bench.judging import (
    Claim,
    absent,
    each_shown,
    judged,
    shown,
    tally,
    within,
)
from maccal.bench.lines import Book, Line, Rows, Setting, average, shared_seeds
from maccal.bench.paper import TITLES
from maccal.bench.standing import OURS, measured_everywhere, ranks, temperatures
from maccal.bench.titles import chance, counted, points, title
from maccal.calibration.stage2 import ABLATION, Stage2

COMBINED = tuple(dict.fromkeys(row["method"] for row in paper.table("combine")))
COMBINATIONS = tuple(f"{name}+maccal" for name in COMBINED)
KEPT = 0.01  # accuracy that a calibrated network may lose
STEADY = 0.01  # how far ECE may move with gamma
CHEAP = 0.10  # of stage I, that stage II may cost; in the paper's Table 4 it costs about 5 %
SHIFTED = "shift.overall.ece_pooled_mean"
NO_OTHER = "No runs of MaC-Cal and another method on the same data."


def claims(rows: Rows) -> list[Claim]:
    """Every claim, in the paper's order."""
    book = Book.of(rows)
    return [
        lowest(
            book,
            "ece",
            "MaC-Cal has the lowest ECE of all methods, averaged over data sets and networks.",
        ),
        best_rank(book),
        lowest(book, "aece", "MaC-Cal has the lowest AECE of all methods."),
        lowest(book, "mce", "MaC-Cal has the lowest MCE of all methods."),
        against_vanilla(
            book,
            "ood.mean.auroc",
            "MaC-Cal tells images from elsewhere better than vanilla does (AUROC).",
            +1,
        ),
        against_vanilla(
            book, SHIFTED, "MaC-Cal has a lower ECE than vanilla on corrupted images.", -1
        ),
        lowest(book, SHIFTED, "MaC-Cal has the lowest ECE of all methods on corrupted images."),
        added(book),
        accuracy_kept(book),
        cheap(book),
        steps(book),
        better_at_every_gamma(book),
        steady_in_gamma(book),
    ]


def lowest(book: Book, key: str, words: str) -> Claim:
    there = measured_everywhere(book, key)
    others = {name: lines for name, lines in there.items() if name != OURS}
    if not others:
        return Claim(words, "not measured", NO_OTHER)
    found = {name: contrast(there[OURS], lines, key) for name, lines in others.items()}
    means = {name: average(lines, key) for name, lines in there.items()}
    nearest = min(others, key=lambda name: means[name])
    here = counted(len(there[OURS]), "setting")
    evidence = (
        f"{points(means[OURS])} % over {here}; lowest of {counted(len(others), 'other')}: "
        f"{title(nearest)}, {points(means[nearest])} % ({shown(found[nearest])})."
    )
    evidence += tally(found) + yardstick(book, there[OURS], key) + absent(set(TITLES) - set(there))
    return Claim(words, judged(found, len(TITLES) - 1), evidence)


def yardstick(book: Book, ours: Sequence[Line], key: str) -> str:
    """What a temperature does with the held-out labels that MaC-Cal's feedback sees and the methods
    of stage I do not.
    """
    lines = temperatures(book, ours, key)
    if not lines:
        return ""
    found = shown(contrast(ours, lines, key))
    return (
        " A temperature fitted on the held-out labels that MaC-Cal's feedback sees: "
        f"{points(average(lines, key))} % ({found})."
    )


def best_rank(book: Book) -> Claim:
    """Ranks have no interval of their own: only seeds can tell."""
    words = "MaC-Cal has the best mean rank of all methods by ECE."
    there = measured_everywhere(book, "ece")
    if len(there) < 2:
        return Claim(words, "not measured", NO_OTHER)
    overall = ranks(there, lambda line: line.mean("ece"))
    found = rank_contrasts(there)
    nearest = min(found, key=lambda name: overall[name])
    evidence = (
        f"Mean rank {overall[OURS]:.2f} of {len(there)}; "
        f"best other: {title(nearest)}, {overall[nearest]:.2f}"
    )
    test = found[nearest]
    if test is None:
        evidence += "; one seed, and ranks without seeds have no interval."
    else:
        evidence += f" ({chance(test.p_value)}, {test.how})."
    evidence += absent(set(TITLES) - set(there))
    return Claim(words, judged(found, len(TITLES) - 1), evidence)


def rank_contrasts(there: dict[str, list[Line]]) -> dict[str, Contrast | None]:
    """MaC-Cal's mean rank less each other method's, seed by seed."""
    every = list(chain.from_iterable(there.values()))
    differences: dict[str, list[float]] = {name: [] for name in there if name != OURS}
    for seed in shared_seeds(every, "ece"):
        placed = ranks(there, partial(ece_of, seed))
        for name, found in differences.items():
            found.append(placed[OURS] - placed[name])
    return {name: paired(found) for name, found in differences.items()}


def ece_of(seed: int, line: Line) -> float:
    return line.runs[seed].number("ece")


def both(book: Book, name: str, other: str, key: str) -> tuple[list[Line], list[Line]]:
    """The lines of two methods wherever both are measured."""
    first, second = [], []
    for setting in book.settings:
        one, two = book.get(setting, name), book.get(setting, other)
        if one and two and one.values(key) and two.values(key):
            first.append(one)
            second.append(two)
    return first, second


def against_vanilla(book: Book, key: str, words: str, better: int) -> Claim:
    ours, vanilla = both(book, OURS, "vanilla", key)
    if not ours:
        return Claim(words, "not measured", "No such numbers of both.")
    found = contrast(ours, vanilla, key)
    evidence = (
        f"{points(average(ours, key))} % against {points(average(vanilla, key))} % "
        f"over {counted(len(ours), 'setting')} ({shown(found)})."
    )
    return Claim(words, judged({"vanilla": found}, 1, better), evidence)


def added(book: Book) -> Claim:
    words = "Adding MaC-Cal to any of ten other methods lowers its ECE."
    found = {}
    for name in COMBINED:
        with_ours, alone = both(book, f"{name}+maccal", name, "ece")
        if with_ours:
            found[name] = contrast(with_ours, alone)
    if not found:
        return Claim(words, "not measured", "No runs of a method with and without MaC-Cal.")
    parts = each_shown({title(name): one for name, one in found.items()})
    evidence = f"Change of ECE: {parts}.{tally(found)}{absent(set(COMBINED) - set(found))}"
    return Claim(words, judged(found, len(COMBINED)), evidence)


def accuracy_kept(book: Book) -> Claim:
    """An equivalence: the whole interval must lie above what may be lost."""
    words = f"MaC-Cal keeps accuracy: it loses at most {100 * KEPT:.0f} point."
    ours, vanilla = both(book, OURS, "vanilla", "accuracy")
    found = contrast(ours, vanilla, "accuracy")
    if found is None:
        return Claim(words, "not measured", "No runs of MaC-Cal and of vanilla on the same data.")
    evidence = (
        f"{points(average(ours, 'accuracy'))} % against "
        f"{points(average(vanilla, 'accuracy'))} % ({shown(found)})."
    )
    return Claim(words, within(-found.high, -found.low, KEPT), evidence)


def cheap(book: Book) -> Claim:
    words = f"The second stage costs little: at most {100 * CHEAP:.0f} % of the first."
    shares = stage2_shares(book)
    if not shares:
        return Claim(words, "not measured", "No timed runs of MaC-Cal and its first stage.")
    evidence = (
        f"It took {100 * fmean(shares):.1f} % of the first stage's time "
        f"on average over {counted(len(shares), 'run')}"
    )
    found = paired(shares)
    if found is None:
        return Claim(words, "cannot be told", evidence + "; one run says nothing of others.")
    reach = f", 95 % interval {100 * found.low:.1f} to {100 * found.high:.1f} %."
    return Claim(words, within(found.low, found.high, CHEAP), evidence + reach)


def stage2_shares(book: Book) -> list[float]:
    """The seconds of each run of MaC-Cal over those of its stage I."""
    key = "trained.seconds"
    shares = []
    for ours, vanilla in zip(*both(book, OURS, "vanilla", key), strict=True):
        own, first = ours.values(key), vanilla.values(key)
        for seed in shared_seeds([ours, vanilla], key):
            if first[seed] > 0:
                shares.append(own[seed] / first[seed])
    return shares


def ablated(book: Book, setting: Setting, name: str) -> Line | None:
    """The line of a row of Table 5; the paper's first row is the network as trained."""
    if name == "vanilla":
        return book.get(setting, "vanilla")
    wanted = asdict(Stage2.ablation(name))
    for line in book.lines:
        ran = line.ran
        ours = line.setting == setting and ran.method == OURS
        # a choice that did not exist when the row was made has its default
        said = ran.calibration and {**wanted, **ran.calibration} == wanted
        if ours and ran.feedback in (None, "held-out") and said:
            return line
    return None


def steps(book: Book) -> Claim:
    words = "Every step of the ablation lowers ECE."
    names = list(ABLATION)
    found: dict[str, Contrast | None] = {}
    for before, after in pairwise(names):
        first, second = [], []
        for setting in book.settings:
            one, two = ablated(book, setting, after), ablated(book, setting, before)
            if one and two:
                first.append(one)
                second.append(two)
        if first:
            found[after] = contrast(first, second)
    if not found:
        return Claim(words, "not measured", "No runs of the ablation.")
    evidence = f"Change of ECE with each: {each_shown(found)}."
    return Claim(words, judged(found, len(names) - 1), evidence)


def gammas(book: Book) -> dict[float, Line]:
    """The lines of the gamma figure: feedback from the training rows, where alone gamma matters."""
    found = {}
    for line in book.lines:
        if line.method == OURS and line.ran.feedback == "training" and line.values("ece"):
            gamma = (line.ran.calibration or {}).get("gamma")
            if gamma is not None:
                found[gamma] = line
    return dict(sorted(found.items()))


def better_at_every_gamma(book: Book) -> Claim:
    words = "Without held-out labels, MaC-Cal lowers vanilla's ECE over a wide range of gamma."
    found = {}
    for gamma, line in gammas(book).items():
        other = book.get(line.setting, "vanilla")
        if other is not None:
            found[f"{gamma:g}"] = contrast([line], [other])
    if len(found) < 3:
        return Claim(words, "not measured", "Fewer than three values of gamma.")
    return Claim(words, judged(found, 3), f"Change of ECE at gamma {each_shown(found)}.")


def steady_in_gamma(book: Book) -> Claim:
    words = f"MaC-Cal is hardly sensitive to gamma: ECE moves by at most {100 * STEADY:.0f} point."
    lines = gammas(book)
    if len(lines) < 3:
        return Claim(words, "not measured", "Fewer than three values of gamma.")
    eces = {gamma: line.mean("ece") for gamma, line in lines.items()}
    low = min(eces, key=eces.__getitem__)
    high = max(reversed(eces), key=eces.__getitem__)
    found = contrast([lines[high]], [lines[low]])
    evidence = (
        f"{len(lines)} values: lowest {points(eces[low])} % at gamma {low:g}, "
        f"highest {points(eces[high])} % at gamma {high:g} ({shown(found)})."
    )
    return Claim(
        words, within(found.low, found.high, STEADY) if found else "not measured", evidence
    )
