"""The page of benchmarks/monitor.py: the numbers of results/monitor.json as results/monitor.md."""

from collections.abc import Callable
from typing import Any

Row = dict[str, Any]


def page(record: Row) -> str:
    lines = ["# The alarms of a monitor", ""]
    lines += ["<!-- Made by benchmarks/monitor.py from results/monitor.json. -->", ""]
    lines += [*section("False alarms", record["false_alarms"], FALSE), ""]
    lines += [
        f"A share of {100 * record['alpha']:.0f} % is allowed, over all looks at a stream"
        f" together; one look after every {record['batch']} rows, if nothing else is said."
        " The interval is Wilson's, at 95 %.",
        "",
    ]
    lines += [*section("Rows until the alarm", record["delays"], DELAYS), ""]
    lines += [
        "A shift is taken off the log-odds of being right: at a confidence of 90 %, 0.2, 0.4 and"
        " 0.8 leave 88.1, 85.8 and 80.2 %. Peeking is quick because it is wrong: see its false"
        f" alarms above, and in how many of {record['delays'][0]['streams']} streams it fired"
        " before anything had happened. Bonferroni has to know the number of looks beforehand.",
        "",
    ]
    lines += [*section("The accuracy to expect without labels", record["coverage"], COVERED), ""]
    lines += [
        "How often the 95 % interval held the accuracy that 500 rows turned out to have; the"
        " reference has 2,000 rows that are surer than those. With a shift of 0.4 the confidence is"
        " wrong, and only the reference knows.",
        "",
    ]
    lines += [*section("A real network", record["real"], REAL), ""]
    lines += [
        "ResNet-20 on CIFAR-10 with a temperature; 2,500 clean images, then 2,500 corrupted ones;"
        " tolerance 2 points. The last two columns: corrupted images until the alarm, with labels"
        " (calibration) and without (drift); below zero, before there were any; none, never."
        " Expected is the accuracy that the confidence and 2,500 labelled clean images promise:"
        " where the corruption makes the confidence itself wrong, it is too high, and only labels"
        " can tell.",
        "",
        f"Seed {record['seed']}; {record['versions']}; `python benchmarks/monitor.py`.",
    ]
    return "\n".join(lines) + "\n"


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def span(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {100 * high:.1f} %"


def count(value: float | None) -> str:
    return "none" if value is None else f"{value:,.0f}"


Columns = dict[str, Callable[[Row], str]]
FALSE: Columns = {
    "": lambda row: row["name"],
    "streams": lambda row: count(row["streams"]),
    "looks": lambda row: count(row["looks"]),
    "with an alarm": lambda row: percent(row["share"]),
    "95 % interval": lambda row: span(row["low"], row["high"]),
}
DELAYS: Columns = {
    "": lambda row: row["name"],
    "rows before": lambda row: count(row["quiet_rows"]),
    "shift": lambda row: f"{row['shift']:.1f}",
    "alarms before": lambda row: str(row["before"]),
    "median": lambda row: count(row["median"]),
    "nine in ten": lambda row: count(row["nine_tenths"]),
}
COVERED: Columns = {
    "shift": lambda row: f"{row['shift']:.1f}",
    "from": lambda row: row["from"],
    "held": lambda row: percent(row["held"]),
    "95 % interval": lambda row: span(row["low"], row["high"]),
}
REAL: Columns = {
    "corruption": lambda row: row["corruption"].replace("_", " "),
    "severity": lambda row: str(row["severity"]),
    "accuracy": lambda row: percent(row["accuracy"]),
    "expected": lambda row: percent(row["expected"]),
    "its interval": lambda row: span(row["expected_low"], row["expected_high"]),
    "ECE": lambda row: percent(row["ece"]),
    "calibration": lambda row: count(row["calibration"]),
    "drift": lambda row: count(row["drift"]),
}


def section(title: str, rows: list[Row], columns: Columns) -> list[str]:
    lines = [f"## {title}", "", f"| {' | '.join(columns)} |"]
    lines.append("|---|" + "---:|" * (len(columns) - 1))
    for row in rows:
        lines.append(f"| {' | '.join(shown(row) for shown in columns.values())} |")
    return lines
