"""The verbs of `maccal data`: list, get and check data sets."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table
from rich.text import Text

from maccal.cli.output import answer, note, tell
from maccal.data import DATASETS
from maccal.data.download import SOURCES, check, data_root, get, listing

SETS = tyro.conf.arg(metavar="[NAME ...]")
NAMES = tuple(dict.fromkeys([*SOURCES, *DATASETS]))


def list_sets(root: Path | None = None) -> None:
    """List the data sets: where they come from, how large they are, and which are here.

    Args:
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
    """
    table = Table("set", "publisher", "download", "here", "folder", box=None)
    table.columns[2].justify = "right"
    rows: list[tuple[str, str, int | None, str, str]] = []
    for row in listing(root):
        rows.append((row.name, row.host, row.size, row.here, row.where.name))
    rows += [(name, "scikit-learn", None, "embedded", "") for name in embedded()]
    found = []
    for name, host, size, here, folder in rows:
        table.add_row(name, host, megabytes(size), here, folder)
        found.append({"set": name, "publisher": host, "bytes": size, "here": here})
    tell(table, f"in {data_root(root)}")
    answer({"folder": data_root(root), "sets": found})


def get_set(name: tyro.conf.Positional[str], root: Path | None = None, keep: bool = False) -> None:
    """Download a data set from its publisher, verify it and unpack it; what is already here is not
    fetched again.

    Args:
        name: a name that `maccal data list` shows.
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
        keep: leave the downloaded archive, which is otherwise deleted once it is unpacked.
    """
    valid(name)
    if name in embedded():
        tell(f"{name} is embedded: nothing to download")
        answer({"set": name, "folder": None})
        return
    before = {row.name: row.here for row in listing(root)}[name]
    folder = get(name, root, keep=keep)
    tell(f"{name} is {'already ' if before == 'yes' else ''}in {folder}")
    answer({"set": name, "folder": folder})


def check_sets(
    names: Annotated[tyro.conf.Positional[tuple[str, ...]], SETS] = (), root: Path | None = None
) -> None:
    """Check that data sets are complete, byte for byte where the publisher's checksums are known,
    and that they load.

    Args:
        names: of the sets; all that are here, if none is given.
        root: folder of the data sets; $MACCAL_DATA, or maccal's folder in your cache, if not given.
    """
    for name in names:
        valid(name)
    chosen = names or tuple(row.name for row in listing(root) if row.here != "no")
    all_found = {name: problems(name, root) for name in chosen}
    bad = sum(bool(found) for found in all_found.values())
    for name, found in all_found.items():
        tell(Text(f"{name}:" if found else f"{name}: all is well", style="bold"))
        tell(*(f"  {problem}" for problem in found))
    answer({"folder": data_root(root), "problems": all_found})
    if not chosen:
        note(f"no data sets in {data_root(root)}; `maccal data get NAME` downloads one")
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
