"""Every number that README.md and docs/benchmark.md claim of the benchmark, computed again from the
committed rows.

A page is covered by sentences: a phrase as the page has it, with a gap for every number, and what
belongs into the gaps. A number on the page that no sentence covers fails, and so does one that the
rows do not give. Numbers of other files stand in ELSEWHERE, with where they are tested.
"""

import re
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from maccal.bench.ablations import ablated
from maccal.bench.claims import AUROC, FPR95, MEAN, POOLED
from maccal.bench.comparing import both
from maccal.bench.contrasts import contrast
from maccal.bench.costs import printed_ratio, ratios, stage2_shares, timed
from maccal.bench.lines import Book, average, shared_seeds
from maccal.bench.settling import moved
from maccal.bench.standing import (
    OURS,
    compared,
    lines_of,
    measured_everywhere,
    rankdata,
    standing,
)
from maccal.bench.sweeps import alphas, shortfall
from maccal.evaluation.row import read_rows

ROOT = Path(__file__).parents[1]
# decimals, so many of so many, and whole numbers in per cent or points
NUMBER = r"\d+\.\d+|\d+ of (?:the )?\d+|\d+(?= (?:and \d+ )?(?:%|points))"


@cache
def book(name):
    return Book.of(read_rows(ROOT / "results" / f"{name}.jsonl"))


def share(value, digits=2):
    """A fraction as a page shows it."""
    return f"{100 * value:.{digits}f}"


class Scale:
    """What pages say of the rows of one scale."""

    def __init__(self, name):
        self.name = name

    @property
    def book(self):
        return book(f"bench-{self.name}")

    def of(self, method, key="ece", seeds=None):
        """The mean over the settings that are compared; of some seeds alone if asked for."""
        lines = [self.book.get(setting, method) for setting in compared(self.book, key)]
        if seeds is None:
            return average(lines, key)
        return fmean(line.runs[seed].number(key) for line in lines for seed in seeds)

    def bottleneck(self, seeds=None):
        lines = [ablated(self.book, setting, "decaying") for setting in compared(self.book, "ece")]
        if seeds is None:
            return average(lines, "ece")
        return fmean(line.runs[seed].number("ece") for line in lines for seed in seeds)

    def change(self, method, other, key):
        """Of a number, where both were run."""
        return contrast(*both(self.book, method, other, key), key).difference

    def real_others(self):
        """Against how many of the other methods MaC-Cal is lower beyond chance."""
        there = measured_everywhere(self.book, "ece")
        found = [contrast(there[OURS], lines) for name, lines in there.items() if name != OURS]
        return sum(one.real and one.difference < 0 for one in found), len(found)

    def places(self):
        """The rank of MaC-Cal in every run."""
        there = measured_everywhere(self.book, "ece")
        found = []
        for number, ours in enumerate(there[OURS]):
            for seed in ours.runs:
                eces = [lines[number].runs[seed].number("ece") for lines in there.values()]
                found.append(rankdata(eces)[list(there).index(OURS)])
        return found

    def runs_won(self, other, key):
        """In how many runs MaC-Cal's number is higher, and lower, of how many."""
        pairs = both(self.book, OURS, other, key, compared(self.book, key))
        gaps = []
        for one, two in zip(*pairs, strict=True):
            for seed in shared_seeds([one, two], key):
                gaps.append(one.values(key)[seed] - two.values(key)[seed])
        return sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps), len(gaps)

    def over_alpha(self, method):
        """The ECEs of a method over mixup's alpha, where it is swept."""
        swept = [lines for lines in alphas(self.book, method).values() if len(lines) > 1]
        (lines,) = swept
        return {alpha: line.mean("ece") for alpha, line in lines.items()}

    def gap_at(self, method, alpha):
        (lines,) = [
            lines
            for lines in alphas(self.book, method).values()
            if alpha in lines and len(lines) > 1
        ]
        return fmean(shortfall(row) for row in lines[alpha].runs.values())

    def added(self):
        """The changes of ECE by MaC-Cal on other methods that are real, and those of accuracy."""
        names = [
            line.variant for line in self.book.lines if re.fullmatch(r"\w+\+maccal", line.variant)
        ]
        names = sorted({name.removesuffix("+maccal") for name in names})
        eces = {n: contrast(*both(self.book, f"{n}+maccal", n, "ece")) for n in names}
        gains = [self.change(f"{n}+maccal", n, "accuracy") for n in names]
        return eces, gains

    def moves(self, first):
        """How far keep moves in the first or the last quarter of stage II, on average."""
        found = []
        for setting in compared(self.book, "ece"):
            for row in self.book.get(setting, OURS).runs.values():
                quarter = len(row.keep) // 4
                found.append(moved(row.keep[:quarter] if first else row.keep[-quarter:]))
        return fmean(found)

    def mixed_feedback(self):
        lines = [line for line in self.book.lines if line.variant == "maccal,mixed"]
        return [line.mean("ece") for line in sorted(lines, key=lambda line: line.setting)]

    def step(self, before, after):
        """What a step of the ablation adds to ECE."""
        settings = [s for s in self.book.settings if ablated(self.book, s, after)]
        lines = [[ablated(self.book, s, name) for s in settings] for name in (after, before)]
        return contrast(*lines).difference


CPU, FULL = Scale("cpu"), Scale("full")


def of_standing():
    """Mean ECE and rank."""
    stands = standing(CPU.book)
    interval = [share(end) for end in stands.ece_intervals[OURS]]
    ranks = [f"{end:.2f}" for end in stands.rank_intervals[OURS]]
    printed = share(stands.paper_ece), f"{stands.paper_rank:.2f}"
    plp, mixup = share(CPU.of("plp")), share(CPU.of("mixup"))
    return [
        ("mean ECE {} % (95 % interval {} to {})", share(stands.ece), *interval),
        ("mean rank {} of {} ({} to {})", f"{stands.rank:.2f}", len(stands.ranks), *ranks),
        ("the paper has {} % and {} with its networks", *printed),
        ("; as trained {} %.", share(CPU.of("vanilla"), 1)),
        ("beyond chance against {} of the {} others", *CPU.real_others()),
        ("Against PLP ({} %) and mixup ({} %) it is not", plp, mixup),
        ("fitted on the same labels does as well: {} %", share(CPU.of("temperature"))),
        ("mixed images leave {} and {} %", *(share(ece, 1) for ece in CPU.mixed_feedback())),
    ]


def of_vanilla():
    """By setting, on unseen images."""
    lines = [CPU.book.get(setting, "vanilla") for setting in compared(CPU.book, "ece")]
    right = [share(line.mean("accuracy"), 0) for line in lines]
    too_sure = [share(line.mean("confidence") - line.mean("accuracy"), 0) for line in lines]
    return [
        ("on {} and {} % of unseen ones", *right),
        ("overconfident by {} and {} points", *too_sure),
    ]


def both_readings(method, key="ece"):
    """The mean over the networks of seed 1, which were trained again for TST and V-TST."""
    found = book("two_stage")
    return share(average([found.get(setting, method) for setting in found.settings], key))


def of_two_stage():
    """TST and V-TST with their authors' settings, and as the MaC-Cal paper says."""
    names = ("tst", "vtst", "tst,as_in_maccal", "vtst,as_in_maccal")
    ours, right = share(CPU.of(OURS, seeds=(1,))), share(CPU.of(OURS, "accuracy", seeds=(1,)))
    theirs, theirs_right = both_readings("vtst"), both_readings("vtst", "accuracy")
    lost = f"{float(right) - float(theirs_right):.1f}"
    return [
        ("mean ECE of {} and {} % instead of {} and {} %", *(both_readings(n) for n in names)),
        ("There MaC-Cal has {} %, so V-TST is level", ours),
        ("its accuracy is {} % where MaC-Cal's is {} %", theirs_right, right),
        ("V-TST is level, {} against {} % on seed 1, with {} points less", theirs, ours, lost),
    ]


def of_later_seeds():
    """Those that were made after the head was chosen."""
    names = (OURS, "plp", "mixup", "temperature")
    ours, plp, mixup, scaled = (share(CPU.of(name, seeds=(2, 3))) for name in names)
    wide = share(CPU.bottleneck((2, 3)))
    return [
        ("linear head has a mean ECE of {} %, the bottleneck {} %, PLP {} %", ours, wide, plp),
        ("mixup {} %, a temperature {} %.", mixup, scaled),
        ("on seeds 2 and 3 alone it has {} %, PLP {} %, the bottleneck {} %", ours, plp, wide),
    ]


def of_cost():
    stage2 = fmean(stage2_shares(CPU.book))
    costs = [f"{fmean(ratios(CPU.book, name)[1]):.2f}" for name in timed()]
    theirs = [f"{printed_ratio(name):.2f}" for name in (OURS, *timed())]
    return [
        ("Accuracy stays (+{} points)", share(CPU.change(OURS, "vanilla", "accuracy"))),
        ("stage II took {} % of stage I's time", share(stage2, 1)),
        ("(in the paper {} %)", share(printed_ratio(OURS) - 1, 1)),
        ("took {} with MaC-Cal", f"{1 + stage2:.2f}"),
        (", {} with MIT, {} with TST, {} with V-TST and {} with BalCAL", *costs),
        ("(the paper: {}, {}, {}, {} and {})", *theirs),
    ]


def of_elsewhere():
    """Images of other data sets."""
    worse, _, runs = CPU.runs_won("vanilla", FPR95)
    _, behind, _ = CPU.runs_won("plp", AUROC)
    plp, ours, vanilla = (share(CPU.of(name, AUROC), 1) for name in ("plp", OURS, "vanilla"))
    passed = [share(CPU.of(name, FPR95), 1) for name in (OURS, "vanilla")]
    return [
        ("AUROC is {} % where the network as trained has {} %", ours, vanilla),
        ("FPR95 is *higher*, {} against {} %, in {} of {} runs", *passed, worse, runs),
        ("the higher AUROC, {} %, in {} of {} runs", plp, behind, runs),
    ]


def of_mixup():
    """MaC-Cal on other methods, and over mixup's alpha."""
    eces, gains = CPU.added()
    real = [-one.difference for one in eces.values() if one.real]
    alone, ours, mit = (CPU.over_alpha(name) for name in ("mixup", "mixup+maccal", "mit"))
    mixed = {alpha: share(abs(mit[alpha] - ece), 1) for alpha, ece in alone.items()}
    return [
        ("beyond chance, by {} to {} points", *ends(real)),
        ("that of mixup by {}, which may be chance", share(-eces["mixup"].difference, 1)),
        ("rises with all ten, by {} to {} points", *ends(gains)),
        ("Over mixup's alpha, {} to 5, it stays at {} to {} %", min(alone), *ends(ours.values())),
        ("where mixup alone has {} to {} %", *ends(alone.values())),
        ("underconfident, by {} points at alpha 5", share(CPU.gap_at("mixup", 5.0), 1)),
        ("MaC-Cal leaves {}.", share(abs(CPU.gap_at("mixup+maccal", 5.0)), 1)),
        ("raises mixup's ECE by {} points at 0.2 and {} at 1", mixed[0.2], mixed[1.0]),
        ("lowers it by {} at 5", mixed[5.0]),
    ]


def ends(values):
    return share(min(values), 1), share(max(values), 1)


def of_shift():
    names = ("plp", "mixup", "temperature", OURS)
    means = [share(CPU.of(name, MEAN)) for name in names]
    pooled = [share(CPU.of(name, POOLED)) for name in names]
    vanilla = [share(CPU.of("vanilla", key), 1) for key in (POOLED, MEAN)]
    return [
        ("Means: PLP {}, mixup {}, temperature {}, MaC-Cal {} %", *means),
        ("pooled {}, {}, {} and {} %", *pooled),
        ("the best**: {} %, all corruptions together, PLP {} %", pooled[3], pooled[0]),
        (", mixup {} %, temperature {} %, differences", pooled[1], pooled[2]),
        ("(as trained {} %)", vanilla[0]),
        ("mean over corruptions {}, {}, {} and {} % ({} %)", means[3], *means[:3], vanilla[1]),
    ]


def of_ablation():
    masked, wide = CPU.step("vanilla", "masked"), CPU.step("restricted", "restructured")
    return [
        ("raise ECE by {} points and the bottleneck by {};", share(masked, 0), share(wide, 0)),
        ("With the paper's bottleneck the mean is {} %", share(CPU.bottleneck())),
        ("moves by {} % of the weights in the first quarter", share(CPU.moves(first=True), 1)),
        ("by {} % in the last", share(CPU.moves(first=False), 1)),
    ]


def of_readme():
    """As it says them now, or may say them in more words."""
    interval = [share(end) for end in standing(CPU.book).ece_intervals[OURS]]
    ours, scaled, plp = (share(CPU.of(name)) for name in (OURS, "temperature", "plp"))
    worse, _, runs = CPU.runs_won("vanilla", FPR95)
    points = share(CPU.change(OURS, "vanilla", FPR95))
    aurocs = [share(CPU.of(name, AUROC), 1) for name in ("plp", OURS)]
    said = "has the lowest ECE, {} %; a temperature fitted on the same held-out labels has {} %"
    return [
        (said, ours, scaled),
        ("has the lowest mean ECE, {} % (95 % interval {} to {})", ours, *interval),
        ("a temperature fitted on the same labels has {} %", scaled),
        ("PLP, without labels, {} %", plp),
        ("FPR95 is worse than before in {} of {} runs, by {} points", worse, runs, points),
        ("PLP has the higher AUROC, {} against {} %", *aurocs),
    ]


def of_full():
    """What its rows say so far."""
    found = book("bench-full")
    names = (OURS, "temperature", "vanilla", "vtst", "tst", "maccal,as_printed,training")
    return [share(average(lines_of(found, n, found.settings, "ece"), "ece")) for n in names]


def test_what_full_says_so_far():
    ours, scaled, vanilla, vtst, tst, printed = of_full()
    text = (ROOT / "docs" / "benchmark.md").read_text()
    assert (
        f"mean ECE, {ours} %, is that of a temperature, {scaled} %; vanilla has {vanilla}" in text
    )
    assert f"V-TST {vtst} %, TST {tst} % and MaC-Cal as printed {printed} %" in text


TOPICS = (
    of_standing,
    of_vanilla,
    of_two_stage,
    of_later_seeds,
    of_cost,
    of_elsewhere,
    of_mixup,
    of_shift,
    of_ablation,
    of_readme,
)


# of the pages' sections: numbers that are not of these rows, and what tests or makes them
ELSEWHERE = {
    "at least 99.9 % of its training images": "test_the_networks_know_their_images_by_heart",
    "ECE 3.61 % as trained, 0.84 % after stage II": "results/cifar10-resnet20/rows.jsonl",
    "1.53 % without any held-out label": "results/cifar10-resnet20/rows.jsonl",
    "the gamma that works, 0.7,": "test_the_gamma_that_works",
    "with 95 % intervals": "tests/bench/test_claims.py",
}
SECTIONS = {
    "docs/benchmark.md": ("## What was run here", "## The figures"),
    "README.md": ("## How good is it?", "## Try it"),
}


def uncovered(text, known):
    """The numbers of a text that no sentence has, in the order of the text."""
    text = " ".join(text.split())
    for sentence in known:
        text = text.replace(sentence, "")
    return re.findall(NUMBER, text)


@cache
def known():
    """Every phrase with its numbers in the gaps."""
    found = list(ELSEWHERE)
    for topic in TOPICS:
        found += [phrase.format(*numbers) for phrase, *numbers in topic()]
    return found


def claims_of(page):
    """The part of a page that claims; of the README, what it says beside the tables of starts."""
    start, end = SECTIONS[page]
    text = (ROOT / page).read_text().split(start)[1].split(end)[0]
    if page == "README.md":
        paragraphs = [part for part in text.split("\n\n") if "benchmark.md" in part]
        text = "\n\n".join(paragraphs)
    return text


@pytest.mark.parametrize("page", SECTIONS)
def test_every_number_is_that_of_the_rows(page):
    text = claims_of(page)
    assert re.search(NUMBER, text)
    assert uncovered(text, known()) == []


def test_a_wrong_number_is_noticed():
    text = claims_of("docs/benchmark.md")
    (right,) = [one for one in known() if one in text and one.startswith("mean ECE 1.")]
    wrong = text.replace(right, right.replace("mean ECE 1", "mean ECE 2"))
    assert uncovered(wrong, known())
    assert uncovered(f"{text} Another {1.5} %.", known()) == ["1.5"]
    assert uncovered("in 3 of the 4 runs", []) == ["3 of the 4"]


def test_run_by_run():
    """The page says: first in four of six and second in two."""
    said = "run by run it is first in four of six and second in two"
    assert said in claims_of("docs/benchmark.md")
    assert sorted(CPU.places()) == [1] * 4 + [2] * 2


def test_the_gamma_that_works():
    swept = {}
    for line in CPU.book.lines:
        if line.method == OURS and line.ran.feedback == "training":
            swept[line.ran.calibration["gamma"]] = line.mean("ece")
    assert min(swept, key=swept.get) == 0.7


def test_what_sees_held_out_labels():
    """Of the sixteen, thirteen are of stage I; the other three see them."""
    lines = [
        CPU.book.get(setting, name) for setting in CPU.book.settings for name in ("tst", "vtst")
    ]
    told = [line.ran.feedback for line in lines if line is not None]
    assert set(told) <= {"held-out"}
    text = claims_of("docs/benchmark.md")
    assert "TST and V-TST choose their epoch on them" in text
    assert "which the other fifteen do not" not in text
