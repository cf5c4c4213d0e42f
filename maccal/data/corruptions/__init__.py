"""The fifteen corruptions of CIFAR-C (Hendrycks & Dietterich 2019), made from any images.

Corrupt("fog", severity=3, seed=1)(images)    uint8 N x 3 x H x W in and out
CORRUPTIONS                                   the fifteen, each with its five severities
"""

from maccal.data.corruptions.registry import CORRUPTIONS, Corrupt, Corruption

__all__ = ["CORRUPTIONS", "Corrupt", "Corruption"]
