"""Claims about a setting that is swept: mixup's alpha, and the gamma of the feedback.

cured, steady_in_alpha, mit_helps, beyond_mit     over mixup's alpha
better_at_every_gamma, steady_in_gamma            over gamma, without held-out labels
"""

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean

from maccal.bench.contrasts import Contrast, contrast, sampling_error, seed_test
from maccal.bench.judging import (
    Claim,
    Verdict,
    each_shown,
    judged,
    shown,
    unrefuted,
    within,
    worst,
)
from maccal.bench.lines import Book, Line, Setting, shared_seeds
from maccal.bench.standing import OURS
from maccal.bench.titles import points
from maccal.evaluation.row import Row

STEADY = 0.01  # how far ECE may move
FEWEST = 3  # values, below which nothing is said of a range
# between which the grids sweep: a claim about a range holds by sweeps that reach both ends
ALPHA_ENDS, GAMMA_ENDS = (0.2, 5.0), (0.5, 0.99)
NO_ALPHAS = "Fewer than three values of alpha; run `maccal bench mixup`."
NO_GAMMAS = "Fewer than three values of gamma; run `maccal bench gamma`."
FEWER = " Not from end to end, {} to {}: {}."
# of stage II, what the grid of gamma changes beside its head
SWEPT = ("gamma", "statistics")
Values = Mapping[float, Line]


# mixup's alpha


def alphas(book: Book, method: str) -> dict[Setting, dict[float, Line]]:
    """The lines of a method by setting and alpha, where nothing else is changed."""
    found: dict[Setting, dict[float, Line]] = {}
    for line in book.lines:
        if line.method == method and sweeps_alpha(line) and line.values("ece"):
            found.setdefault(line.setting, {})[float(line.ran.settings["alpha"])] = line
    return {setting: dict(sorted(lines.items())) for setting, lines in found.items()}


def sweeps_alpha(line: Line) -> bool:
    """Whether it has an alpha, and nothing else that is not the method's own."""
    others = [word for word in line.made.changed if not word.startswith("alpha=")]
    return "alpha" in line.ran.settings and not others and not line.made.recalibrated


def alpha_pairs(book: Book, first: str, second: str) -> Iterator[tuple[str, Line, Line]]:
    """Two methods with the same alpha, in settings where alpha is swept; each with its name.

    Of several settings the name says which.
    """
    common = swept_by_both(book, first, second)
    ours, theirs = alphas(book, first), alphas(book, second)
    for setting, values in common.items():
        place = f" on {where_swept(setting)}" if len(common) > 1 else ""
        for alpha in values:
            yield f"{alpha:g}{place}", ours[setting][alpha], theirs[setting][alpha]


def swept_by_both(book: Book, first: str, second: str) -> dict[Setting, list[float]]:
    """The alphas that two methods have in common, where that is more than one."""
    theirs = alphas(book, second)
    found = {}
    for setting, lines in alphas(book, first).items():
        common = [alpha for alpha in lines if alpha in theirs.get(setting, {})]
        if len(common) > 1:
            found[setting] = common
    return found


def where_swept(setting: Setting) -> str:
    return f"{setting.title}, {setting.model}"


def partial(sweeps: Mapping[str, Iterable[float]], ends: tuple[float, float]) -> str:
    """Which sweeps do not reach from end to end, in words; nothing where all do."""
    short = []
    for name, values in sweeps.items():
        own = list(values)
        if min(own) > ends[0] or max(own) < ends[1]:
            short.append(name)
    return FEWER.format(f"{ends[0]:g}", f"{ends[1]:g}", "; ".join(short)) if short else ""


def partial_alphas(book: Book, first: str, second: str) -> str:
    common = swept_by_both(book, first, second)
    named = {where_swept(setting): values for setting, values in common.items()}
    return partial(named, ALPHA_ENDS)


def shortfall(row: Row) -> float:
    """Accuracy less confidence: above 0 the network is not sure enough."""
    return row.number("accuracy") - row.number("confidence")


def cured(book: Book) -> Claim:
    words = (
        "Where mixup makes a network underconfident, MaC-Cal brings confidence nearer to accuracy."
    )
    found: dict[str, Contrast | None] = {}
    parts = []
    for alpha, ours, alone in alpha_pairs(book, "mixup+maccal", "mixup"):
        seeds = shared_seeds([ours, alone], "confidence")
        before = [shortfall(alone.runs[seed]) for seed in seeds]
        after = [shortfall(ours.runs[seed]) for seed in seeds]
        if seeds and fmean(before) > 0:
            rows = [line.runs[seeds[0]] for line in (ours, alone)]
            changes = [abs(new) - abs(old) for new, old in zip(after, before, strict=True)]
            found[alpha] = seed_test(changes, sampling_error(rows, "accuracy"))
            said = [points(-fmean(values), sign=True) for values in (before, after)]
            parts.append(f"{alpha}: {said[0]} alone, {said[1]} with MaC-Cal")
    if not found:
        missing = "No runs in which mixup is underconfident; run `maccal bench mixup`."
        return Claim(words, "not judged", missing)
    short = partial_alphas(book, "mixup+maccal", "mixup")
    evidence = (
        f"Confidence less accuracy, in points, at alpha {'; '.join(parts)}. "
        f"Change of the distance: {each_shown(found)}.{short}"
    )
    return Claim(words, unrefuted(judged(found, 1), short), evidence)


def steady_in_alpha(book: Book) -> Claim:
    words = (
        f"On mixup, MaC-Cal is steady over alpha: ECE moves by at most {100 * STEADY:.0f} point."
    )
    sweeps = {}
    for setting, lines in alphas(book, "mixup+maccal").items():
        if len(lines) >= FEWEST:
            sweeps[where_swept(setting)] = lines
    return steady(sweeps, "alpha", words, NO_ALPHAS, ALPHA_ENDS)


def mit_helps(book: Book) -> Claim:
    words = "MIT lowers mixup's ECE at every alpha."
    return at_every_alpha(book, "mit", "mixup", words)


def beyond_mit(book: Book) -> Claim:
    words = "MaC-Cal on mixup has a lower ECE than MIT at every alpha."
    return at_every_alpha(book, "mixup+maccal", "mit", words)


def at_every_alpha(book: Book, first: str, second: str, words: str) -> Claim:
    found = {}
    for alpha, one, other in alpha_pairs(book, first, second):
        found[alpha] = contrast([one], [other])
    if len(found) < FEWEST:
        return Claim(words, "not judged", NO_ALPHAS)
    short = partial_alphas(book, first, second)
    evidence = f"Change of ECE at alpha {each_shown(found)}.{short}"
    return Claim(words, unrefuted(judged(found, FEWEST), short), evidence)


# gamma


def gammas(book: Book) -> dict[str, dict[float, Line]]:
    """The sweeps of gamma, by data set, network and what else is changed in stage II.

    Feedback is from the training rows, where alone gamma matters.
    """
    found: dict[str, dict[float, Line]] = {}
    for line in book.lines:
        if line.method == OURS and line.ran.feedback == "training" and line.values("ece"):
            gamma = (line.ran.calibration or {}).get("gamma")
            if gamma is not None:
                found.setdefault(sweep_of(line), {})[gamma] = line
    return {name: dict(sorted(lines.items())) for name, lines in found.items()}


def sweep_of(line: Line) -> str:
    """What all values of gamma of a sweep have in common, in words."""
    kept = [word.replace("_", " ") for word in other_changes(line)]
    return ", ".join([line.setting.title, line.setting.model, *kept])


def other_changes(line: Line) -> list[str]:
    """Of stage II, beside what every value of gamma changes."""
    kept = []
    for word in line.made.recalibrated:
        if word.partition("=")[0] not in SWEPT and word != line.ran.feedback:
            kept.append(word)
    return kept


def better_at_every_gamma(book: Book) -> Claim:
    words = "Without held-out labels, MaC-Cal lowers vanilla's ECE over a wide range of gamma."
    found: dict[str, Contrast | None] = {}
    parts = []
    sweeps = wide(gammas(book))
    for sweep, lines in sweeps.items():
        own = {}
        for gamma, line in lines.items():
            other = book.get(line.setting, "vanilla")
            if other is not None:
                own[f"{gamma:g}"] = contrast([line], [other])
        found |= {f"{sweep} {gamma}": one for gamma, one in own.items()}
        if own:
            parts.append(f"{sweep}: change of ECE at gamma {each_shown(own)}.")
    if len(found) < FEWEST:
        return Claim(words, "not judged", NO_GAMMAS)
    short = partial(sweeps, GAMMA_ENDS)
    return Claim(words, unrefuted(judged(found, FEWEST), short), " ".join(parts) + short)


def steady_in_gamma(book: Book) -> Claim:
    words = f"MaC-Cal is hardly sensitive to gamma: ECE moves by at most {100 * STEADY:.0f} point."
    return steady(wide(gammas(book)), "gamma", words, NO_GAMMAS, GAMMA_ENDS)


def wide(sweeps: Mapping[str, Values]) -> dict[str, Values]:
    """Those over three values or more."""
    return {name: lines for name, lines in sweeps.items() if len(lines) >= FEWEST}


def steady(
    sweeps: Mapping[str, Values],
    what: str,
    words: str,
    missing: str,
    ends: tuple[float, float],
) -> Claim:
    """Whether the highest ECE of every sweep is at most STEADY above its lowest."""
    if not sweeps:
        return Claim(words, "not judged", missing)
    verdicts: list[Verdict] = []
    parts = []
    for sweep, lines in sweeps.items():
        eces = {value: line.mean("ece") for value, line in lines.items()}
        low = min(eces, key=eces.__getitem__)
        high = max(reversed(eces), key=eces.__getitem__)
        found = contrast([lines[high]], [lines[low]])
        verdicts.append(within(found.low, found.high, STEADY) if found else "not judged")
        parts.append(
            f"{sweep}, {len(lines)} values: lowest {points(eces[low])} % at {what} {low:g}, "
            f"highest {points(eces[high])} % at {what} {high:g} ({shown(found)})."
        )
    short = partial(sweeps, ends)
    return Claim(words, unrefuted(worst(verdicts), short), " ".join(parts) + short)
