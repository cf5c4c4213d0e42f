"""The paper's claims, each judged by rows: by seeds, or the intervals of one seed, and the bands of
calibrated models.

claims(rows)     what the paper says, whether it holds here, and the numbers

Every claim is listed, whatever the rows; one that they cannot judge says what is missing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from maccal.bench import paper
from maccal.bench.ablations import READINGS, steps
from maccal.bench.comparing import against, as_printed, best_rank, both, lowest
from maccal.bench.contrasts import contrast
from maccal.bench.costs import cheap, cheapest
from maccal.bench.judging import (
    Claim,
    Verdict,
    absent,
    each_shown,
    judged,
    shown,
    tally,
    where,
    within,
    worst,
)
from maccal.bench.lines import Book, Line, Rows, Setting, average
from maccal.bench.settling import sparsity_settles
from maccal.bench.standing import OURS, compared
from maccal.bench.sweeps import (
    better_at_every_gamma,
    beyond_mit,
    cured,
    mit_helps,
    steady_in_alpha,
    steady_in_gamma,
)
from maccal.bench.titles import points, title

COMBINED = tuple(dict.fromkeys(row["method"] for row in paper.table("combine")))
COMBINATIONS = tuple(f"{name}+maccal" for name in COMBINED)
KEPT = 0.01  # accuracy that a calibrated network may lose
AUROC, FPR95 = "ood.mean.auroc", "ood.mean.fpr95"
# opposite errors of two corruptions cancel in the pool, and not in the mean
POOLED, MEAN = "shift.overall.ece_pooled_mean", "shift.overall.ece"
NETWORKS = {
    "resnet50": "ResNet-50",
    "resnet110": "ResNet-110",
    "wrn26_10": "WRN-26-10",
    "densenet121": "DenseNet-121",
}


def claims(rows: Rows) -> list[Claim]:
    """Every claim, in the paper's order."""
    book = Book.of(rows)
    return [
        *of_table_1(book),
        *of_robustness(book),
        added(book),
        cured(book),
        steady_in_alpha(book),
        mit_helps(book),
        beyond_mit(book),
        accuracy_kept(book),
        cheap(book),
        cheapest(book),
        *(steps(book, reading) for reading in READINGS),
        better_at_every_gamma(book),
        steady_in_gamma(book),
        sparsity_settles(book),
    ]


def of_table_1(book: Book) -> list[Claim]:
    mean = "MaC-Cal has the lowest ECE of all methods, averaged over data sets and networks."
    return [
        lowest(book, "ece", mean),
        best_rank(book),
        lowest(book, "aece", "MaC-Cal has the lowest AECE of all methods."),
        lowest(book, "mce", "MaC-Cal has the lowest MCE of all methods."),
        four_networks(book),
        on_tiny(book),
    ]


def of_robustness(book: Book) -> list[Claim]:
    """Images from elsewhere, and corrupted ones."""
    tells = "MaC-Cal tells images from elsewhere better than vanilla does (AUROC)."
    passes = "MaC-Cal takes fewer images from elsewhere for its own than vanilla does (FPR95)."
    plp = "MaC-Cal tells images from elsewhere better than PLP does (AUROC)."
    lower = "MaC-Cal has a lower ECE than vanilla on corrupted images, "
    least = "MaC-Cal has the lowest ECE of all methods on corrupted images, "
    found = [
        against(book, "vanilla", AUROC, tells, +1, "ood"),
        against(book, "vanilla", FPR95, passes, -1, "ood"),
        against(book, "plp", AUROC, plp, +1, "ood"),
    ]
    for key, words in ((POOLED, "all corruptions pooled."), (MEAN, "mean over corruptions.")):
        found.append(against(book, "vanilla", key, lower + words, -1, "shift"))
        found.append(lowest(book, key, least + words, "shift"))
    return found


def added(book: Book) -> Claim:
    words = "Adding MaC-Cal to any of ten other methods lowers its ECE, averaged over data sets."
    pairs = {name: both(book, f"{name}+maccal", name, "ece") for name in COMBINED}
    places = fullest(alone for _, alone in pairs.values())
    if not places:
        missing = "No runs of a method with and without MaC-Cal; run `maccal bench combine`."
        return Claim(words, "not judged", missing)
    found = {}
    for name in COMBINED:
        with_ours, alone = both(book, f"{name}+maccal", name, "ece", places)
        if len(alone) == len(places):
            found[name] = contrast(with_ours, alone)
            here = where(alone)
    parts = each_shown({title(name): one for name, one in found.items()})
    missing = absent(set(COMBINED) - set(found))
    evidence = f"Change of ECE over {here}: {parts}.{tally(found)}{missing}"
    return Claim(words, judged(found, len(COMBINED)), evidence)


def fullest(lines: Iterable[Sequence[Line]]) -> list[Setting]:
    """Given the lines of each method: the settings in which the most methods have one."""
    counts = Counter(line.setting for line in chain.from_iterable(lines))
    most = max(counts.values(), default=0)
    return sorted(setting for setting, count in counts.items() if count == most)


def accuracy_kept(book: Book) -> Claim:
    """An equivalence: the whole interval must lie above what may be lost, in every setting.

    A mean would set a loss on one data set against a gain on another.
    """
    words = f"MaC-Cal keeps accuracy: nowhere does it lose more than {100 * KEPT:.0f} point."
    verdicts: list[Verdict] = []
    parts = []
    ours, vanilla = both(book, OURS, "vanilla", "accuracy", compared(book, "accuracy"))
    for own, other in zip(ours, vanilla, strict=True):
        found = contrast([own], [other], "accuracy")
        verdicts.append(within(-found.high, -found.low, KEPT) if found else "not judged")
        means = [points(average([line], "accuracy")) for line in (own, other)]
        name = f"{own.setting.title}, {own.setting.model}"
        parts.append(f"{name}: {means[0]} % against {means[1]} % ({shown(found)})")
    if not parts:
        missing = "No runs of MaC-Cal and of vanilla on the same data; run `maccal bench table1`."
        return Claim(words, "not judged", missing)
    evidence = "; ".join(parts) + "." + as_printed(book, ours, "accuracy")
    return Claim(words, worst(verdicts), evidence)


def four_networks(book: Book) -> Claim:
    """On CIFAR-10, however long they were trained: the evidence says how far they came."""
    words = "MaC-Cal lowers vanilla's ECE on each of the paper's four networks."
    found = {}
    parts = []
    for model, name in NETWORKS.items():
        settings = [s for s in book.settings if (s.data, s.model) == ("cifar10", model)]
        ours, vanilla = both(book, OURS, "vanilla", "ece", settings)
        if ours:
            found[name] = contrast(ours, vanilla)
            parts.append(f"{name} {far(vanilla[0])}: {shown(found[name])}")
    missing = [name for name in NETWORKS.values() if name not in found]
    evidence = f"Change of ECE on CIFAR-10: {'; '.join(parts)}." if parts else ""
    if missing:
        evidence += f" No runs of {', '.join(missing)}; run `maccal bench networks`."
    return Claim(words, judged(found, len(NETWORKS)), evidence.strip())


def far(line: Line) -> str:
    """How far a network came: its epochs and its accuracy."""
    epochs = next(iter(line.runs.values())).number("trained.epochs")
    trained = f"{epochs:.0f} epochs, " if epochs > 0 else ""
    return f"({trained}{points(line.mean('accuracy'))} % right)"


def on_tiny(book: Book) -> Claim:
    words = "MaC-Cal has the lowest ECE of all methods on Tiny-ImageNet."
    tiny = [setting for setting in book.settings if setting.data == "tiny-imagenet"]
    measured: list[Setting] = []
    for setting in tiny:
        ours = book.get(setting, OURS)
        if ours is not None and ours.values("ece"):
            measured.append(setting)
    if not measured:
        missing = "No runs of MaC-Cal on Tiny-ImageNet; run `maccal bench table1` at a scale "
        return Claim(words, "not judged", missing + "that has this data set.")
    return lowest(book, "ece", words, settings=measured)
