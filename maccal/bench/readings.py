"""Methods as others read them: which choices stand beside a method's own in the grids.

BESIDE      by method, a second reading of it, run wherever the method is
EARLIER     by method, what was its own when the rows of results/bench-cpu.jsonl were made
"""

from collections.abc import Mapping
from typing import Any

from maccal.calibration.stage2 import Stage2
from maccal.calibration.tst import TwoStage

# settings of stage I, choices of stage II
EARLIER: Mapping[str, Any] = {
    "maccal": Stage2(start="fresh"),
    "tst": TwoStage.as_in_maccal(),
    "vtst": TwoStage.as_in_maccal(variational=True),
    "mmce": {"weight": 2.0, "form": "weighted"},
}
# By the method of stage II where there is one: what the MaC-Cal paper says of TST and V-TST, MMCE
# as two later code bases have it, and MaC-Cal as printed, which listens to the training rows
BESIDE: Mapping[str, Mapping[str, Any]] = {
    "tst": {"stage2": TwoStage.as_in_maccal()},
    "vtst": {"stage2": TwoStage.as_in_maccal(variational=True)},
    "mmce": {"settings": {"weight": 1.0, "form": "unweighted"}},
    "maccal": {"stage2": Stage2.paper(), "feedback": "training"},
}
