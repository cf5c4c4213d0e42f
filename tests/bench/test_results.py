"""The benchmark that was run: its grid is complete, and its report is that of its rows."""

import json
from pathlib import Path

import pytest

from maccal.bench.grids import jobs, plan
from maccal.cli.bench import read
from maccal.report.leaderboard import leaderboard_page

RESULTS = Path(__file__).parents[2] / "results"
ROWS = read(RESULTS / "bench-cpu.jsonl")


def board(page):
    """The lines of a page's leaderboard, as its script gets them."""
    return json.loads(page.split('id="board">')[1].split("</script>")[0])


def test_every_run_of_every_grid_is_there(tmp_path):
    states = plan(jobs("all", "cpu", (1, 2, 3)), tmp_path, ROWS).states
    assert {name: state for name, state in states.items() if state != "done"} == {}
    assert set(states) == set(ROWS)


def test_the_networks_know_their_images_by_heart_and_are_overconfident():
    vanilla = [row for row in ROWS.values() if row.ran.method == "vanilla"]
    assert len(vanilla) == 6
    assert min(row.trained["accuracy"] for row in vanilla) >= 0.99
    assert min(row.numbers["ece_low"] for row in vanilla) > 0.2


@pytest.mark.slow
def test_the_report_is_of_these_rows():
    """Its data are; how they look is up to the version that drew them (test_leaderboard.py)."""
    page = (RESULTS / "bench-cpu.html").read_text()
    assert board(page) == board(leaderboard_page(list(ROWS.values()), figures={}))


def test_the_report_opens(browser):
    """With every line in its table, the ten figures, and no complaint."""
    view = browser.new_page()
    complaints = []
    view.on("console", lambda message: complaints.append(message.text))
    view.on("pageerror", lambda error: complaints.append(str(error)))
    view.goto((RESULTS / "bench-cpu.html").as_uri(), wait_until="load")
    lines = len(board(view.content()))
    assert view.locator("#status").inner_text().startswith(f"{lines} of {lines} lines")
    assert view.locator("#leaderboard tbody tr").count() == lines
    assert view.locator(".drawn svg").count() == 10
    assert complaints == []
    view.close()
