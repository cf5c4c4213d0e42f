"""The paper's five tables in its layout, filled with our rows: ours large, the paper's number small
beside it.

Columns are those of the paper and, before them, our own networks where they are others; beside
those stands the mean of the paper's networks on that data set. A cell without a run is a dash, and
what the paper gets wrong is marked with a note."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

from maccal.bench import paper
from maccal.bench.claims import ablated
from maccal.bench.lines import Book, Line, Row, Setting, points, titled
from maccal.bench.paper import TITLES, YARDSTICKS

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
LABELS = {
    "ece": "ECE",
    "aece": "AECE",
    "mce": "MCE",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "fpr95": "FPR95",
}
UP = ("accuracy", "auroc")  # better when larger
ERRATA = {erratum["id"]: erratum for erratum in paper.errata()}


@dataclass(frozen=True)
class Entry:
    """A cell.

    Our number and its spread over seeds as text, the paper's as printed, and the erratum about it.
    """

    value: float = math.nan
    text: str = "–"
    spread: str = ""
    paper: str = ""
    erratum: str = ""
    best: bool = False


@dataclass(frozen=True)
class Column:
    """A column below its group; `better` is +1 or -1 where the best cell is to be marked."""

    group: str
    label: str
    better: int = 0


@dataclass(frozen=True)
class Sheet:
    """A table; `general` are notes about all of it, `notes` those that cells refer to, by erratum."""

    name: str
    title: str
    about: str
    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[Entry]]]
    notes: Mapping[str, str]
    general: Sequence[str]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The labels above the columns and how many each spans."""
        spans: dict[str, int] = {}
        for column in self.columns:
            spans[column.group] = spans.get(column.group, 0) + 1
        return list(spans.items())


def sheet(
    name: str,
    title: str,
    about: str,
    columns: Sequence[Column],
    rows: Sequence[tuple[str, list[Entry]]],
) -> Sheet:
    """With the best of each column marked, and the notes on the paper's numbers."""
    cells = {entry.erratum for _, entries in rows for entry in entries if entry.erratum}
    notes = {
        key: f"{ERRATA[key]['where']}: {ERRATA[key]['problem']}." for key in ERRATA if key in cells
    }
    whole = {row.get("erratum") for row in paper.table(name)} - {None} - cells
    general = [
        f"{ERRATA[key]['where']}: {ERRATA[key]['problem']}." for key in ERRATA if key in whole
    ]
    return Sheet(name, title, about, columns, marked(columns, rows), notes, general)


def marked(
    columns: Sequence[Column], rows: Sequence[tuple[str, list[Entry]]]
) -> list[tuple[str, list[Entry]]]:
    best: list[float | None] = []
    for place, column in enumerate(columns):
        values = [v for _, entries in rows if math.isfinite(v := entries[place].value)]
        if not column.better or len(values) < 2:
            best.append(None)
        else:
            best.append(max(values) if column.better > 0 else min(values))
    return [
        (
            label,
            [
                replace(e, best=top is not None and e.value == top)
                for e, top in zip(entries, best, strict=True)
            ],
        )
        for label, entries in rows
    ]


def tables(rows: Sequence[Row]) -> list[Sheet]:
    """Tables 1 to 5."""
    book = Book.of(rows)
    return [table1(book), ood(book), combine(book), cost(book), ablation(book)]


def percent(
    lines: Sequence[Line | None],
    key: str,
    printed: Mapping[str, Any] | None = None,
    theirs: str = "",
) -> Entry:
    """The mean of the lines there are, beside a number of the paper's row.

    The spread only of a line by itself.
    """
    there = [line for line in lines if line and line.values(key)]
    value = fmean(line.mean(key) for line in there) if there else math.nan
    spread = points(there[0].spread(key)) if len(there) == 1 else ""
    number = (printed or {}).get(theirs or key)
    wrong = (printed or {}).get("erratum", "")
    return Entry(
        value,
        points(value),
        "" if spread in ("", "–") else f"± {spread}",
        "" if number is None else f"{'≈ ' if printed and printed.get('mean') else ''}{number:.2f}",
        wrong if wrong and ERRATA[wrong]["printed"] == number else "",
    )


def word(setting: Setting) -> str:
    """The data set as the header names it.

    >>> word(Setting("cifar10", 10_000, "resnet8")), word(Setting("digits", 0, "resnet8"))
    ('CIFAR-10, 10,000 images', 'digits')
    """
    name = DATA.get(setting.data, setting.data)
    return f"{name}, {setting.limit:,} images" if setting.limit else name


def networks(book: Book, name: str, methods: Sequence[str]) -> list[Setting]:
    """The columns of a table by network.

    Data sets in the paper's order, our own networks before the paper's.
    """
    ours = [s for s in book.settings if any(book.get(s, method) for method in methods)]
    theirs = dict.fromkeys(Setting(row["data"], 0, row["model"]) for row in paper.table(name))
    order = {data: place for place, data in enumerate(DATA)}
    every = [*[s for s in ours if s not in theirs], *theirs]
    return sorted(every, key=lambda s: (order.get(s.data, len(order)), s.data, -s.limit))


def places(book: Book, methods: Sequence[str], sets: Sequence[str]) -> dict[Setting, list[Setting]]:
    """Our settings by data set and limit (network ""), for tables that average over networks.

    None is an empty list.
    """
    found: dict[Setting, list[Setting]] = {}
    for data in sets:
        ours = [
            s
            for s in book.settings
            if s.data == data and any(book.get(s, method) for method in methods)
        ]
        for setting in ours or [Setting(data, 0, "")]:
            found.setdefault(setting._replace(model=""), []).extend(ours and [setting])
    return found


def printed_ece(method: str, setting: Setting) -> dict[str, Any] | None:
    """The paper's ECE of a method on that network.

    Of one it does not have, `mean` over its networks on that data set.
    """
    table = [
        row
        for row in paper.table("table1")
        if row["method"] == method and row["data"] == setting.data
    ]
    exact = [row for row in table if row["model"] == setting.model]
    return (
        {"ece": fmean(row["ece"] for row in exact or table), "mean": not exact} if table else None
    )


def with_yardsticks(book: Book, methods: Sequence[str]) -> list[str]:
    """And, below the paper's methods, the yardsticks that were measured."""
    return [
        *methods,
        *(name for name in YARDSTICKS if any(book.get(s, name) for s in book.settings)),
    ]


def table1(book: Book) -> Sheet:
    settings = networks(book, "table1", list(TITLES))
    columns = [Column(word(s), s.model, -1) for s in settings]
    rows = [
        (titled(m), [percent([book.get(s, m)], "ece", printed_ece(m, s)) for s in settings])
        for m in with_yardsticks(book, list(TITLES))
    ]
    about = "ECE in per cent. Beside a network that the paper does not have stands (≈) the mean of its networks on that data set."
    return sheet("table1", "Table 1: ECE", about, columns, rows)


def ood(book: Book) -> Sheet:
    methods = list(dict.fromkeys(row["method"] for row in paper.table("ood")))
    where = places(book, methods, ("cifar10", "cifar100"))
    columns = [
        Column(word(place), LABELS[key], 1 if key in UP else -1)
        for place in where
        for key in ("auroc", "fpr95")
    ]
    rows = [
        (
            titled(m),
            [
                percent(
                    [book.get(s, m) for s in settings],
                    f"ood.mean.{key}",
                    paper.published("ood", method=m, data=place.data),
                    key,
                )
                for place, settings in where.items()
                for key in ("auroc", "fpr95")
            ],
        )
        for m in with_yardsticks(book, methods)
    ]
    about = "Telling images from elsewhere, in per cent: the mean over SVHN and the other CIFAR. The paper does not name its networks."
    return sheet("ood", "Table 2: images from elsewhere", about, columns, rows)


def combine(book: Book) -> Sheet:
    methods = list(dict.fromkeys(row["method"] for row in paper.table("combine")))
    where = places(book, methods, tuple(DATA))
    kinds = [(key, end) for key in ("accuracy", "ece") for end in ("", "+maccal")]
    columns = [
        Column(word(place), f"{LABELS[key]}{' + MaC-Cal' if end else ''}")
        for place in where
        for key, end in kinds
    ]
    rows = [
        (
            titled(m),
            [
                percent(
                    [book.get(s, m + end) for s in settings],
                    key,
                    paper.published("combine", method=m, data=place.data),
                    key + "_ours" * bool(end),
                )
                for place, settings in where.items()
                for key, end in kinds
            ],
        )
        for m in methods
    ]
    about = (
        "In per cent, a method alone and with MaC-Cal; the mean over the networks on each data set."
    )
    return sheet("combine", "Table 3: with other methods", about, columns, rows)


def cost(book: Book) -> Sheet:
    methods = list(dict.fromkeys(row["method"] for row in paper.table("cost")))
    settings = networks(book, "cost", methods)
    rows = [(titled(m), [seconds(book, s, m) for s in settings]) for m in methods]
    about = (
        "Seconds of the whole training, both stages, median over seeds, on a machine that may have had other work; the paper's "
        "on its own."
    )
    return sheet("cost", "Table 4: cost", about, [Column(word(s), s.model) for s in settings], rows)


def seconds(book: Book, setting: Setting, method: str) -> Entry:
    line, printed = (
        book.get(setting, method),
        paper.published("cost", method=method, data=setting.data, model=setting.model),
    )
    values = book.seconds(line).values() if line else ()
    value = median(values) if values else math.nan
    return Entry(
        value,
        f"{value:,.0f}" if values else "–",
        paper=f"{printed['seconds']:,}" if printed else "",
    )


def ablation(book: Book) -> Sheet:
    steps = dict.fromkeys((row["row"], row["component"]) for row in paper.table("ablation"))
    found = {s: [ablated(book, s, step) for step, _ in steps] for s in book.settings}
    ours = [s for s, lines in found.items() if any(lines[1:-1])]
    keys = ("accuracy", "ece", "aece", "mce")
    where = ours + [
        Setting(data, 0, "densenet121")
        for data in ("cifar10", "cifar100")
        if data not in {s.data for s in ours}
    ]
    columns = [
        Column(f"{word(s)}, {s.model}", LABELS[key], 0 if key == "accuracy" else -1)
        for s in where
        for key in keys
    ]
    rows = [
        (
            component if place == 0 else f"+ {component}",
            [
                percent(
                    [found[s][place] if s in found else None],
                    key,
                    paper.published("ablation", row=step, data=s.data),
                )
                for s in where
                for key in keys
            ],
        )
        for place, (step, component) in enumerate(steps)
    ]
    default = [percent([book.get(s, "maccal")], key) for s in where for key in keys]
    if any(math.isfinite(entry.value) for entry in default):
        rows.append(("the default here: all of it, with a linear head", default))
    about = (
        "In per cent; each line adds to the one above, up to the paper's whole method. The first is the network as trained; the "
        "paper's network is DenseNet-121."
    )
    return sheet("ablation", "Table 5: ablation", about, columns, rows)
