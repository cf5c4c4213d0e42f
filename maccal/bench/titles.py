"""What methods, data sets and numbers are called: on the page, in tables, in figures and in claims.

title("maccal"), set_title("cifar10", 10_000)     'MaC-Cal', 'CIFAR-10, 10,000 images'
points(0.0142), chance(0.0004)                    '1.42', 'p < 0.001'
"""

import math
from collections.abc import Iterable, Mapping

from maccal.bench.paper import TITLES, YARDSTICKS

NAMES = {**TITLES, **YARDSTICKS, "maccal": "MaC-Cal"}
# by method, what the lines of its other reading (readings.py) are called in a book
PRINTED = "maccal,as_printed,training"
VARIANTS: Mapping[str, str] = {
    "maccal": PRINTED,
    "tst": "tst,as_in_maccal",
    "vtst": "vtst,as_in_maccal",
    "mmce": "mmce,weight=1,form=unweighted",
}
SETS = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}


def title(first: str, second: str | None = None) -> str:
    """A method as Table 1 calls it, or two stages; one that is not there keeps its name.

    >>> title("mbls", "maccal"), title("temperature"), title("new")
    ('MbLS + MaC-Cal', 'Temperature', 'new')
    """
    stages = [first] if second is None else [first, second]
    return " + ".join(NAMES.get(stage, stage) for stage in stages)


def in_order(methods: Iterable[str]) -> list[str]:
    """As in Table 1; those that are not there last."""
    order = {name: number for number, name in enumerate(TITLES)}
    return sorted(methods, key=lambda name: (order.get(name, len(order)), name))


def set_title(data: str, limit: int = 0) -> str:
    """
    >>> set_title("cifar10", 10_000), set_title("digits")
    ('CIFAR-10, 10,000 images', 'digits')
    """
    name = SETS.get(data, data)
    return f"{name}, {limit:,} images" if limit else name


def points(value: float, sign: bool = False) -> str:
    """A fraction in per cent, without the sign for it.

    >>> points(0.0142), points(0.0142, sign=True), points(-0.5, sign=True), points(float("nan"))
    ('1.42', '+1.42', '−50.00', '–')
    """
    if not math.isfinite(value):
        return "–"
    return f"{100 * value:{'+' if sign else ''}.2f}".replace("-", "−")


def chance(p: float) -> str:
    """
    >>> chance(0.0004), chance(0.25), chance(float("nan"))
    ('p < 0.001', 'p = 0.250', 'no test')
    """
    if math.isnan(p):
        return "no test"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
