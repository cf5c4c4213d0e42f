"""The table of starts_choice.py's rows: one line per choice, mean over networks and halves."""

from pathlib import Path

from starts_rows import Row, average, read

FIELDS = ("lr", "epochs", "centre", "weight_decay", "masking")
TEXT = """
## How the defaults were chosen

`python benchmarks/starts_choice.py FEATURES`; rows in [starts_choice.jsonl](starts_choice.jsonl).
{networks}; 5,000 labels, both halves, seed 1. NLL as a ratio to the temperature's, mean over
networks; accuracy is the worst difference to it on any network, in points. ECE under corruption is
pooled by severity.

{lines}
"""
HEADER = (
    *("rate", "epochs", "centred", "decay", "masks", "ECE", "AECE", "NLL", "Brier", "AURC"),
    *("accuracy", "ECE corrupted", "NLL corrupted"),
)


def choice_table(file: Path) -> str:
    """Empty where there are no rows."""
    rows = read(file)
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in FIELDS), []).append(row)
    if not rows:
        return ""
    names = list(dict.fromkeys(row["network"] for row in rows))
    optimum = next(group for key, group in groups.items() if key[1] == 0)
    lines = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    lines += [line_of(group, optimum, names) for group in groups.values()]
    return TEXT.format(networks=", ".join(names), lines="\n".join(lines))


def line_of(group: list[Row], optimum: list[Row], names: list[str]) -> str:
    first = group[0]
    cells = [f"{first['lr']:g}", str(first["epochs"]), "yes" if first["centre"] else "no"]
    cells += [f"{first['weight_decay']:g}", "off" if first["masking"] == "none" else "on"]
    if first["epochs"] == 0:
        cells = ["temperature", "", "", "", ""]
    cells += [f"{100 * average(group, key):.3f}" for key in ("ece", "aece")]
    cells.append(f"{ratio(group, optimum, names, 'nll'):.4f}")
    cells += [f"{average(group, key):.5f}" for key in ("brier", "aurc")]
    changes = [by_name(group, n, "accuracy") - by_name(optimum, n, "accuracy") for n in names]
    cells.append(f"{100 * min(changes):+.2f}")
    cells.append(f"{100 * average(group, 'shift.ece_pooled_mean'):.3f}")
    cells.append(f"{ratio(group, optimum, names, 'shift.nll'):.4f}")
    return f"| {' | '.join(cells)} |"


def by_name(group: list[Row], name: str, key: str) -> float:
    return average([row for row in group if row["network"] == name], key)


def ratio(group: list[Row], optimum: list[Row], names: list[str], key: str) -> float:
    """To the temperature's, mean over networks."""
    shares = [by_name(group, name, key) / by_name(optimum, name, key) for name in names]
    return sum(shares) / len(shares)
