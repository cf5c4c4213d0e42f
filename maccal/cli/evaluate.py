"""The verb `maccal evaluate`: predictions of a file or a run measured, and a page about them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from maccal.cli.flags import refuse
from maccal.cli.printing import difference_table, ood_tables, shift_tables, table
from maccal.distributed import held
from maccal.evaluation.evaluated import Evaluated, measure, paired
from maccal.evaluation.predictions import Kind, Predictions, read
from maccal.evaluation.row import row_text
from maccal.io import readable, write_all
from maccal.metrics import Difference
from maccal.report.evaluation import evaluation_page
from maccal.runs import ood_run, predictions_of, shift_run
from maccal.runs.beyond import plain_parts
from maccal.runs.folder import whole_row


def evaluate(
    file: tyro.conf.Positional[Path],
    compare_with: Annotated[Path | None, tyro.conf.arg(name="compare")] = None,
    labels: Path | None = None,
    kind: Kind | None = None,
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

    A file is .npz, .npy, .csv or .parquet.

    Args:
        file: logits or probs, and labels; or the folder of a run.
        compare_with: a second model's predictions of the same rows, or a second run, for a paired
            test.
        labels: a .npy file of labels, for a bare .npy array.
        kind: what a bare .npy array holds, or which to use where a file has both.
        bins: bins of ECE, AECE, MCE and of the diagram.
        resamples: draws behind the intervals and null bands.
        seed: of those draws.
        out: folder for <name>.report.html and <name>.row.json; else this one, or the run's own.
        ood: of a run: data sets that it should not be sure about, such as svhn cifar100.
        shift: of a run: measure it on its test images under 15 corruptions at 5 severities too.
        published: take the corrupted images from the publishers' CIFAR-C files; by default where
            their folder is there.
        made: make the corrupted images here, also where the files are there.
        limit: measure ood and shift on so many images a set.
        root: folder with the data sets, for ood and shift.
        device: such as cuda, for ood and shift; else the processor.
    """
    wanted = Beyond(ood, shift, published, made, limit, root, device)
    wanted.check(file, out)
    paths = [file] if compare_with is None else [file, compare_with]
    if all(path.is_dir() for path in paths):
        refuse("a run", labels=labels, kind=kind)
    predictions = named_predictions(paths, labels, kind)
    differences = None
    if compare_with is not None:
        differences = paired(*predictions, bins=bins, resamples=resamples, seed=seed)
    models = []
    for said, path in zip(predictions, paths, strict=True):
        models.append(measure(said, path, bins=bins, resamples=resamples, seed=seed))
    parts = wanted.measured(file, resamples, seed)
    page = placed(file, models[0].name, "report.html", out)
    with ExitStack() as locks:
        for folder in sorted(paths, key=Path.resolve) if out is None else ():
            if folder.is_dir():  # in one order: else two commands could wait for each other
                locks.enter_context(held(folder))
        files = files_of(models, paths, parts, out)
        write_all(files | {page: evaluation_page(models, differences)})
    show(models, differences, parts, page)


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


def show(
    models: Sequence[Evaluated],
    differences: Mapping[str, Difference] | None,
    parts: Mapping[str, Any],
    page: Path,
) -> None:
    """Print the numbers, and where the page is."""
    console = Console()
    for model in models:
        title = Text(model.name, style="bold")
        console.print(title, table(model), Text(model.numbers["verdict"]), "")
    if differences:
        title = Text(f"{models[1].name} minus {models[0].name}")
        console.print(title, difference_table(differences), "")
    for name, part in parts.items():
        tables = ood_tables(part) if name == "ood" else shift_tables(part)
        console.print(*tables, "")
    console.print(Text(f"report: {page}"))


def named_predictions(
    paths: Sequence[Path], labels: Path | None, kind: Kind | None
) -> list[Predictions]:
    """The predictions of files and runs, each under a name that no other has."""
    found = []
    for path, name in zip(paths, told_apart(paths), strict=True):
        said = predictions_of(path) if path.is_dir() else read(path, labels=labels, kind=kind)
        found.append(replace(said, name=name))
    return found


def told_apart(paths: Sequence[Path]) -> list[str]:
    """Names for the models of one or two files or runs: as much of the paths as tells them apart.

    >>> told_apart([Path("x/old.npz"), Path("x/new.npz")])
    ['old', 'new']
    >>> told_apart([Path("x/test.npz"), Path("y/test.npz")])
    ['x/test', 'y/test']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(f"{paths[0]} and {paths[1]} are the same; pass another model to --compare")
    whole = [settled(path) for path in paths]
    short = [path.name if path.is_dir() else path.stem for path in whole]
    names = [short, [path.name for path in whole]]
    for length in range(1, max(len(path.parts) for path in whole)):
        names.append(
            [
                "/".join((*path.parts[-1 - length : -1], name))
                for path, name in zip(whole, short, strict=True)
            ]
        )
    for one in names:
        if len({name.casefold() for name in one}) == len(paths):  # to some disks A is a
            return one
    return short  # apart by case alone, on a disk that tells


def settled(path: Path) -> Path:
    """From the root of the disk, and without dots; a link keeps its name."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


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
