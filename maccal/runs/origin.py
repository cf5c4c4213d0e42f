"""On which network a run stands: its stage I may have been trained again since, on a machine whose
bits are others.

    collected(folder, row)     the row of a run as tables have it, with the checksum of that network
    stands_on(row, first)      whether stage II stands on the network of this row of its stage I
    check_origin(target, folder)    the same of two folders, before anything is made
"""

from dataclasses import replace
from pathlib import Path

from maccal.evaluation.row import Row
from maccal.io import FileError, checksum, read_bytes, read_notes

NETWORK, MODEL = "model.safetensors", "model 1"


def collected(folder: Path, row: Row) -> Row:
    """Without the checksums of the folder's files, which stay with them."""
    return replace(row, files=None, stage1=network_of(folder, row))


def network_of(folder: Path, row: Row) -> str | None:
    """The checksum of the network of stage I; None where the folder does not say."""
    if row.ran is None:
        return None
    if row.ran.second is None:
        return (row.files or {}).get(NETWORK)
    try:
        source = read_notes(folder / NETWORK, MODEL).get("source")
    except FileError:
        return None
    return source if isinstance(source, str) else None


def stands_on(row: Row, first: Row | None) -> bool | None:
    """Whether the run's stage II was made from the network that this row of stage I is of.

    None where it is not known: rows of before do not say. Different precision is another training.
    """
    if row.ran is None or row.ran.second is None:
        return True
    if first is None or first.ran is None:
        return None
    if row.stage1 is not None and first.stage1 is not None:
        return row.stage1 == first.stage1
    precisions = [one.ran.recipe.get("precision") for one in (row, first) if one.ran]
    return False if None not in precisions and precisions[0] != precisions[1] else None


def check_origin(target: Path, folder: Path) -> None:
    """FileError unless the calibrated run was made from the network that the folder holds now."""
    source = read_notes(target / NETWORK, MODEL).get("source")
    if source != checksum(read_bytes(folder / NETWORK)):
        problem = f"was made from another network than {folder} holds now"
        raise FileError(target, f"{problem}; delete it, and the same command makes it anew")
