"""The benchmark that was run: the grid `cpu` is complete, that of `full` grows, and the page of
both is that of their rows.
"""

import json
from pathlib import Path

import pytest

from maccal.bench.grids import jobs, plan
from maccal.cli.bench import read
from maccal.report.leaderboard import leaderboard_page

RESULTS = Path(__file__).parents[2] / "results"
ROWS = read(RESULTS / "bench-cpu.jsonl")
FULL = read(RESULTS / "bench-full.jsonl")


def board(page, prefix=""):
    """The lines of a leaderboard of the page, as its script gets them."""
    return json.loads(page.split(f'id="{prefix}board">')[1].split("</script>")[0])


def test_every_run_of_every_grid_is_there(tmp_path):
    states = plan(jobs("all", "cpu", (1, 2, 3)), tmp_path, ROWS).states
    assert {name: state for name, state in states.items() if state != "done"} == {}
    assert set(states) == set(ROWS)


def test_rows_of_full_are_of_its_grid():
    """Nothing but what the grid asks for, with numbers; some lack what is measured later."""
    assert set(FULL) <= {job.config.name for job in jobs("all", "full", (1, 2, 3))}
    assert all(row.numbers for row in FULL.values())


def test_the_networks_know_their_images_by_heart_and_are_overconfident():
    vanilla = [row for row in ROWS.values() if row.ran.method == "vanilla"]
    assert len(vanilla) == 6
    assert min(row.trained["accuracy"] for row in vanilla) >= 0.99
    assert min(row.numbers["ece_low"] for row in vanilla) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "prefix"), [(FULL, ""), (ROWS, "part2-")])
def test_the_report_is_of_these_rows(rows, prefix):
    """Its data are; how they look is up to the version that drew them (test_leaderboard.py)."""
    page = (RESULTS / "bench.html").read_text()
    assert board(page, prefix) == board(leaderboard_page(list(rows.values()), figures={}))


def test_the_report_opens(browser):
    """With every line in its table, its figures, and no complaint."""
    view = browser.new_page()
    complaints = []
    view.on("console", lambda message: complaints.append(message.text))
    view.on("pageerror", lambda error: complaints.append(str(error)))
    view.goto((RESULTS / "bench.html").as_uri(), wait_until="load")
    lines = len(board(view.content()))
    assert view.locator("#status").inner_text().startswith(f"{lines} of {lines} lines")
    assert view.locator("#leaderboard tbody tr").count() == lines
    # all ten, once the grids of Figs. 6 and 7 have rows
    assert 8 <= view.locator("#part .drawn svg").count() <= 10
    assert complaints == []
    view.close()
