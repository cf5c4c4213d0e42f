"""Claims about time: what stage II costs, and what the methods of Table 4 cost beside vanilla.

Seconds are of a machine that may have had other work, so that ratios within one seed are compared:
stage II's over its own stage I's, and a whole training's over vanilla's.
"""

from statistics import fmean

from maccal.bench import paper
from maccal.bench.comparing import both
from maccal.bench.contrasts import paired
from maccal.bench.judging import Claim, Verdict, within, worst
from maccal.bench.lines import Book, Line, shared_seeds
from maccal.bench.standing import OURS, compared
from maccal.bench.titles import counted, title

CHEAP = 0.10  # of stage I, that stage II may cost; in the paper's Table 4 it costs about 5 %
NEAR = 0.01  # of vanilla's time, by which the cheapest may be cheaper still
SECONDS = "trained.seconds"
NO_TIMES = "run `maccal bench cost`."


def cheap(book: Book) -> Claim:
    words = f"The second stage costs little: at most {100 * CHEAP:.0f} % of the first."
    shares = stage2_shares(book)
    if not shares:
        return Claim(words, "not judged", f"No timed runs of MaC-Cal and its stage I; {NO_TIMES}")
    evidence = (
        f"It took {100 * fmean(shares):.1f} % of the first stage's time "
        f"on average over {counted(len(shares), 'run')}"
    )
    theirs = 100 * (printed_ratio(OURS) - 1)
    evidence += f" (in the paper's Table 4 {theirs:.1f} %)"
    found = paired(shares)
    if found is None:
        return Claim(words, "cannot be told", evidence + "; one run says nothing of others.")
    reach = f", 95 % interval {100 * max(0.0, found.low):.1f} to {100 * found.high:.1f} %."
    return Claim(words, within(found.low, found.high, CHEAP), evidence + reach)


def stage2_shares(book: Book) -> list[float]:
    """The seconds of each run of MaC-Cal over those of its stage I."""
    shares = []
    pairs = both(book, OURS, "vanilla", SECONDS, compared(book, SECONDS))
    for ours, vanilla in zip(*pairs, strict=True):
        own, first = ours.values(SECONDS), vanilla.values(SECONDS)
        for seed in shared_seeds([ours, vanilla], SECONDS):
            if first[seed] > 0:
                shares.append(own[seed] / first[seed])
    return shares


def timed() -> list[str]:
    """The methods of Table 4 beside vanilla and MaC-Cal."""
    names = dict.fromkeys(row["method"] for row in paper.table("cost"))
    return [name for name in names if name not in ("vanilla", OURS)]


def printed_ratio(method: str) -> float:
    """The paper's seconds of a method over vanilla's, mean over its data sets and networks.

    >>> round(printed_ratio("mit"), 2), round(printed_ratio("maccal"), 2)
    (1.85, 1.05)
    """
    seconds = {}
    for row in paper.table("cost"):
        seconds[row["method"], row["data"], row["model"]] = row["seconds"]
    ratios = []
    for name, data, model in seconds:
        if name == method:
            ratios.append(seconds[name, data, model] / seconds["vanilla", data, model])
    return fmean(ratios)


def cheapest(book: Book) -> Claim:
    words = "MaC-Cal trains as fast as the fastest of MIT, TST, V-TST and BalCAL, or nearly."
    verdicts: list[Verdict] = []
    parts = []
    missing = []
    for name in timed():
        ours, theirs = ratios(book, name)
        if not ours:
            missing.append(title(name))
            continue
        parts.append(f"{title(name)} {fmean(theirs):.2f} ({printed_ratio(name):.2f})")
        slower = [own - other for own, other in zip(ours, theirs, strict=True)]
        found = paired(slower)
        known = within(found.low, found.high, NEAR) if found else "cannot be told"
        verdicts.append(known)
    if not verdicts:
        return Claim(words, "not judged", f"No timed runs of both; {NO_TIMES}")
    if missing:
        verdicts.append("not judged")
    own = f"MaC-Cal {fmean(stage2_shares(book)) + 1:.2f} ({printed_ratio(OURS):.2f})"
    evidence = f"Whole training over vanilla's, the paper's in brackets: {own}, {', '.join(parts)}."
    if missing:
        evidence += f" Not timed: {', '.join(missing)}."
    return Claim(words, worst(verdicts), evidence)


def ratios(book: Book, other: str) -> tuple[list[float], list[float]]:
    """The whole training's time over vanilla's, of MaC-Cal and of another method, run by run."""
    ours, theirs = [], []
    for own, its in zip(*both(book, OURS, other, SECONDS, compared(book, SECONDS)), strict=True):
        first = book.get(own.setting, "vanilla")
        if first is None:
            continue
        mine, others = whole_ratios(book, own, first), whole_ratios(book, its, first)
        for seed in sorted(mine.keys() & others.keys()):
            ours.append(mine[seed])
            theirs.append(others[seed])
    return ours, theirs


def whole_ratios(book: Book, line: Line, vanilla: Line) -> dict[int, float]:
    first = vanilla.values(SECONDS)
    found = {}
    for seed, seconds in book.seconds(line).items():
        if first.get(seed, 0) > 0:
            found[seed] = seconds / first[seed]
    return found
