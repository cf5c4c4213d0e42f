"""The paper's five tables in its layout, and its Fig. 5 as a table, filled with our rows: ours
large, the paper's number small beside it.

Columns are those of the paper and, before them, our own networks where they are others; beside
those stands the mean of the paper's networks on that data set. A cell without a run is a dash, and
what the paper gets wrong is marked with a note.
"""

import math
from collections.abc import Sequence
from itertools import product
from statistics import fmean, median
from typing import Any

from maccal.bench import paper
from maccal.bench.ablations import READINGS, ablated
from maccal.bench.lines import Book, Line, Rows, Setting
from maccal.bench.paper import TITLES, YARDSTICKS
from maccal.bench.titles import PRINTED, SETS, VARIANTS, title
from maccal.report.cells import Column, Entry, Sheet, percent, sheet

LABELS = {
    "ece": "ECE",
    "aece": "AECE",
    "mce": "MCE",
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "fpr95": "FPR95",
}
# of a row's shift: the label of each column, and which way is better
SHIFTED = {
    "accuracy": ("accuracy", 1),
    "ece_pooled_mean": ("ECE, pooled", -1),
    "ece": ("ECE, mean", -1),
}
# Table 3: what follows a method, and what its columns add to their names
FOLLOWS = {"": "", "+maccal": " + MaC-Cal", f"+{PRINTED}": " + MaC-Cal as printed"}
# below the steps of Table 5
WHOLE = {
    "maccal": "the default here: all of it, with a linear head",
    PRINTED: "as printed: Eq. 12 on the retention, all weights at inference",
}
UP = ("accuracy", "auroc")  # better when larger


def tables(rows: Rows) -> list[Sheet]:
    """Tables 1 to 5, and the numbers of Fig. 5."""
    book = Book.of(rows)
    return [table1(book), ood(book), combine(book), cost(book), ablation(book), shift(book)]


def networks(book: Book, name: str, methods: Sequence[str]) -> list[Setting]:
    """The columns of a table by network.

    Data sets in the paper's order, our own networks before the paper's.
    """
    theirs = dict.fromkeys(Setting(row["data"], 0, row["model"]) for row in paper.table(name))
    ours = [setting for setting in measured(book, methods) if setting not in theirs]
    order = {data: number for number, data in enumerate(SETS)}

    def by_data(setting: Setting) -> tuple[int, str, int]:
        return order.get(setting.data, len(order)), setting.data, -setting.limit

    return sorted([*ours, *theirs], key=by_data)


def measured(book: Book, methods: Sequence[str]) -> list[Setting]:
    """The settings in which one of the methods was run."""
    wanted = set(methods)
    return sorted({line.setting for line in book.lines if line.variant in wanted})


def sets_of(
    book: Book, methods: Sequence[str], sets: Sequence[str]
) -> dict[Setting, list[Setting]]:
    """Our settings by data set and limit (network ""), for tables that average over networks.

    A data set without any has an empty list.
    """
    ours = measured(book, methods)
    found: dict[Setting, list[Setting]] = {}
    for data in sets:
        own = [setting for setting in ours if setting.data == data]
        for setting in own:
            found.setdefault(setting._replace(model=""), []).append(setting)
        if not own:
            found[Setting(data, 0, "")] = []
    return found


def printed_ece(method: str, setting: Setting) -> dict[str, Any] | None:
    """The paper's ECE of a method on that network.

    Of one it does not have, `mean` over its networks on that data set.
    """
    table = paper.table("table1")
    same = [row for row in table if (row["method"], row["data"]) == (method, setting.data)]
    exact = [row for row in same if row["model"] == setting.model]
    if not same:
        return None
    return {"ece": fmean(row["ece"] for row in exact or same), "mean": not exact}


def methods_of(name: str) -> list[str]:
    """The methods of a table of the paper, in its order."""
    return list(dict.fromkeys(row["method"] for row in paper.table(name)))


def with_yardsticks(book: Book, methods: Sequence[str]) -> list[str]:
    """And, below the paper's methods, the yardsticks that were measured, and other readings."""
    beside = [*YARDSTICKS, *(VARIANTS[name] for name in methods if name in VARIANTS)]
    return [*methods, *(name for name in beside if measured(book, [name]))]


def label(book: Book, variant: str) -> str:
    """What its lines are called, with what stands beside the name: settings that are not its own
    today, or another reading.
    """
    titles = {line.made.title for line in book.lines if line.variant == variant}
    return titles.pop().replace("\n", ", ") if len(titles) == 1 else title(variant)


def lines_of(book: Book, settings: Sequence[Setting], variant: str) -> list[Line | None]:
    return [book.get(setting, variant) for setting in settings]


def table1(book: Book) -> Sheet:
    settings = networks(book, "table1", list(TITLES))
    columns = [Column(setting.title, setting.model, -1) for setting in settings]
    rows = []
    for method in with_yardsticks(book, list(TITLES)):
        entries = []
        for setting in settings:
            line = book.get(setting, method)
            entries.append(percent([line], "ece", printed_ece(method, setting)))
        rows.append((label(book, method), entries))
    about = (
        "ECE in per cent. Beside a network that the paper does not have stands (≈) the mean of its "
        "networks on that data set."
    )
    return sheet("table1", "Table 1: ECE", about, columns, rows)


def ood(book: Book) -> Sheet:
    methods = methods_of("ood")
    where = sets_of(book, methods, ("cifar10", "cifar100"))
    cells = list(product(where, ("auroc", "fpr95")))
    columns = [Column(data.title, LABELS[key], 1 if key in UP else -1) for data, key in cells]
    rows = []
    for method in with_yardsticks(book, methods):
        entries = []
        for data, key in cells:
            lines = lines_of(book, where[data], method)
            printed = paper.published("ood", method=method, data=data.data)
            entries.append(percent(lines, f"ood.mean.{key}", printed, key))
        rows.append((label(book, method), entries))
    about = (
        "Telling images from elsewhere, in per cent: the mean over SVHN and the other CIFAR. "
        "The paper does not name its networks."
    )
    return sheet("ood", "Table 2: images from elsewhere", about, columns, rows)


def combine(book: Book) -> Sheet:
    methods = methods_of("combine")
    where = sets_of(book, methods, tuple(SETS))
    follows = list(FOLLOWS)
    if not measured(book, [f"{method}+{PRINTED}" for method in methods]):
        follows.remove(f"+{PRINTED}")
    cells = list(product(where, ("accuracy", "ece"), follows))
    columns = []
    for data, key, second in cells:
        columns.append(Column(data.title, LABELS[key] + FOLLOWS[second]))
    rows = []
    for method in methods:
        entries = []
        for data, key, second in cells:
            lines = lines_of(book, where[data], method + second)
            printed = paper.published("combine", method=method, data=data.data)
            if second == f"+{PRINTED}":
                printed = None  # the paper's number stands beside MaC-Cal's own
            # the paper's numbers with MaC-Cal have names that end in _ours
            entries.append(percent(lines, key, printed, key + "_ours" * (second == "+maccal")))
        rows.append((label(book, method), entries))
    about = (
        "In per cent, a method alone and with MaC-Cal; the mean over the networks on each data set."
    )
    return sheet("combine", "Table 3: with other methods", about, columns, rows)


def cost(book: Book) -> Sheet:
    methods = methods_of("cost")
    settings = networks(book, "cost", methods)
    columns = [Column(setting.title, setting.model) for setting in settings]
    rows = []
    for method in with_yardsticks(book, methods):
        entries = [seconds(book, setting, method) for setting in settings]
        rows.append((label(book, method), entries))
    about = (
        "Seconds of the whole training, both stages, median over seeds, on a machine that may have "
        "had other work; the paper's on its own."
    )
    return sheet("cost", "Table 4: cost", about, columns, rows)


def seconds(book: Book, setting: Setting, method: str) -> Entry:
    line = book.get(setting, method)
    printed = paper.published("cost", method=method, data=setting.data, model=setting.model)
    values = book.seconds(line).values() if line else ()
    value = median(values) if values else math.nan
    text = f"{value:,.0f}" if values else "–"
    return Entry(value, text, paper=f"{printed['seconds']:,}" if printed else "")


def ablation(book: Book) -> Sheet:
    steps = dict.fromkeys((row["row"], row["component"]) for row in paper.table("ablation"))
    found: dict[tuple[Setting, str], list[Line | None]] = {}
    for setting, reading in product(book.settings, READINGS):
        found[setting, reading] = [ablated(book, setting, step, reading) for step, _ in steps]
    measured = [key for key, lines in found.items() if any(lines[1:-1])]
    ours = list(dict.fromkeys(setting for setting, _ in measured))
    readings = [one for one in READINGS if one == "forward" or one in dict(measured).values()]
    settings = [*ours, *papers_own(ours)]
    cells = list(product(settings, ("accuracy", "ece", "aece", "mce")))
    columns = []
    for setting, key in cells:
        group = f"{setting.title}, {setting.model}"
        columns.append(Column(group, LABELS[key], 0 if key == "accuracy" else -1))
    rows = []
    for reading, (number, (step, component)) in product(readings, enumerate(steps)):
        if number == 0 and reading != "forward":
            continue  # the network as trained is the same by every reading
        entries = []
        for setting, key in cells:
            lines = found.get((setting, reading))
            printed = paper.published("ablation", row=step, data=setting.data)
            entries.append(percent([lines[number] if lines else None], key, printed))
        rows.append((step_label(component, number, reading), entries))
    for variant, words in WHOLE.items():
        entries = [percent([book.get(setting, variant)], key) for setting, key in cells]
        if any(math.isfinite(entry.value) for entry in entries):
            rows.append((words, entries))
    about = (
        "In per cent; each line adds to the one above, up to the paper's whole method. Masks "
        "multiply the weights in the forward pass, unless a line says that they grow again. The "
        "first "
        "is the network as trained; the paper's network is DenseNet-121."
    )
    return sheet("ablation", "Table 5: ablation", about, columns, rows)


def shift(book: Book) -> Sheet:
    """The paper has a figure alone."""
    methods = list(TITLES)
    where = sets_of(book, methods, ("cifar10", "cifar100"))
    cells = list(product(where, SHIFTED))
    columns = [Column(data.title, *SHIFTED[key]) for data, key in cells]
    rows = []
    for method in with_yardsticks(book, methods):
        entries = []
        for data, key in cells:
            entries.append(percent(lines_of(book, where[data], method), f"shift.overall.{key}"))
        rows.append((label(book, method), entries))
    about = (
        "Under fifteen corruptions at five severities, in per cent. Pooled: the ECE of all "
        "corruptions of a severity together, in which opposite errors of two corruptions cancel; "
        "mean: of the ECEs of all corruptions, which are the larger by chance the fewer images "
        f"there are. {shift_images(book)}"
    )
    return sheet("shift", "Fig. 5 in numbers: corrupted images", about, columns, rows)


def shift_images(book: Book) -> str:
    """How many images each corruption has, and who made them."""
    parts: list[str] = []
    for line in book.lines:
        for row in line.runs.values():
            if row.shift and "n" in row.shift:
                whose = "published" if row.shift.get("source") == "published" else "corrupted here"
                parts.append(f"{line.setting.title}: {row.shift['n']:,} test images, {whose}")
    return f"{'; '.join(sorted(set(parts)))}." if parts else ""


def step_label(component: str, number: int, reading: str) -> str:
    """
    >>> step_label("mask", 1, "forward"), step_label("mask", 1, "regrow")
    ('+ mask', '+ mask (weights grow again)')
    """
    label = component if number == 0 else f"+ {component}"
    return label if reading == "forward" else f"{label} (weights grow again)"


def papers_own(ours: Sequence[Setting]) -> list[Setting]:
    """The paper's settings of the ablation on data sets that we have none on."""
    known = {setting.data for setting in ours}
    return [
        Setting(data, 0, "densenet121") for data in ("cifar10", "cifar100") if data not in known
    ]
