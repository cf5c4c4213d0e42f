"""The flags of every verb that reads predictions: what a file holds where it does not say so."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from maccal.evaluation.predictions import STDIN, Format, Kind, Predictions, read, stem_of

Names = tyro.conf.arg(metavar="NAME ...")


@dataclass(frozen=True)
class Reading:
    """How predictions are read."""

    # a .npy file of labels, for a bare .npy array or in place of the file's own
    labels: Path | None = None
    # what a bare .npy array holds, or which to use where a file has both
    kind: Kind | None = None
    # class names in the order of the columns, for labels that are names
    classes: Annotated[tuple[str, ...], Names] = ()
    # divide each row of probabilities by its sum: percentages, rounded numbers
    normalise: tyro.conf.FlagCreatePairsOff[bool] = False
    # of standard input, or of a file whose name does not say it
    format: Format | None = None

    def read(self, path: Path) -> Predictions:
        """The predictions of a file, or of standard input for "-"."""
        return read(
            path,
            labels=self.labels,
            kind=self.kind,
            classes=self.classes or None,
            normalise=self.normalise,
            format=self.format,
        )

    def named(self, path: Path) -> Path:
        """The path as it is shown and recorded: standard input has none of its own."""
        return Path(f"stdin.{self.format}") if path == STDIN else path


READING = Reading()


def told_apart(paths: Sequence[Path]) -> list[str]:
    """Names for the models of several files or runs: as much of the paths as tells them apart.

    >>> told_apart([Path("x/old.npz"), Path("x/new.npz")])
    ['old', 'new']
    >>> told_apart([Path("x/test.npz"), Path("y/test.npz"), Path("y/other.csv.gz")])
    ['x/test', 'y/test', 'other']
    """
    places = [path.resolve() for path in paths]
    for number, place in enumerate(places):
        if place in places[:number]:
            both = f"{paths[places.index(place)]} and {paths[number]}"
            raise ValueError(f"{both} are the same; pass another model to --compare")
    whole = [settled(path) for path in paths]
    short = [path.name if path.is_dir() else stem_of(path) for path in whole]
    names = [short, [path.name for path in whole]]
    for length in range(1, max(len(path.parts) for path in whole)):
        pairs = zip(whole, short, strict=True)
        names.append(["/".join((*path.parts[-1 - length : -1], name)) for path, name in pairs])
    folded = [name.casefold() for name in short]
    alone = [folded.count(name) == 1 for name in folded]
    for longer in names:
        rows = zip(alone, short, longer, strict=True)
        found = [name if unique else long for unique, name, long in rows]
        if len({name.casefold() for name in found}) == len(paths):  # to some disks A is a
            return found
    return last_resort(short, [path.name for path in whole])


def last_resort(short: list[str], full: list[str]) -> list[str]:
    """Apart by case alone, on a disk that tells; or by folder and suffix both, which no one list
    above has: then numbered.
    """
    if len(set(short)) == len(short):
        return short
    return [f"{number}-{name}" for number, name in enumerate(full, 1)]


def settled(path: Path) -> Path:
    """From the root of the disk, and without dots; a link keeps its name."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name
