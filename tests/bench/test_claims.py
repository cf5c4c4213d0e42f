"""Claims about rows that are made up so that the answer is known; what is not there is named."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from made_up_rows import row, seeded

from maccal.bench.ablations import READINGS, ablated
from maccal.bench.claims import claims
from maccal.bench.grids import GAMMAS
from maccal.bench.judging import ORDER
from maccal.bench.lines import Book
from maccal.bench.scales import ALPHAS, SCALES
from maccal.bench.standing import OURS, compared, standing
from maccal.bench.sweeps import ALPHA_ENDS, GAMMA_ENDS
from maccal.bench.titles import PRINTED
from maccal.calibration import stage2
from maccal.calibration.stage2 import ABLATION, Stage2
from maccal.methods.registry import METHODS


def claim(rows, start):
    (found,) = [one for one in claims(rows) if one.words.startswith(start)]
    return found


def outside(auroc=0.8, fpr95=0.6):
    ends = {"auroc_low": auroc - 0.01, "auroc_high": auroc + 0.01}
    ends |= {"fpr95_low": fpr95 - 0.01, "fpr95_high": fpr95 + 0.01}
    return {"ood": {"mean": {"auroc": auroc, "fpr95": fpr95, **ends}}}


def test_every_claim_is_listed_and_says_what_is_missing():
    found = claims([])
    assert len(found) == len({one.words for one in found}) == 26
    assert {one.verdict for one in found} == {"not judged"}
    assert all("run `maccal bench " in one.evidence for one in found)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(0.50, "holds"), (0.70, "does not hold"), (0.599, "cannot be told")]
)
def test_images_taken_for_its_own(ours, verdict):
    rows = [row("vanilla", **outside()), row("maccal", **outside(fpr95=ours))]
    found = claim(rows, "MaC-Cal takes fewer images")
    assert found.verdict == verdict
    assert f"{100 * ours:.2f} % against 60.00 %" in found.evidence


def test_in_how_many_runs():
    """Three seeds of two data sets: worse in all six."""
    rows = []
    for data in ("cifar10", "cifar100"):
        for seed in (1, 2, 3):
            rows.append(row("vanilla", seed, data=data, **outside(fpr95=0.6)))
            worse = outside(fpr95=0.61 + 0.001 * seed)
            rows.append(row("maccal", seed, data=data, **worse))
    found = claim(rows, "MaC-Cal takes fewer images")
    assert found.verdict == "does not hold"
    assert found.evidence.endswith("Lower in 0 of 6 runs, higher in 6.")


def test_auroc_against_plp():
    plp, ours = row("plp", **outside(0.82)), row("maccal", **outside(0.80))
    start = "MaC-Cal tells images from elsewhere better than PLP"
    found = claim([plp, ours], start)
    assert found.verdict == "does not hold"
    assert "80.00 % against 82.00 %" in found.evidence
    assert claim([ours], start).verdict == "not judged"
    assert "MaC-Cal and PLP" in claim([ours], start).evidence


def alpha_row(method, alpha, seed=1, **more):
    stage = "maccal" if method.endswith("+maccal") else None
    variant = f"mixup,alpha={alpha:g}" if method.startswith("mixup") else f"mit,alpha={alpha:g}"
    if stage:
        variant += "+maccal"
    return row(method, seed, variant=variant, settings={"alpha": alpha}, **more)


def mixed(alone, ours, mit=None):
    """Rows over alpha: (confidence, ECE) of mixup and of mixup with MaC-Cal, ECE of MIT."""
    rows = []
    for alpha, (confidence, ece) in alone.items():
        rows.append(alpha_row("mixup", alpha, ece=ece, confidence=confidence))
    for alpha, (confidence, ece) in ours.items():
        rows.append(alpha_row("mixup+maccal", alpha, ece=ece, confidence=confidence))
    for alpha, ece in (mit or {}).items():
        rows.append(alpha_row("mit", alpha, ece=ece))
    return rows


ALONE = {0.2: (0.95, 0.05), 1.0: (0.88, 0.03), 5.0: (0.70, 0.20)}  # accuracy is 0.9


@pytest.mark.parametrize(
    ("confidence", "verdict"),
    [(0.89, "holds"), (0.60, "does not hold"), (0.70, "cannot be told")],
)
def test_underconfidence_cured(confidence, verdict):
    """Only where mixup alone is underconfident; at 0.2 it is too sure."""
    ours = {0.2: (0.91, 0.02), 1.0: (0.897, 0.02), 5.0: (confidence, 0.02)}
    found = claim(mixed(ALONE, ours), "Where mixup makes a network underconfident")
    assert found.verdict == verdict
    assert "at alpha 1: −2.00 alone, −0.30 with MaC-Cal; 5: −20.00 alone" in found.evidence
    assert "0.2:" not in found.evidence


def test_nothing_to_cure():
    """A network that is too sure at every alpha says nothing of underconfidence."""
    sure = dict.fromkeys(ALONE, (0.95, 0.05))
    found = claim(mixed(sure, sure), "Where mixup makes a network underconfident")
    assert found.verdict == "not judged"


@pytest.mark.parametrize(
    ("highest", "verdict"), [(0.021, "holds"), (0.09, "does not hold"), (0.029, "cannot be told")]
)
def test_steady_over_alpha(highest, verdict):
    ours = {0.2: (0.9, 0.02), 1.0: (0.9, 0.0201), 5.0: (0.9, highest)}
    rows = mixed(ALONE, ours)
    found = claim(rows, "On mixup, MaC-Cal is steady over alpha")
    assert found.verdict == verdict
    assert f"highest {100 * highest:.2f} % at alpha 5" in found.evidence
    fewer = [one for one in rows if one.ran.settings["alpha"] != 1.0]
    assert claim(fewer, "On mixup, MaC-Cal is steady").verdict == "not judged"


def test_mit_against_mixup_and_against_ours():
    ours = dict.fromkeys(ALONE, (0.9, 0.02))
    rows = mixed(ALONE, ours, {0.2: 0.15, 1.0: 0.10, 5.0: 0.05})
    found = claim(rows, "MIT lowers mixup's ECE")
    assert found.verdict == "does not hold"
    assert "at alpha 0.2 +10.00 points" in found.evidence
    assert claim(rows, "MaC-Cal on mixup has a lower ECE than MIT").verdict == "holds"
    better = mixed(ALONE, ours, {0.2: 0.02, 1.0: 0.013, 5.0: 0.05})
    assert claim(better, "MIT lowers mixup's ECE").verdict == "holds"


def timed(seconds, seeds=(1, 2, 3)):
    """Stage I of vanilla takes 100; those of a stage II are given without it."""
    rows = [row("vanilla", seed, seconds=100.0) for seed in seeds]
    for name, time in seconds.items():
        rows += [row(name, seed, seconds=time + 0.01 * seed) for seed in seeds]
    return rows


def test_relative_cost():
    times = {"mit": 190.0, "balcal": 110.0, "tst": 6.0, "vtst": 5.0, "maccal": 5.0}
    found = claim(timed(times), "MaC-Cal trains as fast as the fastest")
    assert found.verdict == "holds"
    assert "MaC-Cal 1.05 (1.05), MIT 1.90 (1.85), TST 1.06 (1.08)" in found.evidence
    slow = claim(timed({**times, "maccal": 9.0}), "MaC-Cal trains as fast as the fastest")
    assert slow.verdict == "does not hold"
    some = claim(timed({"tst": 6.0, "maccal": 5.0}), "MaC-Cal trains as fast as the fastest")
    assert some.verdict == "not judged"
    assert some.evidence.endswith("Not timed: MIT, VTST, BalCAL.")


def test_a_short_trial_is_not_the_cost_of_stage_2():
    """One epoch of a large network is soon outweighed; where methods are compared, it is not."""
    rows = timed({"tst": 6.0, "maccal": 5.0})
    rows += [row("vanilla", 1, model="resnet50"), row("maccal", 1, model="resnet50", seconds=90.0)]
    assert "It took 5.0 % of the first stage's time on average over 3 runs" in (
        claim(rows, "The second stage").evidence
    )


def paths(*ends, **changes):
    """Runs whose keep falls fast, then moves by so much in its last quarter."""
    rows = []
    for seed, end in enumerate(ends, 1):
        path = [0.5, 0.3, *[0.1] * 28, *np.linspace(0.1, 0.1 + end, 10).tolist()]
        choices = asdict(Stage2(start="fresh", **changes).settled(trained=True))
        words = [f"{key}={value}" for key, value in {"start": "fresh", **changes}.items()]
        variant = ",".join(["maccal", *words])
        more = {"stage2": choices, "feedback": "held-out", "variant": variant}
        rows.append(replace(row("maccal", seed, **more), keep=tuple(path)))
    return rows


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.001, 0.002, 0.003), "holds"),
        ((0.2, 0.21, 0.19), "does not hold"),
        ((0.001, 0.04), "cannot be told"),
        ((0.001,), "not judged"),
    ],
)
def test_sparsity_settles(ends, verdict):
    found = claim(paths(*ends), "The sparsity settles")
    assert found.verdict == verdict
    if len(ends) == 3:
        assert "40.00 % of the weights in the first quarter" in found.evidence


FOUR = ("resnet50", "resnet110", "wrn26_10", "densenet121")


def test_the_papers_four_networks():
    rows = []
    for model in FOUR:
        rows += [row("vanilla", ece=0.1, model=model), row("maccal", ece=0.02, model=model)]
    start = "MaC-Cal lowers vanilla's ECE on each of the paper's four"
    found = claim(rows, start)
    assert found.verdict == "holds"
    assert "WRN-26-10 (24 epochs, 90.00 % right): −8.00 points" in found.evidence
    fewer = claim(rows[:4], start)
    assert fewer.verdict == "not judged"
    assert fewer.evidence.endswith(
        "No runs of WRN-26-10, DenseNet-121; run `maccal bench networks`."
    )
    worse = [
        replace(one, numbers={**one.numbers, "ece": 0.3}) if "wrn" in one.name else one
        for one in rows
    ]
    assert claim(worse, start).verdict == "cannot be told"  # equal there


def everyone(ours, others=0.05, **more):
    return [row(name, ece=ours if name == OURS else others, **more) for name in METHODS]


def test_tiny_imagenet_is_judged_by_itself():
    start = "MaC-Cal has the lowest ECE of all methods on Tiny-ImageNet"
    elsewhere = everyone(0.08)
    tiny = everyone(0.02, data="tiny-imagenet", model="resnet10", limit=None)
    assert claim(elsewhere, start).verdict == "not judged"
    assert "at a scale that has this data set" in claim(elsewhere, start).evidence
    found = claim([*elsewhere, *tiny], start)
    assert found.verdict == "holds"
    assert "2.00 % over Tiny-ImageNet" in found.evidence
    assert claim([*elsewhere, *tiny[:4], tiny[-1]], start).verdict == "not judged"


def test_trials_and_single_seeds_leave_the_comparison_alone():
    """Two data sets with three seeds; one with one seed; a network with vanilla alone beside it."""
    rows = []
    for data in ("cifar10", "cifar100"):
        for name in METHODS:
            ece = 0.02 if name == OURS else 0.05
            rows += seeded(name, [ece, ece + 0.001, ece + 0.002], data=data)
    main = claim(rows, "MaC-Cal has the lowest ECE of all methods, averaged")
    rows += everyone(0.09, data="tiny-imagenet", model="resnet10")
    rows += [row("vanilla", model="resnet50"), row("maccal", model="resnet50", ece=0.3)]
    book = Book.of(rows)
    assert [setting.data for setting in compared(book, "ece")] == ["cifar10", "cifar100"]
    after = claim(rows, "MaC-Cal has the lowest ECE of all methods, averaged")
    assert after.evidence.startswith(main.evidence)  # the mean is as it was
    assert (main.verdict, after.verdict) == ("holds", "cannot be told")
    assert "3 seeds" in main.evidence
    found = standing(book)
    assert [setting.model for setting in found.apart] == ["resnet50", "resnet10"]
    assert len(found.settings) == 2


def test_intervals_of_standing():
    """By Student's law over seeds, by the normal law of the interval of one."""
    rows = [r for name in METHODS for r in seeded(name, [0.050, 0.0501, 0.0502])]
    rows = [one for one in rows if one.ran.method not in (OURS, "ls")]
    rows += [*seeded(OURS, [0.019, 0.020, 0.021]), row("ls", ece=0.05, width=0.0196 * 2)]
    found = standing(rows)
    low, high = found.ece_intervals[OURS]
    reach = 4.3027 * 0.001 / 3**0.5  # of Student's law with two degrees of freedom
    assert (low, high) == pytest.approx((0.02 - reach, 0.02 + reach), abs=1.5e-4)
    assert found.ece_intervals["ls"] == pytest.approx((0.0304, 0.0696), abs=6e-4)
    assert found.rank == 1
    assert found.rank_intervals[OURS] == (1, 1)
    low, high = found.rank_intervals["ls"]
    assert (low, found.ranks["ls"], high) == (2, 2, 16)
    assert (found.seeds[OURS], found.seeds["ls"]) == (3, 1)
    assert standing(rows) == standing(rows[::-1])


def test_rows_without_intervals_have_none():
    bare = [replace(one, numbers={"ece": one.numbers["ece"]}) for one in everyone(0.02)]
    found = standing(bare)
    assert found.rank == 1
    assert found.ece_intervals == found.rank_intervals == {}


# The ablation, by reading


def step_rows(eces, reading):
    made = [row("vanilla", 1, eces[0])]
    for name, ece in list(zip(ABLATION, eces, strict=True))[1:]:
        choices = asdict(Stage2.ablation(name, reading))
        words = [f"{key}={value}" for key, value in choices.items()]
        variant = f"maccal,{','.join(words)}"
        made.append(row(OURS, 1, ece, variant=variant, stage2=choices, feedback="held-out"))
    return made


@pytest.mark.parametrize("reading", READINGS)
def test_each_reading_of_the_ablation_has_its_claim(reading):
    rows = step_rows([0.20, 0.16, 0.12, 0.08, 0.06, 0.04], reading)
    words = f"Every step of the ablation lowers ECE, if {READINGS[reading]}"
    assert claim(rows, words).verdict == "holds"
    others = [one for one in READINGS if one != reading]
    for other in others:
        found = claim(rows, f"Every step of the ablation lowers ECE, if {READINGS[other]}")
        assert found.verdict == "not judged"
        assert "by this reading" in found.evidence
    fewer = claim(rows[:3], words)
    assert fewer.verdict == "not judged"
    assert "Not measured with the step before: restructured, static, decaying." in fewer.evidence


def test_the_rows_of_both_readings_are_told_apart():
    assert set(READINGS) == set(stage2.READINGS)
    for reading in READINGS:
        book = Book.of(step_rows([0.20, 0.16, 0.12, 0.08, 0.06, 0.04], reading))
        for name in ABLATION:
            line = ablated(book, book.settings[0], name, reading)
            assert line is not None


# Gamma, over several sweeps


def gamma_rows(eces, data="cifar100", **changes):
    rows = [row("vanilla", 1, 0.2, data=data)]
    for gamma, ece in eces.items():
        choices = asdict(Stage2(statistics="deployed", gamma=gamma, **changes))
        words = [f"{key}={value}" for key, value in changes.items()]
        variant = ",".join(["maccal", "statistics=deployed", *words, f"gamma={gamma}", "training"])
        more = {"stage2": choices, "feedback": "training", "data": data, "width": 0.002}
        rows.append(row(OURS, 1, ece, variant=variant, **more))
    return rows


def test_every_sweep_of_gamma_counts():
    steady = gamma_rows({0.5: 0.030, 0.9: 0.031, 0.99: 0.033})
    wild = gamma_rows({0.5: 0.03, 0.9: 0.10, 0.99: 0.25}, hidden=512)[1:]
    assert claim(steady, "MaC-Cal is hardly sensitive").verdict == "holds"
    both = claim(steady + wild, "MaC-Cal is hardly sensitive")
    assert both.verdict == "does not hold"
    assert "CIFAR-100, resnet8, 3 values: lowest 3.00 % at gamma 0.5" in both.evidence
    assert "CIFAR-100, resnet8, hidden=512, 3 values" in both.evidence
    elsewhere = steady + gamma_rows({0.5: 0.03, 0.9: 0.031, 0.99: 0.03}, data="cifar10")
    assert claim(elsewhere, "MaC-Cal is hardly sensitive").verdict == "holds"
    assert claim(elsewhere, "Without held-out labels").verdict == "holds"
    assert claim(steady + wild, "Without held-out labels").verdict == "does not hold"


def test_the_worst_of_several_verdicts_counts():
    assert set(ORDER) == {"holds", "does not hold", "cannot be told", "not judged"}


def test_few_methods_on_a_new_data_set_leave_the_others_their_rank():
    """The largest table without a gap is ranked; what is not in it is named."""
    names = ("vanilla", "maccal", "plp", "ls", "mixup", "fl")
    rows = [row(name, ece=0.01 * n, data="cifar10") for n, name in enumerate(names, 1)]
    begun = [row(name, ece=0.2, data="cifar100") for name in ("vanilla", "maccal", "plp")]
    found = standing(rows + begun)
    assert [setting.data for setting in found.settings] == ["cifar10"]
    assert [setting.data for setting in found.apart] == ["cifar100"]
    assert set(found.ranks) == set(names)
    assert "tst" in found.absent
    assert not set(names) & set(found.absent)
    evidence = claim(rows + begun, "MaC-Cal has the lowest ECE of all methods, averaged").evidence
    assert evidence.startswith("2.00 % over CIFAR-10; lowest of 5 others: Vanilla, 1.00 %")
    # one method that failed on the second set costs that method, not the set
    most = [row(name, ece=0.2, data="cifar100") for name in names if name != "fl"]
    found = standing(rows + most)
    assert [setting.data for setting in found.settings] == ["cifar10", "cifar100"]
    assert "fl" in found.absent


def test_combinations_are_judged_where_most_of_them_are():
    """A method that has begun on another data set alone does not mix it in."""
    rows = []
    for name in ("ls", "fl", "mixup"):
        rows += [row(name, ece=0.10), row(f"{name}+maccal", ece=0.02)]
    rows += [row("ls", ece=0.10, data="cifar100"), row("ls+maccal", ece=0.5, data="cifar100")]
    found = claim(rows, "Adding MaC-Cal to any")
    assert found.verdict == "not judged"
    assert "over CIFAR-10: LS −8.00 points" in found.evidence
    assert "Not measured everywhere: ACLS, MbLS, MIT, FLSD, DFL, CPC, MMCE." in found.evidence
    assert "Really lower in 3 of 3 comparisons" in found.evidence


# What rows do not support must not hold


def test_ranks_of_rows_without_intervals_are_no_evidence():
    bare = [replace(one, numbers={"ece": one.numbers["ece"]}) for one in everyone(0.02)]
    found = claim(bare, "MaC-Cal has the best mean rank")
    assert found.verdict == "cannot be told"
    assert "no test, one seed without intervals" in found.evidence


def test_accuracy_gained_on_one_set_does_not_pay_for_another():
    rows = []
    for data, own in (("cifar10", 0.93), ("cifar100", 0.87)):
        rows += [row("vanilla", data=data), row("maccal", data=data, accuracy=own)]
    found = claim(rows, "MaC-Cal keeps accuracy")
    assert found.verdict == "does not hold"
    assert "CIFAR-100, resnet8: 87.00 % against 90.00 % (−3.00 points" in found.evidence
    assert claim(rows[:2], "MaC-Cal keeps accuracy").verdict == "holds"


def test_every_setting_in_which_alpha_is_swept_counts():
    """The second must not overwrite the first."""
    rows = []
    for data, ece, confidence in (("cifar10", 0.2, 0.5), ("cifar100", 0.02, 0.9)):
        for alpha in (0.2, 1.0, 5.0):
            rows.append(alpha_row("mixup", alpha, ece=0.1, confidence=0.8, data=data))
            more = {"ece": ece, "confidence": confidence, "data": data}
            rows.append(alpha_row("mixup+maccal", alpha, **more))
            rows.append(alpha_row("mit", alpha, ece=0.1, data=data))
    for start in ("Where mixup", "MaC-Cal on mixup has a lower ECE than MIT"):
        found = claim(rows, start)
        assert found.verdict == "does not hold"
        assert "5 on CIFAR-10, resnet8 +" in found.evidence


def test_a_range_holds_from_end_to_end_alone():
    """Values that are missing could refute it; those that are there can."""
    near = gamma_rows({0.95: 0.03, 0.97: 0.031, 0.99: 0.03})
    for start in ("MaC-Cal is hardly sensitive", "Without held-out labels"):
        found = claim(near, start)
        assert found.verdict == "not judged"
        assert found.evidence.endswith("Not from end to end, 0.5 to 0.99: CIFAR-100, resnet8.")
    wild = gamma_rows({0.95: 0.03, 0.97: 0.031, 0.99: 0.3})
    assert claim(wild, "MaC-Cal is hardly sensitive").verdict == "does not hold"
    ours = {0.2: (0.91, 0.02), 1.0: (0.897, 0.02)}
    found = claim(mixed({alpha: ALONE[alpha] for alpha in ours}, ours), "Where mixup makes")
    assert found.verdict == "not judged"
    assert "Not from end to end, 0.2 to 5: CIFAR-10, resnet8." in found.evidence


def test_the_ends_of_sweeps_are_those_of_the_grids():
    for scale in SCALES.values():
        assert (min(scale.alphas), max(scale.alphas)) == ALPHA_ENDS or scale.alphas == ALPHAS
    assert ALPHAS[0] <= ALPHA_ENDS[0] < ALPHA_ENDS[1] == ALPHAS[-1]
    assert (GAMMAS[0], GAMMAS[-1]) == GAMMA_ENDS


def test_keep_that_is_solved_for_says_nothing_of_eq_12():
    choices = asdict(Stage2().settled(trained=True))
    solved = [row("maccal", seed, stage2=choices, feedback="held-out") for seed in (1, 2)]
    solved = [replace(one, keep=(0.5,) * 5) for one in solved]
    found = claim(solved, "The sparsity settles")
    assert found.verdict == "not judged"
    assert "MaC-Cal by itself solves for keep" in found.evidence
    # a head that does not settle refutes it, whatever another does
    wide = paths(0.2, 0.21, 0.19, hidden=512)
    found = claim([*paths(0.001, 0.002, 0.003), *wide], "The sparsity settles")
    assert found.verdict == "does not hold"
    assert "With a linear head, over 3 runs" in found.evidence
    assert "With a bottleneck, over 3 runs" in found.evidence


def corrupted(ece, n=2000, source="made"):
    overall = {"ece": ece, "ece_pooled_mean": ece}
    return {"shift": {"n": n, "source": source, "overall": overall}}


@pytest.mark.parametrize("other", [{"n": 500}, {"source": "published"}])
def test_corruptions_of_other_images_are_not_compared(other):
    rows = []
    for seed in (1, 2, 3):
        rows.append(row("maccal", seed, **corrupted(0.05 + 0.001 * seed)))
        rows.append(row("vanilla", seed, **corrupted(0.10 + 0.0011 * seed)))
    start = "MaC-Cal has a lower ECE than vanilla on corrupted images, mean"
    assert claim(rows, start).verdict == "holds"
    rows[1::2] = [row("vanilla", seed, **corrupted(0.1, **other)) for seed in (1, 2, 3)]
    found = claim(rows, start)
    assert found.verdict == "cannot be told"
    assert "not on the same images" in found.evidence


def test_a_data_set_that_has_but_begun_could_refute_what_holds():
    start = "MaC-Cal has the lowest ECE of all methods, averaged"
    whole = everyone(0.02)
    assert claim(whole, start).verdict == "holds"
    begun = [row(name, ece=0.2, data="cifar100") for name in (OURS, "vanilla", "plp")]
    for words in (start, "MaC-Cal has the best mean rank"):
        found = claim([*whole, *begun], words)
        assert found.verdict == "not judged"
        assert found.evidence.endswith("Too few methods yet on CIFAR-100, resnet8.")
    # the paper's networks, which have no other methods, leave it alone
    trial = [row("vanilla", model="resnet50"), row(OURS, model="resnet50")]
    assert claim([*whole, *trial], start).verdict == "holds"


def test_the_printed_reading_stands_beside():
    choices = asdict(Stage2.paper())
    printed = row(OURS, ece=0.12, variant=PRINTED, stage2=choices, feedback="training")
    changes = ("calibration.as_printed", "feedback")
    printed = replace(printed, ran=replace(printed.ran, changes=changes))
    found = claim([*everyone(0.02), printed], "MaC-Cal has the lowest ECE of all methods, averaged")
    assert "As printed MaC-Cal has 12.00 % (+10.00 points, p < 0.001" in found.evidence
    assert found.verdict == "holds"


def test_a_mean_of_seeds_and_of_single_runs_says_so():
    rows = [one for name in METHODS for one in seeded(name, [0.05, 0.051, 0.052])]
    rows = [one for one in rows if one.ran.method not in (OURS, "ls")]
    rows += [*seeded(OURS, [0.019, 0.020, 0.0215]), row("ls")]
    found = claim(rows, "MaC-Cal has the lowest ECE of all methods, averaged")
    assert "really higher in 0. 1 by the intervals of one seed alone." in found.evidence


def test_a_single_seed_that_says_the_contrary_is_heard():
    """A data set of one seed is not averaged with those of three, and not forgotten."""
    rows = []
    for name in METHODS:
        ece = 0.02 if name == OURS else 0.05
        rows += seeded(name, [ece, ece + 0.001, ece + 0.0025 * (name == OURS) + 0.002])
    start = "MaC-Cal has the lowest ECE of all methods, averaged"
    assert claim(rows, start).verdict == "holds"
    assert claim([*rows, *everyone(0.02, data="cifar100")], start).verdict == "holds"
    found = claim([*rows, *everyone(0.2, data="cifar100")], start)
    assert found.verdict == "cannot be told"
    assert found.evidence.endswith("not in the mean, the contrary: CIFAR-100, resnet8.")
