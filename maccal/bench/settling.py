"""Whether the sparsity settles: judged by the runs in which Eq. 12 moves it.

sparsity_settles(book)

MaC-Cal from the trained classifier solves for keep after every epoch, and has nothing to settle:
its runs are told beside, and judge nothing. As printed, Eq. 12 moves the retention, which runs to
its limit and stays there.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean

from maccal.bench.contrasts import paired
from maccal.bench.judging import Claim, Verdict, within, worst
from maccal.bench.lines import Book, Line
from maccal.bench.standing import OURS
from maccal.bench.titles import counted, points

SETTLED = 0.02  # of the weights, by which keep may still move in the last quarter of stage II
HEADS = ("a linear head", "a bottleneck")
Path = tuple[float, ...]


def sparsity_settles(book: Book) -> Claim:
    words = (
        "The sparsity settles: in the last quarter of stage II Eq. 12 moves it by at most "
        f"{100 * SETTLED:.0f} % of the weights."
    )
    verdicts: list[Verdict] = []
    parts = []
    for name, paths in moved_by_eq_12(book).items():
        late = [moved(last) for _, last in map(quarters, paths)]
        found = paired(late)
        if found is None:
            continue
        verdicts.append(within(found.low, found.high, SETTLED))
        early = fmean(moved(first) for first, _ in map(quarters, paths))
        parts.append(
            f"With {name}, over {counted(len(paths), 'run')}, by {points(early)} % of the weights "
            f"in the first quarter and by {points(found.difference)} % in the last (95 % interval "
            f"{points(max(0.0, found.low))} to {points(found.high)}, at most {points(max(late))})."
        )
    beside = solved_words(book)
    if not verdicts:
        missing = "Fewer than two runs in which Eq. 12 moves keep; run `maccal bench ablation`."
        return Claim(words, "not judged", " ".join([missing, *beside]))
    return Claim(words, worst(verdicts), " ".join([*parts, *beside]))


def moved_by_eq_12(book: Book) -> dict[str, list[Path]]:
    """The paths of keep by head, where Eq. 12 moves the sparsity with its decaying step.

    By forward masks and with feedback from held-out rows, as in the paper's last row of Table 5.
    """
    found: dict[str, list[Path]] = {name: [] for name in HEADS}
    for line in ours(book):
        chosen = line.ran.calibration or {}
        usual = (chosen.get("adapt"), chosen.get("eta", "decay"), chosen.get("masking", "forward"))
        held_out = line.ran.feedback in (None, "held-out")
        if held_out and usual == ("sparsity", "decay", "forward"):
            found[HEADS[chosen.get("hidden") is not None]] += paths_of(line)
    return {name: paths for name, paths in found.items() if paths}


def solved_words(book: Book) -> list[str]:
    """Of the runs that solve for keep, if there are any."""
    lines = [line for line in ours(book) if (line.ran.calibration or {}).get("adapt") == "solved"]
    paths: list[Path] = []
    for line in lines:
        paths += paths_of(line) if line.is_plain else []
    if not paths:
        return []
    late = fmean(moved(last) for _, last in map(quarters, paths))
    return [
        f"MaC-Cal by itself solves for keep after every epoch ({counted(len(paths), 'run')}, "
        f"{points(late)} % in the last two epochs): that judges nothing."
    ]


def ours(book: Book) -> Iterable[Line]:
    return (line for line in book.lines if line.method == OURS)


def paths_of(line: Line) -> list[Path]:
    return [row.keep for row in line.runs.values() if len(row.keep) > 1]


def quarters(path: Path) -> tuple[Path, Path]:
    """The first and the last quarter, of two epochs at least."""
    count = max(2, len(path) // 4)
    return path[:count], path[-count:]


def moved(path: Sequence[float]) -> float:
    """
    >>> moved((0.5, 0.25, 0.375))
    0.25
    """
    return max(path) - min(path)
