"""What `maccal evaluate --task binary|multilabel` does: numbers, a JSON file and a page."""

from pathlib import Path

from rich.table import Table
from rich.text import Text

from maccal.cli.output import answer, note, tell
from maccal.cli.printing import right_aligned
from maccal.cli.reading import Reading
from maccal.evaluation.tasks import Task, plain_numbers, read_task
from maccal.io import check_folder, write, write_json
from maccal.metrics import MultilabelSummary
from maccal.report.sections import NUMBER_HEADINGS, metrics_of, number_lines, task_page


def evaluate_task(
    file: Path,
    task: Task,
    reading: Reading,
    bins: int,
    resamples: int,
    seed: int,
    out: Path | None,
) -> None:
    """Measure, write <name>.<task>.json and <name>.report.html, and print."""
    folder = check_folder(out or Path())
    said = read_task(file, task, labels=reading.labels, kind=reading.kind, classes=reading.classes)
    numbers = said.summary(bins=bins, resamples=resamples, seed=seed)
    settings = {"file": file.name, "kind": said.kind, "resamples": resamples, "seed": seed}
    page = task_page(said, numbers)
    record = settings | plain_numbers(numbers)
    written = write_json(folder / f"{said.name}.{task}.json", f"{task} 1", record)
    report = write(folder / f"{said.name}.report.html", page)
    lines = number_lines(numbers, metrics_of(numbers))
    tell(Text(said.name, style="bold"), text_table(NUMBER_HEADINGS, lines))
    if isinstance(numbers, MultilabelSummary):
        tell("", str(numbers["labels"]))
    tell("", numbers["verdict"])
    answer({**record, "files": [written, report]})
    note(f"report: {report}")
    note(f"wrote {written}")


def text_table(headings: list[str] | tuple[str, ...], lines: list[list[str]]) -> Table:
    """Plain texts in columns, none of them wrapped."""
    table = Table(*headings, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(Text(cell) for cell in line))
    for column in table.columns:
        column.no_wrap = True
    return right_aligned(table)
