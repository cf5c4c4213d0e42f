"""How far a share counted in a simulation may lie from the share that it should be.

So that a test with few trials has a wide tolerance, and one with many a narrow one.
"""

import math

STANDARD_ERRORS = 3.5  # by chance alone, about once in 2,000 counts


def margin(share: float, trials: int) -> float:
    """In trials: 3.5 standard errors of a binomial count.

    >>> round(margin(0.95, 100), 2)  # so 95 of 100 may be 88
    7.63
    """
    return STANDARD_ERRORS * math.sqrt(trials * share * (1 - share))


def at_least(share: float, trials: int) -> float:
    """The fewest of the trials that a count with this share may be."""
    return trials * share - margin(share, trials)


def at_most(share: float, trials: int) -> float:
    """The most of the trials that a count with this share may be."""
    return trials * share + margin(share, trials)
