"""The paper's figures, in two steps as in maccal.plots: prepare_*() turns rows or arrays into what is shown, plot_*() draws it.

    motivation      Fig. 1: confidence and accuracy under random masks, at inference and in retraining
    before_after    Fig. 2: logits, angles between classes and calibration curve, before and after retraining
    averages        accuracy, ECE, AECE and MCE of every method, over data sets and networks
    shift           ECE under corruption, severity by severity
    mixup           ECE and accuracy over mixup's alpha
    gamma           ECE over gamma
    sparsity        the share of weights dropped, epoch by epoch
    cost            seconds of training against ECE; not in the paper

Rows are those of `maccal bench`, of all grids together if you like: each figure takes its own, and a ValueError names the grid that
makes what it lacks. Points are means over seeds, bars their range (one seed: the run's 95 % interval), and grey is where a
calibrated model would score 95 times in 100. `.savefig` writes svg, pdf or png, as wide as a page.
"""

from maccal.figures.methods import (
    Averages,
    Cost,
    Shift,
    plot_averages,
    plot_cost,
    plot_shift,
    prepare_averages,
    prepare_cost,
    prepare_shift,
)  # fmt: skip
from maccal.figures.motivation import (
    BeforeAfter,
    Motivation,
    plot_before_after,
    plot_motivation,
    prepare_before_after,
    prepare_motivation,
)  # fmt: skip
from maccal.figures.sensitivity import (
    Gamma,
    Mixing,
    SparsityPath,
    plot_gamma,
    plot_mixup,
    plot_sparsity,
    prepare_gamma,
    prepare_mixup,
    prepare_sparsity,
)  # fmt: skip

__all__ = [
    "Averages", "BeforeAfter", "Cost", "Gamma", "Mixing", "Motivation", "Shift", "SparsityPath", "plot_averages",
    "plot_before_after", "plot_cost", "plot_gamma", "plot_mixup", "plot_motivation", "plot_shift", "plot_sparsity",
    "prepare_averages", "prepare_before_after", "prepare_cost", "prepare_gamma", "prepare_mixup", "prepare_motivation",
    "prepare_shift", "prepare_sparsity",
]  # fmt: skip
