"""The pages of the site that are made and not written: no number of theirs is typed.

    python benchmarks/site_pages.py             docs/which.md, findings.md, evidence.md, and so on
    python benchmarks/site_pages.py --check     fails if a page is not what results/ would make

From the rows in results/ and the package's public names; a few seconds.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

from findings import ABOUT, RAN, findings, words
from markdown_table import table
from site_reference import api, peers

from maccal.bench.lines import Book, average
from maccal.bench.standing import lines_of, standing
from maccal.cli.bench import read
from maccal.methods import METHODS as ROWS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
# networks on which defaults were chosen: they are no evidence for them
CHOSEN_ON = {"resnet20", "resnet56", "c10-heart", "c10-mixup", "c100-heart"}
METHODS = ("as trained", "temperature", "MaC-Cal", "masks off", "fresh head")
WORDS = {
    "as trained": "as it is",
    "temperature": "temperature scaling",
    "MaC-Cal": "MaC-Cal",
    "masks off": "the same training without masks",
    "fresh head": 'a new classifier under masks (`start="fresh"`)',
    "as printed": "the paper's equations as printed (`Stage2.paper()`)",
}
# the networks of results/posthoc.json
TITLES = {
    "cifar10-resnet20": "CIFAR-10, a public ResNet-20",
    "cifar100-linear-on-resnet20": "CIFAR-100, a linear classifier on that network's features",
}
Row = dict[str, Any]


class Starts:
    """The rows of results/starts.jsonl, of the networks on which nothing was chosen."""

    def __init__(self, images: bool = False) -> None:
        """With images, of image networks alone: those that were corrupted too."""
        lines = (RESULTS / "starts.jsonl").read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        kept = {row["network"] for row in rows if "shift" in row or not images}
        self.rows = [row for row in rows if row["network"] in kept - CHOSEN_ON]

    def of(self, method: str, labels: int) -> dict[str, list[Row]]:
        """By network; as trained and as printed use no labels."""
        labels = 0 if method in ("as trained", "as printed") else labels
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if (row["method"], row["labels"]) == (method, labels):
                found.setdefault(row["network"], []).append(row)
        return found

    def networks(self, labels: int) -> set[str]:
        return set(self.of("MaC-Cal", labels))

    def mean(self, method: str, labels: int, key: str) -> float:
        """Over networks of the mean over halves and seeds."""
        networks = self.networks(labels)
        by_network = self.of(method, labels)
        own = [mean(row[key] for row in by_network[network]) for network in sorted(networks)]
        return mean(own)

    def line(self, method: str, labels: int) -> list[str]:
        accuracy, ece = (100 * self.mean(method, labels, key) for key in ("accuracy", "ece"))
        nll = self.mean(method, labels, "nll")
        return [WORDS[method], f"{accuracy:.2f} %", f"{ece:.2f} %", f"{nll:.3f}"]


HEAD = ("", "accuracy", "ECE", "NLL")
NO_LABEL = """### No held-out label

Image networks alone. What the confidence should be is learnt from changed training images
([views](calibrate.md#feedback-without-labels-views)). For tables and texts no change is known that
does as well: pass a known accuracy there, such as that of cross-validation."""


def of_labels(starts: Starts, labels: int) -> str:
    """A section: the table, and what is lowest in it."""
    methods = [method for method in METHODS if starts.of(method, labels)]
    lines = [starts.line(method, labels) for method in methods]
    low = {}
    for key in ("ece", "nll"):
        best = min(methods, key=lambda method: starts.mean(method, labels, key))
        low[key] = WORDS[best]
    count = len(starts.networks(labels))
    title = f"### {labels:,} held-out labels" if labels else NO_LABEL
    said = f"Mean of {count} networks. Lowest ECE: {low['ece']}. Lowest NLL: {low['nll']}."
    return f"{title}\n\n{table(HEAD, lines)}\n\n{said}"


def of_posthoc(network: str, rows: list[Row]) -> str:
    measured = [row for row in rows if row["network"] == network and "nll" in row]
    own = [row for row in measured if row["package"] in ("", "maccal")]
    own.sort(key=lambda row: float(row["nll"]))
    lines = []
    for row in own:
        shares = [f"{100 * row[key]:.2f} %" for key in ("accuracy", "ece")]
        lines.append([row["name"], *shares, f"{float(row['nll']):.4f}"])
    broken = [row["name"] for row in rows if row["network"] == network and "failed" in row]
    failed = "".join(f"\n\n{name} found no best map here, and says so." for name in broken)
    title = f"### {TITLES[network]}: {own[0]['rows']:,} rows of {own[0]['classes']} classes"
    return f"{title}\n\n{table(HEAD, lines)}{failed}"


def which() -> str:
    starts = Starts()
    few = (100, starts.mean("temperature", 100, "ece"), starts.mean("MaC-Cal", 100, "ece"))
    many = (5000, starts.mean("temperature", 5000, "ece"), starts.mean("MaC-Cal", 5000, "ece"))
    gaps = []
    for labels, temperature, own in (few, many):
        numbers = f"{100 * temperature:.2f} % with a temperature, {100 * own:.2f} % with MaC-Cal"
        gaps.append(f"- With {labels:,} labels the mean ECE is {numbers}.")
    posthoc = json.loads((RESULTS / "posthoc.json").read_text(encoding="utf-8"))["quality"]
    names = sorted({row["network"] for row in posthoc})
    sections = [
        *(of_labels(starts, labels) for labels in (5000, 500, 100)),
        of_labels(Starts(images=True), 0),
        "## From outputs alone",
        "Each calibrator was fitted on one half of the rows and measured on the other, both ways."
        " The lowest NLL comes first. An NLL of inf means that some label was given the probability"
        " 0. What each of them is: [Calibrate logits and probabilities](posthoc.md).",
        *(of_posthoc(name, posthoc) for name in names),
    ]
    seconds = [starts.mean(method, 5000, "seconds") for method in ("fresh head", "MaC-Cal")]
    trained, measured = while_training()
    top = WHICH.format(gaps="\n".join(gaps), times=seconds[0] / seconds[1], trained=trained)
    return top + "\n\n".join([*sections, *measured, SOURCES]) + "\n"


def most_methods() -> tuple[str, Book]:
    """The scale whose rows compare the most methods, and these rows; the rows of one may be few."""
    books = {scale: Book.of(read(RESULTS / f"bench-{scale}.jsonl").values()) for scale in RAN}
    scale = max(RAN, key=lambda scale: len(standing(books[scale]).eces))
    return scale, books[scale]


def while_training() -> tuple[str, list[str]]:
    """Which method of stage I has the lowest ECE, and which is right most often; their table."""
    scale, book = most_methods()
    stands = standing(book)
    found: dict[str, list[float]] = {}
    for name in sorted(stands.eces, key=lambda name: stands.eces[name]):
        if ROWS[name.split(",")[0]].second is None:
            lines = lines_of(book, name, stands.settings, "ece")
            found[words(lines[0])] = [average(lines, key) for key in ("accuracy", "ece", "nll")]
    shown = []
    for name, (accuracy, ece, nll) in found.items():
        shown.append([name, f"{100 * accuracy:.2f} %", f"{100 * ece:.2f} %", f"{nll:.3f}"])
    right = max(found, key=lambda name: found[name][0])
    said = f"in our rows {next(iter(found))} has the lowest ECE and {right} the highest accuracy"
    where = " and ".join(setting.title for setting in stands.settings)
    about = f"Scale `{scale}`: {ABOUT[scale]} Means over {where}."
    more = (
        f"{about} None of these methods sees a held-out label. Intervals, and what calibrating each"
        " of them adds: [What came out](findings.md). What each of them is: [Methods]"
        "(methods/README.md)."
    )
    return said, ["## While training", more, table(HEAD, shown)]


SOURCES = """*Made by `benchmarks/site_pages.py` from [starts.jsonl](../results/starts.jsonl),
[posthoc.json](../results/posthoc.json) and the rows of the benchmark: no number here is typed.*"""

WHICH = """# Which method should I use

| you have | use |
|---|---|
| a file of outputs and labels | `maccal compare predictions.npz`: it tries all calibrators, and \
says which to use and why |
| a torch model and hundreds of held-out labels | `mc.calibrate(model, train, val=val)` |
| the same, and {times:.0f} times as long to wait | `mc.calibrate(model, train, val=val, \
config=mc.Stage2(start="fresh"))`: a lower NLL below, but it may cost accuracy on single networks |
| a hundred held-out labels | `mc.calibrate(model, train, val=val, calibrator="temperature")` |
| no held-out label, but images | `mc.calibrate(model, train)`, and read its warning |
| no label, but a known accuracy | `mc.calibrate(model, train, accuracy=0.93)` |
| a model whose predictions must not change | a temperature: \
`mc.calibrate(model, train, val=val, calibrator="temperature")` |
| a network still to be trained | {trained}; calibrate it afterwards whatever it is: \
[the table](#while-training) |

*Held-out labels* are those of rows that the network was not trained on. *ECE* is how far confidence
and accuracy are apart on average, *NLL* is the log-loss; both are better when they are lower
([What the numbers mean](metrics.md)).

Once there are labels, the choice matters little; what matters is to have some:

{gaps}

These differences are small beside what any of the methods gains over the network as it is.

## From a network

Means over networks on which no default of ours was chosen. The line "without masks" is the control:
MaC-Cal trains the classifier under random masks, and this line trains it in the same way without
them. Every network by itself: [results/starts.md](../results/starts.md).

"""


def evidence() -> str:
    starts = Starts()
    methods = ("as trained", "as printed", "fresh head", "masks off", "MaC-Cal")
    lines = [starts.line(method, 5000) for method in methods]
    return EVIDENCE.format(table=table(HEAD, lines), count=len(starts.networks(5000)))


EVIDENCE = """# The paper's ambiguities, and our evidence

MaC-Cal freezes a trained network and trains its classifier again under random masks of its weights.
The share of weights that is kept, *keep*, follows the gap between confidence and accuracy
([the method](methods/maccal.md)). No code of it is public, and its text can be read in more than
one way. Each choice below is a named field of `mc.Stage2`, so that you can run the other reading.

| question | field | what the text says | what we do, and why |
|---|---|---|---|
| What does a mask do? | `masking`, `restrict` | a product with the weights; the ablation makes \
sense only if masked weights are really set to zero | the product, in the forward pass. Under it \
the paper's "gradient restriction" is what differentiation does anyway. Setting weights to zero \
reproduces the direction of the first three ablation rows, and costs accuracy |
| How often is it drawn? | `refresh` | each epoch (text), each mini-batch (algorithm) | each \
mini-batch; with masks as a product the two hardly differ |
| Which weights serve at inference? | `inference` | deterministic; no scaling is mentioned | the \
expected ones, keep times W. Unscaled weights make logits too large by 1 / keep, and the network \
surer than ever |
| Does the feedback move the share kept, or the share dropped? | `adapt` | both, in different \
places; both start at one half, which hides it | the share dropped. As printed, an overconfident \
network keeps more, gets surer, and runs to keep = 1 within ten epochs |
| Accuracy and confidence of what? | `statistics` | "the training set" | of the classifier as it \
will be deployed, on held-out rows where there are some. On the masked passes the loop is not \
stable |
| How large is gamma? | `gamma` | between 0 and 1, said to matter little | it matters: the right \
one is near test over training accuracy, which is unknown without labels. With held-out rows it \
is 1 |
| Where does stage II start? | `start`, `hidden` | a new two-layer head at random | the trained \
classifier, which is faster and needs no held-out labels. A new one scores a little better with \
labels, far worse [without](which.md#no-held-out-label), and may cost accuracy on single networks |
| At which rate? | `lr`, `schedule` | 0.1, constant | a small one that falls to zero; a constant \
0.1 cost a network with 100 classes a quarter of its accuracy |

## What the readings score

The mean over {count} networks on which no default was chosen, 5,000 held-out labels where the
method uses any:

{table}

Taken literally, the equations do not calibrate. And where the classifier starts from its trained
weights, training without masks does as well as with them: the gain over a temperature comes from
training the classifier at the right scale. The paper's ablation, our rows beside it:
[the benchmark](benchmark.md#what-came-out).

## Slips in the paper's tables

- The network of the ablation is called "ResNet59"; its numbers are those of DenseNet-121.
- mixup on Tiny-ImageNet has one ECE in the main table and more than twice that in another.
- One accuracy, of DFL with MaC-Cal on Tiny-ImageNet, lacks a digit.
- Two averages on CIFAR-100 (MIT, DFL) are not the averages of their columns.

## What follows for a table of yours

A perfectly calibrated model does not score zero. On CIFAR-10 with 10,000 test images its ECE lies
between about 0.2 and 0.6 %, and its MCE nearly anywhere: several of the paper's best cells, and
every difference of MCE there, are inside that band. Print the band, use several seeds, and carry
the control without masks.

*The table of readings is made by `benchmarks/site_pages.py` from
[starts.jsonl](../results/starts.jsonl).*
"""

PAGES: dict[str, Callable[[], str]] = {
    "which": which,
    "findings": findings,
    "evidence": evidence,
    "peers": peers,
    "api": api,
}


def main() -> None:
    stale = []
    for name, make in PAGES.items():
        file = ROOT / "docs" / f"{name}.md"
        text = make()
        if "--check" in sys.argv:
            stale += [] if file.exists() and file.read_text(encoding="utf-8") == text else [name]
        else:
            file.write_text(text, encoding="utf-8")
    if stale:
        raise SystemExit(f"not as results/ make them: {stale}; run benchmarks/site_pages.py")


if __name__ == "__main__":
    main()
