"""The verb `maccal report`: rows of the benchmark in, one page out."""

import json
from pathlib import Path

import tyro
from rich.console import Console
from rich.text import Text

from maccal.files import write
from maccal.report.claims import claims
from maccal.report.leaderboard import leaderboard_page


def report(
    rows: tyro.conf.Positional[tuple[Path, ...]], out: Path = Path("report.html"), title: str = "Calibration methods, compared"
) -> None:
    """Write the page of the benchmark: leaderboard, the paper's tables with ours, and which of its claims hold here.

    Args:
        rows: .jsonl files of rows, such as results/bench-cpu.jsonl.
        out: the page.
        title: of the page.
    """
    found = [json.loads(line) for file in rows for line in file.read_text().splitlines() if line.strip()]
    page = write(out, leaderboard_page(found, title=title))
    console = Console()
    for claim in claims(found):
        console.print(Text(f"{claim.verdict:15} {claim.words}"), soft_wrap=True)
    console.print(Text(f"report: {page}"))
