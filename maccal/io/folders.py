"""Folders for what is written: made where they are missing."""

from pathlib import Path

from maccal.io.errors import FileError


def make_folder(folder: Path | str) -> Path:
    """The folder, made where it is missing; FileError where a file is in its place."""
    folder = check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_folder(folder: Path | str) -> Path:
    """The folder, which may be missing; FileError where a file is in its place, or above it."""
    folder = Path(folder)
    for place in (folder, *folder.parents):
        if place.is_dir():
            break
        if place.exists():
            raise FileError(place, "a file, where a folder is needed; pass another name")
    return folder
