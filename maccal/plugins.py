"""Methods, data sets, models and calibrators of one's own.

    maccal.methods.register(name, Method(...))            and likewise models.register,
    maccal.data.register(name, reader, pixels)            calibration.register
    --plugin mine.py               a file that calls them, for the command line
    [project.entry-points.maccal]  a module of an installed package that does so when it is imported

The processes that a command starts load the same plugins: their names are in $MACCAL_PLUGINS.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Container, Sequence
from importlib.metadata import entry_points
from pathlib import Path

VARIABLE = "MACCAL_PLUGINS"
NAME = re.compile("[A-Za-z0-9_]+")
GROUP = "maccal"
LOADED: set[Path] = set()  # a file is run once per process


def check_name(name: str, taken: Container[str], what: str) -> None:
    """ValueError where a name is taken, or cannot be a part of the name of a run's folder.

    >>> check_name("mine", {"mine"}, "method")
    Traceback (most recent call last):
    ...
    ValueError: there is a method 'mine' already; choose another name
    """
    if name in taken:
        raise ValueError(f"there is a {what} {name!r} already; choose another name")
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a {what}; use letters, digits and _")


def without_plugins(words: Sequence[str]) -> tuple[list[str], list[Path]]:
    """The words of a command line without --plugin, and the files that it names.

    >>> without_plugins(["train", "--plugin", "mine.py", "--seed", "2"])
    (['train', '--seed', '2'], [PosixPath('mine.py')])
    """
    rest: list[str] = []
    files: list[Path] = []
    remaining = iter(words)
    for word in remaining:
        if word.startswith("--plugin="):
            files.append(Path(word.partition("=")[2]))
        elif word == "--plugin":
            file = next(remaining, None)
            if file is None:
                raise ValueError("--plugin: expected a file, such as --plugin mine.py")
            files.append(Path(file))
        else:
            rest.append(word)
    return rest, files


def load_plugins(files: Sequence[Path] = ()) -> None:
    """Load these files, those that the starting process has loaded, and installed plugins."""
    before = [Path(name) for name in os.environ.get(VARIABLE, "").split(os.pathsep) if name]
    wanted = dict.fromkeys([*before, *(file.absolute() for file in files)])
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            raise ValueError(f"the plugin {point.name} ({point.value}) fails: {error}") from error
    for file in wanted:
        load_file(file)
    os.environ[VARIABLE] = os.pathsep.join(str(file) for file in wanted)


def load_file(file: Path) -> None:
    """Run a plugin file, once per process."""
    if file in LOADED:
        return
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"--plugin {file}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # so that processes find what the file defines
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"--plugin {file} fails: {type(error).__name__}: {error}") from error
    LOADED.add(file)
