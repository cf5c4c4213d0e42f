"""The benchmark that was run: its grid is complete, and its report is that of its rows."""

import re
from pathlib import Path

from maccal.bench.grids import jobs, plan
from maccal.cli.bench import read
from maccal.report.leaderboard import leaderboard_page

RESULTS = Path(__file__).parents[2] / "results"
ROWS = read(RESULTS / "bench-cpu.jsonl")


def without_figures(page):
    """Their letters depend on the version of the library that draws them."""
    return re.sub(r"<h2>Figures</h2>.*<h2>Failed runs</h2>", "", page, flags=re.DOTALL)


def test_every_run_of_every_grid_is_there(tmp_path):
    states = plan(jobs("all", "cpu", (1, 2, 3)), tmp_path, ROWS).states
    assert {name: state for name, state in states.items() if state != "done"} == {}
    assert set(states) == set(ROWS)


def test_the_networks_know_their_images_by_heart_and_are_overconfident():
    vanilla = [row for row in ROWS.values() if row.ran.method == "vanilla"]
    assert len(vanilla) == 6
    assert min(row.trained["accuracy"] for row in vanilla) >= 0.99
    assert min(row.numbers["ece_low"] for row in vanilla) > 0.2


def test_the_report_is_of_these_rows():
    page = (RESULTS / "bench-cpu.html").read_text()
    assert page.count("<svg") >= 9
    assert without_figures(page) == without_figures(leaderboard_page(list(ROWS.values())))
