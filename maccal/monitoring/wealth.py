"""Money that can only grow if the model is not what it says: tests that may be looked at any time.

A gambler starts with 1 and bets on the outcomes of rows at odds that are fair, or worse, as long as
the null hypothesis holds. Then money is a non-negative supermartingale, and Ville's inequality
bounds the chance that it *ever* reaches 1 / alpha by alpha: whoever looks after every batch, and
stops when he likes, raises a false alarm with probability alpha at most. (Ville 1939; Shafer and
Vovk 2019, Game-Theoretic Foundations; Ramdas, Grünwald, Vovk and Shafer 2023, Game-theoretic
statistics and safe anytime-valid inference.)

One bet. Row i states that it is right with probability p, and is right (h = 1) or not (h = 0). The
bet b is the likelihood ratio of a model whose log-odds are shifted by b:

    L_b(h) = exp(b h) / (1 - p + p exp(b)),        E[L_b] = 1 if P(h = 1) = p,

which is 1 + s (h - p) for a stake s: a bet on correct minus confidence. It is never above exp(|b|),
so even a wrong row of confidence 1 leaves it finite. For b < 0 it falls in h, so E[L_b] <= 1 for
every P(h = 1) >= p as well; for b > 0, for every P(h = 1) <= p. So a null hypothesis that allows a
range, low <= P(h = 1) <= high, is bet against at `low` downwards and at `high` upwards.

From sums. The log of the product over rows is b x (number right) - sum of log(1 - p + p exp(b)).
The logarithm is concave in p, so by Jensen's inequality the mean p of a group, put for each of its
rows, makes the money smaller, never larger. What is computed from the exact sums of fine bins is a
bound from below on a supermartingale. That keeps the guarantee, and with two thousand bins loses
nothing that is visible. Clipping p - tolerance at 0, or p + tolerance at 1, keeps it concave.

When does it begin? A bet that was placed long before the change has lost money ever since. So the
gambler puts the share 1 / (k (k + 1)) of his money aside for bets that begin with round k. These
shares sum to 1, so it is still one gambler with one unit of money, and the delay after k quiet
rounds grows by 2 log k instead of linearly in k (the idea of e-detectors: Shin, Ramdas and Rinaldo
2024; here with a bound on ever raising a false alarm). Within a round the money is split over
bets of several sizes and both directions, the whole and every bin; a mixture of supermartingales is
one.

Assumed: given its confidence and all that came before, a row is right with the stated probability.
Rows that share their luck, such as frames of one film, break that; so does a label that is more
likely to come when the row was wrong. The order of rounds must not depend on the outcomes.

Cost: a twentieth of a millisecond per round of 50 rows, a tenth per round of 1,000.
"""

import math

import numpy as np

# shifts of the log-odds; a shift of 0.1 turns 90 % into 89.1 %, one of 1.6 into 64.5 %
BETS = np.array([0.1, 0.2, 0.4, 0.8, 1.6])


def gains_down(hits: np.ndarray, rows: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Log of what the bets that P(hit) is below `low` win: bets x cells.

    >>> round(float(np.exp(gains_down(np.array(0.0), np.array(1.0), np.array(0.9)))[4]), 3)
    3.55
    """
    bets = -BETS.reshape(-1, *[1] * np.ndim(hits))
    return np.asarray(bets * hits - rows * np.log1p(low * np.expm1(bets)))


def gains_up(hits: np.ndarray, rows: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Log of what the bets that P(hit) is above `high` win: bets x cells."""
    bets = BETS.reshape(-1, *[1] * np.ndim(hits))
    return np.asarray(bets * hits - rows * np.log1p(high * np.expm1(bets)))


class Wealth:
    """One unit of money, split over bets by `shares` and over the rounds in which they begin.

    >>> wealth = Wealth(np.array([1.0]))
    >>> round(math.exp(wealth.round(np.log([3.0]))), 6)  # 1/2 x 3, and 1/2 still aside
    2.0
    >>> round(math.exp(wealth.round(np.log([3.0]))), 6)  # (3/2 + 1/6) x 3, and 1/3 aside
    5.333333
    """

    def __init__(self, shares: np.ndarray) -> None:
        self.shares = np.log(shares)
        self.money = np.full(len(shares), -np.inf)  # log, of each bet as if it had all
        self.rounds = 0

    def round(self, gains: np.ndarray) -> float:
        """The log of all money after a round in which each bet won exp(gains)."""
        self.rounds += 1
        begins = -math.log(self.rounds * (self.rounds + 1))
        self.money = gains + np.logaddexp(self.money, begins)
        aside = -math.log(self.rounds + 1)
        return float(np.logaddexp(np.logaddexp.reduce(self.money + self.shares), aside))
