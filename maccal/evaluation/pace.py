"""Which calibrators would take too long, by what they took elsewhere (results/posthoc.md).

A rough guess, for one core of 2024, that does not depend on the machine it runs on: the same file
has the same calibrators left out everywhere.
"""

SECONDS = 120.0
# seconds of one fit: for each million rows x classes, and for each billion rows x classes^2
PACE = {
    "vector": (0.1, 0.7),
    "structured vector": (0.05, 0.15),
    "beta": (0.2, 0.0),
    "isotonic": (0.03, 0.0),
    "Venn-Abers": (1.1, 0.0),
    "structured matrix": (0.1, 0.8),
    "Dirichlet": (2.0, 120.0),  # its strength is chosen by several fits
}


def too_long(rows: int, classes: int, folds: int, seconds: float) -> dict[str, str]:
    """The calibrators whose fits would take longer than that, and the reason in words.

    >>> too_long(50_000, 1000, 5, 120.0)["structured matrix"]
    'left out, its 5 fits would take about 3 minutes; name it, or allow more seconds'
    """
    if not seconds > 0:
        raise ValueError(f"seconds is {seconds}; expected a number above 0, such as 120")
    fitted_on = rows * (folds - 1) / folds
    found = {}
    for name, (by_column, by_square) in PACE.items():
        each = (by_column * classes / 1e6 + by_square * classes**2 / 1e9) * fitted_on
        if folds * each > seconds:
            minutes = max(1, round(folds * each / 60))
            length = f"about {minutes} minute{'s' * (minutes > 1)}"
            remedy = "name it, or allow more seconds"
            found[name] = f"left out, its {folds} fits would take {length}; {remedy}"
    return found
