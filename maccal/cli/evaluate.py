"""The verb `maccal evaluate`: predictions of a file or a run measured, and a page about them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.text import Text

from maccal.cli.flags import refuse
from maccal.cli.output import answer, note, tell
from maccal.cli.printing import difference_table, ood_tables, shift_tables, table
from maccal.cli.reading import READING, Reading, settled, told_apart
from maccal.cli.tasks import evaluate_task
from maccal.distributed import held
from maccal.evaluation.evaluated import Compared, Evaluated, measure, paired
from maccal.evaluation.predictions import Predictions
from maccal.evaluation.row import row_text
from maccal.io import check_folder, readable, write_all
from maccal.report.evaluation import evaluation_page
from maccal.runs import ood_run, predictions_of, shift_run
from maccal.runs.beyond import plain_parts
from maccal.runs.folder import whole_row


def evaluate(
    file: tyro.conf.Positional[Path],
    compare_with: Annotated[tuple[Path, ...], tyro.conf.arg(name="compare")] = (),
    reading: tyro.conf.OmitArgPrefixes[Reading] = READING,
    task: Literal["classes", "binary", "multilabel"] = "classes",
    bins: int = 15,
    resamples: int = 1000,
    seed: int = 0,
    out: Path | None = None,
    ood: tuple[str, ...] = (),
    shift: bool = False,
    published: bool = False,
    made: bool = False,
    limit: int | None = None,
    root: Path | None = None,
    device: str | None = None,
) -> None:
    """Measure the confidence of predictions in a file or of a run, and write a report.

    A file is .npz, .npy, .csv, .json, .jsonl (rows, or samples of lm-evaluation-harness) or
    .parquet; text may be packed: .csv.gz.

    Args:
        file: logits or probs, and labels; the folder of a run; or - for standard input.
        compare_with: other models' predictions of the same rows, or other runs: each is tested
            against the first, row by row.
        reading: how files are read.
        task: classes, of which one is right; binary, one score of class 1 per row; or multilabel,
            labels that are each yes or no.
        bins: number of bins of ECE, AECE, MCE and of the diagram.
        resamples: number of draws behind the intervals and null bands.
        seed: number that settles those draws.
        out: folder for <name>.report.html and <name>.row.json; else this one, or the run's own.
        ood: of a run: data sets that it should not be sure about, such as svhn cifar100.
        shift: of a run: measure it on its test images under 15 corruptions at 5 severities too.
        published: take the corrupted images from the publishers' CIFAR-C files; by default where
            their folder is there.
        made: make the corrupted images here, also where the files are there.
        limit: number of images of each set for ood and shift; by default all.
        root: folder with the data sets, for ood and shift.
        device: such as cuda, for ood and shift; else the processor.
    """
    wanted = Beyond(ood, shift, published, made, limit, root, device)
    if task != "classes":
        where = f"--task {task}"
        refuse(where, compare=compare_with, **asdict(wanted))
        refuse(where, **asdict(replace(reading, labels=None, kind=None, classes=())))
        evaluate_task(file, task, reading, bins, resamples, seed, out)
        return
    wanted.check(file, out)
    if out is not None:
        check_folder(out)
    paths = [file, *compare_with]
    if all(path.is_dir() for path in paths):
        refuse("a run", **vars(reading))
    predictions = named_predictions(paths, reading)
    paths = [reading.named(path) for path in paths]
    models = []
    for said, path in zip(predictions, paths, strict=True):
        models.append(measure(said, path, bins=bins, resamples=resamples, seed=seed))
    pairs = []
    for said, model in zip(predictions[1:], models[1:], strict=True):
        found = paired(predictions[0], said, bins=bins, resamples=resamples, seed=seed)
        pairs.append(Compared(models[0], model, found))
    parts = wanted.measured(file, resamples, seed)
    page = placed(paths[0], models[0].name, "report.html", out)
    with ExitStack() as locks:
        for folder in sorted(paths, key=Path.resolve) if out is None else ():
            if folder.is_dir():  # in one order: else two commands could wait for each other
                locks.enter_context(held(folder))
        files = files_of(models, paths, parts, out)
        write_all(files | {page: evaluation_page(models, pairs)})
    show(models, pairs, parts)
    rows = [model.row.content for model in models]
    differences = [differences_of(pair) for pair in pairs]
    beyond = plain_parts(parts)
    answer({"models": rows, "differences": differences, **beyond, "files": [*files, page]})
    note(f"report: {page}")


@dataclass(frozen=True)
class Beyond:
    """What is measured of a run beyond its test images."""

    ood: tuple[str, ...]
    shift: bool
    published: bool
    made: bool
    limit: int | None
    root: Path | None
    device: str | None

    def check(self, file: Path, out: Path | None) -> None:
        """ValueError for flags that do not apply."""
        if (self.ood or self.shift) and (not file.is_dir() or out is not None):
            remedy = "pass the folder of a run, and no --out"
            raise ValueError(f"--ood and --shift need the network: {remedy}")
        if not self.ood and not self.shift:
            where = "an evaluation without --ood or --shift"
            refuse(where, limit=self.limit, root=self.root, device=self.device)
        if not self.shift:
            where = "an evaluation without --shift"
            refuse(where, published=self.published, made=self.made)
        if self.published and self.made:
            raise ValueError("--published and --made say the opposite; pass one of them")

    @property
    def source(self) -> bool | None:
        """Whether the published files are wanted; None where they are taken if they are there."""
        return self.published if self.published or self.made else None

    def measured(self, folder: Path, resamples: int, seed: int) -> dict[str, Any]:
        """The parts of a row that are asked for."""
        parts: dict[str, Any] = {}
        device = self.device or "cpu"
        if self.ood:
            parts["ood"] = ood_run(
                folder,
                self.ood,
                self.root,
                limit=self.limit,
                resamples=resamples,
                seed=seed,
                device=device,
            )
        if self.shift:
            parts["shift"] = shift_run(
                folder,
                self.root,
                published=self.source,
                limit=self.limit,
                progress=True,
                device=device,
            )
        return parts


def show(models: Sequence[Evaluated], pairs: Sequence[Compared], parts: Mapping[str, Any]) -> None:
    """Print the numbers."""
    for model in models:
        tell(Text(model.name, style="bold"), table(model), model.numbers["verdict"], "")
    for pair in pairs:
        tell(f"{pair.second.name} minus {pair.first.name}", difference_table(pair.differences), "")
    for name, part in parts.items():
        tell(*(ood_tables(part) if name == "ood" else shift_tables(part)), "")


def differences_of(pair: Compared) -> dict[str, Any]:
    """The difference of two models as plain values."""
    found: dict[str, Any] = {"first": pair.first.name, "second": pair.second.name}
    for key, difference in pair.differences.items():
        found[key] = difference._asdict()
    return found


def named_predictions(paths: Sequence[Path], reading: Reading) -> list[Predictions]:
    """The predictions of files and runs, each under a name that no other has."""
    found = []
    shown = [reading.named(path) for path in paths]
    for path, name in zip(paths, told_apart(shown), strict=True):
        said = predictions_of(path) if path.is_dir() else reading.read(path)
        found.append(replace(said, name=name))
    return found


def files_of(
    models: Sequence[Evaluated], paths: Sequence[Path], parts: Mapping[str, Any], out: Path | None
) -> dict[Path, str | bytes]:
    """The row of each model, by where it goes; the parts are of the first."""
    files: dict[Path, str | bytes] = {}
    for model, path in zip(models, paths, strict=True):
        row = model.row
        if path.is_dir():
            # other rows go by it, so it stays the folder's
            row = whole_row(path, replace(row, name=readable(settled(path).name)))
        if path.is_dir() and path == paths[0]:
            row = replace(row, **plain_parts(parts))
        files[placed(path, model.name, "row.json", out)] = row_text(row)
    return files


def placed(path: Path, name: str, kind: str, out: Path | None) -> Path:
    """Where a file about these predictions goes.

    Beside a run's other files, else under the model's name.
    """
    if out is None and path.is_dir():
        return path / kind
    return (out or Path()) / f"{name.replace('/', '-')}.{kind}"
