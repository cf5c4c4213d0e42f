"""The command line: verbs that call the library and print. No logic of its own."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.calibration.mac_cal import DEFAULT
from maccal.calibration.stage2 import Stage2
from maccal.cli.bench import bench
from maccal.cli.data import data as data_sets
from maccal.cli.demo import run_demo
from maccal.cli.demo import table as compact
from maccal.cli.failures import answered
from maccal.cli.jobs import Settings, calibrate_file, calibrate_model
from maccal.cli.report import report
from maccal.distributed import held, joined, my_rank
from maccal.evaluation.evaluated import Evaluated, measure, paired
from maccal.evaluation.predictions import Kind, read
from maccal.evaluation.row import row_text
from maccal.io import readable, write_all
from maccal.metrics import METRICS, Difference, Summary
from maccal.metrics.summaries import show, span
from maccal.report.evaluation import change, evaluation_page
from maccal.runs.beyond import ood_run, plain_parts, shift_run
from maccal.runs.folder import MEASURED, Config, Feedback, predictions_of, whole_row
from maccal.runs.making import calibrate_run, make_run
from maccal.training.memory import keep_memory
from maccal.training.recipe import RECIPES, Recipe

ABOUT = "Make a neural network's confidence trustworthy: measure it, calibrate it, report it."


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
    limit: int | None = None,
    root: Path | None = None,
) -> None:
    """Measure the confidence of predictions in a file (.npz, .npy, .csv, .parquet) or of a run, and
    write a report.

    Args:
        file: logits or probs, and labels; or the folder of a run. compare_with: a second model's
        predictions of the same rows, or a second run, for a paired test. labels: a .npy file of
        labels, for a bare .npy array. kind: what a bare .npy array holds, or which to use where a
        file has both. bins: bins of ECE, AECE, MCE and of the diagram. resamples: draws behind the
        intervals and null bands. seed: of those draws. out: folder for <name>.report.html and
        <name>.row.json; else this one, or the run's own. ood: of a run: data sets that it should
        not be sure about, such as svhn cifar100. shift: of a run: measure it on its test images
        under 15 corruptions at 5 severities too. published: take the corrupted images from the
        publishers' CIFAR-C files instead of making them. limit: measure ood and shift on so many
        images a set. root: folder with the data sets, for ood and shift.
    """
    if (ood or shift) and (not file.is_dir() or out is not None):
        raise ValueError(
            "--ood and --shift need the network: pass the folder of a run, and no --out"
        )
    settings = {"bins": bins, "resamples": resamples, "seed": seed}
    paths = [file] if compare_with is None else [file, compare_with]
    predictions = [
        replace(
            predictions_of(path) if path.is_dir() else read(path, labels=labels, kind=kind),
            name=name,
        )
        for path, name in zip(paths, told_apart(paths), strict=True)
    ]
    differences = (
        None if compare_with is None else paired(predictions[0], predictions[1], **settings)
    )
    models = [measure(p, path, **settings) for p, path in zip(predictions, paths, strict=True)]
    parts: dict[str, Any] = {}
    if ood:
        parts["ood"] = ood_run(file, ood, root, limit=limit, resamples=resamples, seed=seed)
    if shift:
        parts["shift"] = shift_run(file, root, published=published, limit=limit, progress=True)
    page = placed(file, models[0].name, "report.html", out)
    with ExitStack() as locks:
        for folder in sorted(paths, key=Path.resolve) if out is None else ():
            if folder.is_dir():  # in one order: else two commands could wait for each other
                locks.enter_context(held(folder))
        write_all(
            files_of(models, paths, parts, out) | {page: evaluation_page(models, differences)}
        )

    console = Console()
    for model in models:
        console.print(
            Text(model.name, style="bold"), table(model), Text(model.numbers["verdict"]), ""
        )
    if differences:
        console.print(
            Text(f"{models[1].name} minus {models[0].name}"), difference_table(differences), ""
        )
    for name, part in parts.items():
        console.print(*(ood_tables(part) if name == "ood" else shift_tables(part)), "")
    console.print(Text(f"report: {page}"))


def told_apart(paths: Sequence[Path]) -> list[str]:
    """Names for the models of one or two files or runs that no two share: with as much of their
    paths as that takes.

    >>> told_apart([Path("x/old.npz"), Path("x/new.npz")]), told_apart([Path("x/test.npz"), Path("y/test.npz")])
    (['old', 'new'], ['x/test', 'y/test'])
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


def calibrate(
    source: tyro.conf.Positional[str],
    accuracy: float | None = None,
    head: str | None = None,
    cache: Path | None = None,
    feedback: Feedback = "held-out",
    root: Path | None = None,
    config: tyro.conf.OmitArgPrefixes[Stage2] = DEFAULT,
    seed: int = 1,
    out: Path = Path(),
) -> None:
    """Give a classifier a confidence that can be trusted, from features in a file or from a model.

    Args:
        source: the folder of a run; features.npz with z, y and if at hand val_z, val_y (held out),
        test_z, test_y, weight, bias
            (as trained); or file.py:function, which returns model, train[, val[, test]].
        accuracy: on unseen data, where it is known and no held-out labels are given. head: name of
        the model's classifier, where it cannot be found. cache: folder for the model's features, so
        that they are extracted once. feedback: of a run: from the held-out labels of its data set,
        or from mixed training images and no such label. root: folder with the data sets, of a run.
        config: the choices of stage II. seed: of weights, masks and order. out: folder for
        <name>.head.safetensors, <name>.history.json and, with test rows, <name>.report.html.
    """
    if Path(source).is_dir():
        show_run(
            calibrate_run(Path(source), stage2=config, feedback=feedback, root=root, progress=True)
        )
        return
    settings = Settings(config, seed, accuracy, head, cache, out)
    done = (
        calibrate_model(source, settings)
        if ":" in source
        else calibrate_file(Path(source), settings)
    )
    console, last = Console(), done.history[-1]
    if done.models:
        console.print(compact(done.models), "")
    words = "keeps {keep:.1%} of its weights in training; confidence {confidence:.2%}, wanted {target:.2%}"
    console.print(Text(f"the new classifier {words.format(**last)}"))
    for file in [*done.files, *([done.report] if done.report else [])]:
        console.print(Text(f"wrote {file}"))


def train_with(usual: Recipe) -> Callable[..., None]:
    """The verb `train`, with a data set's own recipe as its defaults."""

    def train(
        data: str = "cifar10",
        model: str = "resnet50",
        method: str = "vanilla",
        seed: int = 1,
        limit: int | None = None,
        settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set")] = (),
        recipe: tyro.conf.OmitArgPrefixes[Recipe] = usual,
        root: Path | None = None,
        runs: Path = Path("runs"),
        tensorboard: bool = False,
    ) -> None:
        """Train a network: stage I. The same command goes on where a killed one stopped; torchrun
        gives it several devices.

        Args:
            data: cifar10, cifar100, tiny-imagenet, svhn or digits (which needs no download). model:
            resnet50, resnet110, wrn26_10, densenet121, resnet50_tiny; for small machines resnet8 to
            resnet56 and more. method: vanilla, acls, ls, mbls, mixup, mit, fl, flsd, dfl, cpc,
            mmce, plp, balcal; tst, vtst and maccal, which give a
                vanilla network a new head; or both, such as acls+maccal.
            seed: of weights, order and augmentation. limit: train on so many images only, the same
            share of every class. settings: of the method, such as gamma=2 or gammas=5,3,3; else its
            authors' for that data set and network. recipe: rates, epochs and augmentation. root:
            folder with the data sets; else $MACCAL_DATA, else the user's cache folder. runs: folder
            for the run, <data>-<model>-<method>-s<seed>. tensorboard: write TensorBoard's files
            too.
        """
        keep_memory()
        with joined() as device:
            config = Config(data, model, method, seed, limit, recipe, parsed(settings))
            folder = make_run(
                config, runs=runs, root=root, device=device, tensorboard=tensorboard, progress=True
            )
            if my_rank()[0] == 0:
                show_run(folder)

    return train


def parsed(settings: tuple[str, ...]) -> dict[str, Any]:
    """Words such as gamma=2 and where=all as a dict."""
    pairs = [word.partition("=") for word in settings]
    if wrong := [key for key, sign, _ in pairs if not sign]:
        raise ValueError(f"--set {wrong[0]}: expected name=value, such as gamma=2")
    return {key: worth(value) for key, _, value in pairs}


def worth(word: str) -> Any:
    """A number, several separated by commas, or the word itself.

    >>> worth("2"), worth("5,3,3"), worth("all")
    (2.0, (5.0, 3.0, 3.0), 'all')
    """
    try:
        numbers = tuple(float(part) for part in word.split(","))
    except ValueError:
        return word
    return numbers if len(numbers) > 1 else numbers[0]


def show_run(folder: Path) -> None:
    """A run's numbers, and where they are."""
    model = measure(predictions_of(folder), folder / "test.npz", **MEASURED)
    console = Console()
    console.print(compact([model]), Text(model.numbers["verdict"]), "", Text(f"wrote {folder}"))


def demo(out: Path = Path("build/demo"), seed: int = 1) -> None:
    """Train a small network on handwritten digits, calibrate it, and write a report: no download,
    half a minute.

    Args:
        out: folder for demo.report.html, the predictions, their rows, and the features.
        seed: of the images, the network and its calibration.
    """
    run_demo(out, seed, console=Console())


def table(model: Evaluated) -> Table:
    numbers = model.numbers
    result = Table("", "value", "95 % interval", "calibrated model", box=None)
    for key, metric in METRICS.items():
        spans = [span(numbers, f"{key}{part}", metric.percent) for part in ("", "_null")]
        result.add_row(metric.label, Text(show(numbers[key], metric.percent), style="bold"), *spans)
    for column in result.columns[1:]:
        column.justify = "right"
    return result


def ood_tables(sets: dict[str, dict[str, float]]) -> list[Table]:
    result = Table(
        "out of distribution", "AUROC", "95 % interval", "FPR95", "95 % interval", box=None
    )
    for name, numbers in sets.items():
        cells = [
            (show(numbers[key], True), span(Summary(numbers), key, True))
            for key in ("auroc", "fpr95")
        ]
        result.add_row(Text(name), *(cell for pair in cells for cell in pair))
    return [result]


def shift_tables(part: dict[str, Any]) -> list[Table]:
    result = Table("severity", "accuracy", "mean ECE", "pooled ECE", box=None)
    for place, severity in enumerate(part["severities"]):
        numbers = (
            part["accuracy"][:, place].mean(),
            part["ece_mean"][place],
            part["ece_pooled"][place],
        )
        result.add_row(str(severity), *(show(float(number), True) for number in numbers))
    return [result]


def difference_table(differences: dict[str, Difference]) -> Table:
    result = Table("", "difference", "95 % interval", "", box=None)
    for key, d in differences.items():
        percent, size = METRICS[key].percent, change(d, METRICS[key].percent)
        result.add_row(
            METRICS[key].label,
            size["value"],
            f"{show(d.low, percent)} to {show(d.high, percent)}",
            size["p"],
        )
    return result


def usual_recipe() -> Recipe:
    """The recipe of the data set on the command line, so that --help shows its numbers and a flag
    changes only its own.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--data", default="cifar10")
    return RECIPES.get(parser.parse_known_args()[0].data, Recipe())


def command() -> None:
    """What the command line says."""
    verbs: dict[str, Callable[..., Any]] = {
        "calibrate": calibrate,
        "evaluate": evaluate,
        "bench": bench,
        "report": report,
        "demo": demo,
    }
    verbs = {"train": train_with(usual_recipe()), **verbs, "data": data_sets}
    tyro.extras.subcommand_cli_from_dict(verbs, prog="maccal", description=ABOUT)


def main() -> None:
    answered(command)
