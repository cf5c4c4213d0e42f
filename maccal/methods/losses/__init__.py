"""The losses of the training-time methods, as pure functions of (logits, labels, ...).

entropy     cross_entropy, label_smoothing; standard_normal_kl, V-TST's second term
margins     mbls, acls: penalties on logits that stand out by more than a margin
focal       focal, flsd, dual_focal: cross-entropy times a weight that falls with confidence
pairs       cpc, a logistic loss over pairs of classes, and mmce, a kernel over pairs of rows; and
            the terms of both alone
mixing      mixed_cross_entropy for mixup; decouple and mit_l for two mixes of the same pair

logits are N x K, labels are N int64; or N x K x d1 x ... with labels N x d1 x ..., every place of
which is a row. reduction="none" gives one loss per row. `class_weights` and `ignore_index` are
those of torch's cross-entropy, except that no label is ignored unless it is named (rows.py). MMCE,
a loss of the whole batch, refuses what it has no answer to: a value per row, class weights, more
than two dimensions.

bfloat16 and float16 are computed in float32, and finite logits up to 1e4 in magnitude give finite
values and gradients. reduction="sum" is the mean times N for every loss, also where pairs of rows
are involved, so that all losses have the same scale; N is the number of rows that count, or with
class weights the sum of theirs. Settings and the shapes of labels are checked, the values of labels
are not: one that is out of range raises in torch, or stops the kernel on a GPU.

Cost: next to nothing beside a network's pass, except cpc with many classes, which has N K^2 terms
(0.8 s at N = 128, K = 1000 on one core).
"""

from maccal.methods.losses.entropy import cross_entropy, label_smoothing, standard_normal_kl
from maccal.methods.losses.focal import dual_focal, flsd, focal
from maccal.methods.losses.margins import acls, mbls
from maccal.methods.losses.mixing import decouple, mit_l, mixed_cross_entropy
from maccal.methods.losses.pairs import (
    binary_discrimination,
    binary_exclusion,
    cpc,
    kernel_calibration_error,
    mmce,
)
from maccal.methods.losses.rows import Reduction

__all__ = [
    "Reduction",
    "acls",
    "binary_discrimination",
    "binary_exclusion",
    "cpc",
    "cross_entropy",
    "decouple",
    "dual_focal",
    "flsd",
    "focal",
    "kernel_calibration_error",
    "label_smoothing",
    "mbls",
    "mit_l",
    "mixed_cross_entropy",
    "mmce",
    "standard_normal_kl",
]
