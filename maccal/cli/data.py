"""The verbs of `maccal data`: list, get and check data sets."""

from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maccal.data import DATASETS
from maccal.data.download import SOURCES, check, data_root, get, listing

NAMES = tuple(dict.fromkeys([*SOURCES, *DATASETS]))


def list_sets(root: Path | None = None) -> None:
    """List the data sets: where they come from, how large they are, and which are here.

    Args:
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
    """
    table = Table("set", "publisher", "download", "here", "folder", box=None)
    table.columns[2].justify = "right"
    for row in listing(root):
        table.add_row(row.name, row.host, megabytes(row.size), row.here, row.where.name)
    for name in embedded():
        table.add_row(name, "scikit-learn", "", "embedded", "")
    Console().print(table)
    Console().print(Text(f"in {data_root(root)}"), soft_wrap=True)


def get_set(name: tyro.conf.Positional[str], root: Path | None = None, keep: bool = False) -> None:
    """Download a data set from its publisher, verify it and unpack it; what is already here is not
    fetched again.

    Args:
        name: a name that `maccal data list` shows.
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
        keep: keep the downloaded archive, which is otherwise deleted once it is unpacked.
    """
    valid(name)
    if name in embedded():
        Console().print(Text(f"{name} is embedded: nothing to download"))
        return
    before = {row.name: row.here for row in listing(root)}[name]
    folder = get(name, root, keep=keep)
    Console().print(
        Text(f"{name} is {'already ' if before == 'yes' else ''}in {folder}"), soft_wrap=True
    )


def check_sets(names: tyro.conf.Positional[tuple[str, ...]] = (), root: Path | None = None) -> None:
    """Check that data sets are complete, byte for byte where the publisher's checksums are known,
    and that they load.

    Args:
        names: of the sets; all that are here, if none is given.
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
    """
    for name in names:
        valid(name)
    chosen = names or tuple(row.name for row in listing(root) if row.here != "no")
    bad, console = 0, Console()
    for name in chosen:
        found = problems(name, root)
        bad += bool(found)
        console.print(
            Text(f"{name}:" if found else f"{name}: all is well", style="bold"), soft_wrap=True
        )
        for problem in found:
            console.print(Text(f"  {problem}"), soft_wrap=True)
    if not chosen:
        console.print(
            Text(f"no data sets in {data_root(root)}; `maccal data get NAME` downloads one"),
            soft_wrap=True,
        )
    if bad:
        raise ValueError(
            f"{bad} of {len(chosen)} data sets {'has' if bad == 1 else 'have'} problems"
        )


def problems(name: str, root: Path | None) -> list[str]:
    if name in embedded():
        DATASETS[name](data_root(root))
        return []
    return check(name, root, DATASETS.get(name))


def valid(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"no data set {name!r}; the data sets are {', '.join(NAMES)}")


def embedded() -> list[str]:
    return [name for name in DATASETS if name not in SOURCES]


def megabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.0f} MB"


Verb = (
    Annotated[Any, tyro.conf.subcommand("list", constructor=list_sets)]
    | Annotated[Any, tyro.conf.subcommand("get", constructor=get_set)]
    | Annotated[Any, tyro.conf.subcommand("check", constructor=check_sets)]
)


def data(verb: tyro.conf.OmitArgPrefixes[tyro.conf.OmitSubcommandPrefixes[Verb]]) -> None:
    """List, download and check data sets."""
