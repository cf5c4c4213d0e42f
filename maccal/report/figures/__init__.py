"""The paper's figures, in two steps as in maccal.report.diagrams: prepare_*() turns rows into what
is shown, plot_*() draws it.

    leaderboard     ECE of every method on each data set and network; not in the paper
    motivation      Fig. 1: confidence and accuracy under masks, at inference and in retraining
    before_after    Fig. 2: logits, angles and calibration curve, before and after retraining
    scheme          Fig. 3: the two stages, drawn; the same for all rows
    averages        Fig. 4: accuracy, ECE, AECE and MCE of every method, over data sets and networks
    shift           Fig. 5: ECE under corruption, severity by severity, pooled and as a mean
    mixup           Fig. 6: ECE and accuracy over mixup's alpha
    gamma           Fig. 7: ECE over gamma
    sparsity        Fig. 8: the share of weights dropped, epoch by epoch
    cost            seconds of training against ECE; not in the paper

Rows are those of `maccal bench`, of all grids together if you like: each figure takes its own, and
a ValueError names the grid that makes what it lacks. FIGURES has all of them by name, and
draw_all(rows) draws those that can be drawn. motivation_from() and before_after_from() take arrays
of maccal.evaluation.masks instead of rows. Points are means over seeds, bars a standard deviation
over seeds (one seed: the run's 95 % interval), and grey is where a calibrated model would score 95
times in 100. `.savefig` writes svg, pdf or png, as wide as a page; rendered() gives their bytes,
the same every time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from maccal.bench.lines import Book, Rows
from maccal.report.figures.averages import Averages, plot_averages, prepare_averages
from maccal.report.figures.before_after import (
    BeforeAfter,
    before_after_from,
    plot_before_after,
    prepare_before_after,
)
from maccal.report.figures.board import Leaderboard, plot_leaderboard, prepare_leaderboard
from maccal.report.figures.cost import Cost, plot_cost, prepare_cost
from maccal.report.figures.drawing import rendered
from maccal.report.figures.motivation import (
    Motivation,
    motivation_from,
    plot_motivation,
    prepare_motivation,
)
from maccal.report.figures.scheme import Scheme, plot_scheme, prepare_scheme
from maccal.report.figures.sensitivity import (
    Gamma,
    Mixing,
    plot_gamma,
    plot_mixup,
    prepare_gamma,
    prepare_mixup,
)
from maccal.report.figures.shift import Shift, plot_shift, prepare_shift
from maccal.report.figures.sparsity import SparsityPath, plot_sparsity, prepare_sparsity
from maccal.report.look import Theme

__all__ = [
    "FIGURES",
    "Averages",
    "BeforeAfter",
    "Cost",
    "Entry",
    "Gamma",
    "Leaderboard",
    "Mixing",
    "Motivation",
    "Scheme",
    "Shift",
    "SparsityPath",
    "before_after_from",
    "draw_all",
    "motivation_from",
    "plot_averages",
    "plot_before_after",
    "plot_cost",
    "plot_gamma",
    "plot_leaderboard",
    "plot_mixup",
    "plot_motivation",
    "plot_scheme",
    "plot_shift",
    "plot_sparsity",
    "prepare_averages",
    "prepare_before_after",
    "prepare_cost",
    "prepare_gamma",
    "prepare_leaderboard",
    "prepare_mixup",
    "prepare_motivation",
    "prepare_scheme",
    "prepare_shift",
    "prepare_sparsity",
    "rendered",
]


class Entry(NamedTuple):
    """A figure.

    Its title, what it shows and how to read it, what it makes of rows, and how that is drawn.
    """

    title: str
    caption: str
    prepare: Callable[[Rows], Any]
    plot: Callable[[Any, Theme | None], Figure]


FIGURES = {
    "leaderboard": Entry(
        "Leaderboard: the calibration error of every method",
        "The farther left, the better calibrated; the method with the lowest mean over the "
        "panels is at the top. A dot within the grey cannot be told from a calibrated model. "
        "Hollow marks are the paper's, the mean of its networks on that data set. On a "
        "logarithmic axis (1, 2, 5, 10 %) equal steps multiply the ECE equally.",
        prepare_leaderboard,
        plot_leaderboard,
    ),
    "motivation": Entry(
        "Fig. 1: masking a trained head",
        "Weights of the last layer are dropped at random. Masked at inference, the network "
        "loses confidence and accuracy with it. Retrained under masks and used without any, it "
        "should lose confidence alone: in c, a solid line upon its dotted one is a model that "
        "is as sure as it is right.",
        prepare_motivation,
        plot_motivation,
    ),
    "before_after": Entry(
        "Fig. 2: before and after masked retraining",
        "Above the network as trained, below after MaC-Cal. Left, the logits of test images in "
        "the plane: colour is the class, and the fainter a point, the less sure the network. "
        "Middle, the angles between the classes' mean logits, as deviations from their mean: "
        "the more even, the clearer. Right, accuracy against confidence: dots on the diagonal "
        "are calibrated.",
        prepare_before_after,
        plot_before_after,
    ),
    "scheme": Entry(
        "Fig. 3: the two stages of MaC-Cal",
        "Stage I trains the network as ever, with any loss. Stage II keeps its body, takes the "
        "features of the training images once, and trains the classifier alone: in every step a "
        "random mask drops weights, and only those kept learn. After every epoch the confidence "
        "is compared with the accuracy, and the share of weights kept follows the gap.",
        prepare_scheme,
        plot_scheme,
    ),
    "averages": Entry(
        "Fig. 4: averages over data sets and networks",
        "Accuracy, and three measures of calibration error: the average gap between confidence "
        "and accuracy (ECE; AECE with bins of equally many rows) and the largest (MCE). High "
        "accuracy and small errors are good, and an error within the grey cannot be told from a"
        " calibrated model's.",
        prepare_averages,
        plot_averages,
    ),
    "shift": Entry(
        "Fig. 5: calibration under corruption",
        "The test images under fifteen corruptions, blur, noise and others, more of it from left "
        "to right. The lower a line and the flatter, the better the confidence keeps up with an "
        "accuracy that falls. Above, the images of all corruptions are one pool, in which opposite "
        "errors of two corruptions cancel; below, each corruption has its own ECE and their mean "
        "is shown, which is the larger by chance the fewer images there are.",
        prepare_shift,
        plot_shift,
    ),
    "mixup": Entry(
        "Fig. 6: mixup, MIT and MaC-Cal over alpha",
        "Mixup trains on blends of two images; the larger alpha, the more even the blend. Left "
        "the calibration error, low is good; right the accuracy, high is good. A flat line "
        "needs no tuning of alpha.",
        prepare_mixup,
        plot_mixup,
    ),
    "gamma": Entry(
        "Fig. 7: sensitivity to gamma",
        "Without held-out images MaC-Cal aims at gamma times the accuracy on its training "
        "images. The wider the range of gamma over which a line stays low, the less it "
        "matters which one is chosen. Dashed: what needs no gamma.",
        prepare_gamma,
        plot_gamma,
    ),
    "sparsity": Entry(
        "Fig. 8: weights dropped, epoch by epoch",
        "The share of the head's weights that MaC-Cal drops, as its feedback sets it anew after"
        " every epoch. By itself it solves for the share; Eq. 12, of a fresh head, moves it in "
        "steps. It should settle, and at a share of its own for each network and data set.",
        prepare_sparsity,
        plot_sparsity,
    ),
    "cost": Entry(
        "Cost: training time against calibration error",
        "Not in the paper. One point per method: the farther left the cheaper, the lower the "
        "better calibrated; both stages of the training count, in seconds of a machine that may"
        " have had other work, and the point is the median over seeds. A point within the grey "
        "cannot be told from a calibrated model.",
        prepare_cost,
        plot_cost,
    ),
}


def draw_all(rows: Rows, theme: Theme | None = None) -> tuple[dict[str, Figure], dict[str, str]]:
    """The figures that these rows suffice for, by name, and of the others what they lack."""
    book = Book.of(rows)
    drawn, absent = {}, {}
    for name, entry in FIGURES.items():
        try:
            data = entry.prepare(book)
        except ValueError as problem:
            absent[name] = str(problem)
        else:
            drawn[name] = entry.plot(data, theme)
    return drawn, absent
