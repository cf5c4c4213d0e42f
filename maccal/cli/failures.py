"""How a command ends: what it says and the exit code, whatever went wrong.

    0      all is done
    1      a fault in maccal: the traceback, and what to send to its authors;
           or nobody reads what is printed (`| head`)
    2      something to mend, in one line: a file, a setting, a full disk, too little memory
    3      `maccal monitor` alone: an alarm has fired
    130    Ctrl-C

Nothing here decides what is written: files are whole or not there (maccal.io).
"""

import csv
import io
import os
import pickle
import platform
import struct
import sys
import tarfile
import traceback
import zipfile
import zlib
from collections.abc import Callable
from importlib.metadata import version
from lzma import LZMAError

from rich.text import Text
from safetensors import SafetensorError

from maccal.io import readable
from maccal.progress import console

# what readers of damaged files raise beside ValueError and OSError
DAMAGE = (
    EOFError,
    LZMAError,
    SafetensorError,
    csv.Error,
    pickle.UnpicklingError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
# as torch says it, in a RuntimeError
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")


def answered(command: Callable[[], object]) -> None:
    """Run a command, and leave the process with a line and an exit code where it fails."""
    show_anything()
    try:
        command()
        if sys.stdout:
            sys.stdout.flush()  # here, where a full disk can still be told
    except BrokenPipeError:
        drop_output()
        sys.exit(1)
    except KeyboardInterrupt:
        complain("interrupted; what was saved is whole, and the same command goes on from it")
        sys.exit(130)
    except Exception as error:
        words = mendable(error)
        if words is not None:
            complain(words)
            sys.exit(2)
        traceback.print_exc()
        request = "please report it with the command and the lines above"
        complain(f"this is a fault in maccal; {request} ({made_with()})")
        sys.exit(1)


def show_anything() -> None:
    """Letters that the console does not have come as escapes instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def mendable(error: Exception) -> str | None:
    """What to say of an error that the user can do something about; None of any other."""
    words = " ".join(str(error).split())
    if is_out_of_memory(error, words):
        remedy = "pass less at a time, or use a larger machine"
        return f"not enough memory ({words or 'none is left'}); {remedy}"
    if isinstance(error, RecursionError):
        return "something is nested too deeply to be read"
    if isinstance(error, UnicodeError):
        return f"text that is not Unicode ({words})"
    if isinstance(error, DAMAGE):
        return f"a file is damaged ({words or type(error).__name__})"
    if isinstance(error, ValueError | OSError):
        return words or type(error).__name__
    return None


def is_out_of_memory(error: Exception, words: str) -> bool:
    """Python's own error, or a RuntimeError in torch's words for it."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(known in words for known in OUT_OF_MEMORY)


def complain(words: str) -> None:
    """One line on stderr."""
    drop_output_if_full()
    console().print(Text(f"maccal: {readable(words)}", style="red"), soft_wrap=True)


def drop_output_if_full() -> None:
    """What could not be printed is not tried again when the process ends."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        drop_output()


def drop_output() -> None:
    """Whatever is printed from now on goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def made_with() -> str:
    """The versions that a report of a fault needs."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("maccal", "torch", "numpy"))
    return f"{packages}, Python {platform.python_version()}, {platform.system()}"
