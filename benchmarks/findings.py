"""docs/findings.md: what came out of the benchmark, scale by scale, from its rows alone.

    findings()     the page; site_pages.py writes it

No number is typed: a row that is added changes the page, and `site_pages.py --check` notices.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from markdown_table import table

from maccal.bench.claims import AUROC, FPR95, MEAN, POOLED, claims
from maccal.bench.grids import Rows, jobs, plan
from maccal.bench.judging import ORDER
from maccal.bench.lines import Book, Line, Setting, average
from maccal.bench.scales import SCALES
from maccal.bench.standing import OURS, Standing, lines_of, standing
from maccal.bench.titles import PRINTED, VARIANTS, counted, points, title
from maccal.cli.bench import read

RESULTS = Path(__file__).parents[1] / "results"
RAN = ("full", "cpu")  # those with rows, the one that counts first
SEEDS = (1, 2, 3)
# beside the sixteen: what has no rank, or another reading of one that has
UNRANKED = (
    "temperature",
    PRINTED,
    "maccal,start=fresh",
    "maccal,mixed",
    "maccal,views",
    *(name for name in VARIANTS.values() if name != PRINTED),
)
# what a scale is, in a line
ABOUT = {
    "full": "All 45,000 training images with crops and flips, 16 epochs of a small network.",
    "cpu": "10,000 and 20,000 images that the network learns by heart, without augmentation.",
}


def findings() -> str:
    """The page."""
    parts = [TOP]
    for scale in RAN:
        rows = read(RESULTS / f"bench-{scale}.jsonl")
        if rows:
            book = Book.of(rows.values())
            parts += [heading(scale, rows), *leaders(book), *networks(book), *judged(book)]
    return "\n\n".join(parts) + "\n"


TOP = """# What came out

*Made by `benchmarks/site_pages.py` from the rows in [results](../results); what was run, and how, \
is in [the benchmark](benchmark.md).* An interval is of 95 in 100: over the seeds where there are \
several, else over test images alone."""


def heading(scale: str, rows: Rows) -> str:
    found = plan(jobs("all", scale, SEEDS), RESULTS, rows)
    done = f"{found.count('done')} of {len(found.states)} runs are done"
    missing = "" if found.count("done") == len(found.states) else "; what is missing is not judged"
    return f"## Scale `{scale}`\n\n{ABOUT[scale]} {done}{missing}."


def leaders(book: Book) -> list[str]:
    """The methods by mean ECE, where they are compared; then each other setting by itself."""
    stands = standing(book)
    if not stands.eces:
        return []
    where = " and ".join(setting.title for setting in stands.settings)
    printed = f"The paper has {points(stands.paper_ece or math.nan)} % and {stands.paper_rank:.2f}."
    said = f"Means over {where}. {counted(len(stands.eces), 'method')} measured on all. {printed}"
    missing = [title(name) for name in stands.absent]
    if missing:
        said += f" Not measured on all, and so without a rank: {', '.join(missing)}."
    parts = ["### The methods", said, ranking(book, stands)]
    for setting in stands.apart:
        if setting.data not in {own.data for own in stands.settings}:
            parts += [f"### {setting.title}", alone(book, setting)]
    return parts


def ranking(book: Book, stands: Standing) -> str:
    head = ("", "seeds", "accuracy", "ECE", "interval", "rank", "interval", *MORE)
    names = sorted(stands.eces, key=lambda name: stands.eces[name])
    lines = []
    for name in names:
        own = lines_of(book, name, stands.settings, "ece")
        ends = stands.ece_intervals.get(name, (math.nan, math.nan))
        places = stands.rank_intervals.get(name)
        placed = f"{places[0]:.1f} to {places[1]:.1f}" if places else "–"
        lines.append(
            [
                bold(own[0]),
                str(stands.seeds[name]),
                *numbers(own, ("accuracy", "ece")),
                f"{points(ends[0])} to {points(ends[1])}",
                f"{stands.ranks[name]:.1f}",
                placed,
                *numbers(own, MORE.values()),
            ]
        )
    for name in UNRANKED:
        own = lines_of(book, name, stands.settings, "ece")
        if len(own) == len(stands.settings):
            seeds = str(min(len(line.values("ece")) for line in own))
            first = [f"*{words(own[0])}*", seeds, *numbers(own, ("accuracy", "ece"))]
            lines.append([*first, "", "", "", *numbers(own, MORE.values())])
    return table(head, lines)


# columns of the ranking beside accuracy and ECE, and the numbers of a row
MORE = {
    "AECE": "aece",
    "NLL": "nll",
    "AUROC": AUROC,
    "FPR95": FPR95,
    "corrupted, pooled": POOLED,
    "corrupted, mean": MEAN,
}


def alone(book: Book, setting: Setting) -> str:
    """One setting by itself, sorted by ECE."""
    lines = [line for line in book.lines if line.setting == setting and line.is_plain]
    lines.sort(key=lambda line: line.mean("ece"))
    found = []
    for line in lines:
        scores = numbers([line], ("accuracy", "ece"))
        found.append([bold(line), *scores, span(line, "ece"), *numbers([line], ("nll",))])
    return table(("", "accuracy", "ECE", "interval", "NLL"), found)


def networks(book: Book) -> list[str]:
    """The paper's own networks: how far they came, and what calibration did."""
    tried = [setting for setting in book.settings if setting.model in SCALES["full"].trials]
    found = []
    for setting in tried:
        for name in ("vanilla", "temperature", OURS, PRINTED):
            for line in lines_of(book, name, [setting], "ece"):
                epochs = line.ran.recipe["epochs"]
                scores = numbers([line], ("accuracy", "ece"))
                band = span(line, "ece_null")
                found.append([setting.model, words(line), str(epochs), *scores, band])
    if not found:
        return []
    head = ("", "", "epochs", "accuracy", "ECE", "a calibrated model")
    return ["### The paper's networks, as far as about an hour took them", table(head, found)]


def judged(book: Book) -> list[str]:
    """Every claim, those that hold first."""
    found = claims(book)
    lines = []
    for verdict in reversed(ORDER):
        lines += [[verdict, one.words, one.evidence] for one in found if one.verdict == verdict]
    counts = []
    for verdict in reversed(ORDER):
        counts.append(f"{verdict}: {sum(one.verdict == verdict for one in found)}")
    said = f"{counted(len(found), 'claim')}; {', '.join(counts)}."
    return ["### The paper's claims", said, table(("", "claim", "evidence"), lines, right=False)]


def numbers(lines: Sequence[Line], keys: Iterable[str]) -> list[str]:
    """Means over lines; NLL as it is, all else in per cent."""
    found = []
    for key in keys:
        value = average(lines, key)
        shown = f"{value:.3f}" if key == "nll" else points(value)
        found.append(shown if math.isfinite(value) else "–")
    return found


def span(line: Line, key: str) -> str:
    """From where to where a number of this line may be."""
    return f"{points(line.mean(f'{key}_low'))} to {points(line.mean(f'{key}_high'))}"


def words(line: Line) -> str:
    """Its title on one line."""
    return line.made.title.replace("\n", ", ").replace("Ours", "MaC-Cal")


def bold(line: Line) -> str:
    return f"**{words(line)}**" if line.variant == OURS else words(line)
