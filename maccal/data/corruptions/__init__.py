"""The fifteen corruptions of CIFAR-C (Hendrycks & Dietterich 2019), made from any images.

Corrupt("fog", severity=3, seed=1)(images)    uint8 N x 3 x H x W in and out
CORRUPTIONS                                   the fifteen, each with its five severities
stored, folder_of                             made once, and kept on disk for all that want them
"""

from maccal.data.corruptions.registry import CORRUPTIONS, Corrupt, Corruption
from maccal.data.corruptions.stored import folder_of, stored

__all__ = ["CORRUPTIONS", "Corrupt", "Corruption", "folder_of", "stored"]
