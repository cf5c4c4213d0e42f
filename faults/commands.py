"""The command line in this process, as a user would type it, and folders as values that can be
compared.

run(words, folder)     exit code and what it said; to be called in a forked process
snapshot(folder)       every file below the folder by name, times left out
"""

import io
import json
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

# How long things took is in some files, and so in their checksums and sizes; a row has the checksum
# of its history
TIMES = ("seconds", "checksum", "bytes", "history.jsonl")


class Said(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


class Refused(ValueError):
    """A command ended with exit code 2; the message is what it said."""


class Crashed(RuntimeError):
    """A command ended with another exit code."""


def run(words: list[str], folder: Path) -> Said:
    """Run `maccal words` with this folder as the current one."""
    from maccal.cli.main import main

    os.environ["COLUMNS"] = "4000"  # a message is then one line, however long
    before = Path.cwd()
    os.chdir(folder)
    sys.argv = ["maccal", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else 1
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            os.chdir(before)
    return Said(code, out.getvalue(), err.getvalue())


def checked(words: list[str], folder: Path) -> str:
    """What a command that succeeds prints; Refused or Crashed otherwise."""
    said = run(words, folder)
    if said.code == 2:
        raise Refused(said.err.strip())
    if said.code != 0:
        last = said.err.strip().splitlines()[-1:] or ["nothing said"]
        raise Crashed(f"exit code {said.code}: {last[0]}")
    return said.out


def snapshot(folder: Path) -> dict[str, str]:
    """A digest of every file by its path below the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = digest(path)
    return found


def digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        data = timeless(data)
    if path.suffix == ".safetensors":
        data = ordered(data)
    return blake2b(data, digest_size=8).hexdigest()


def ordered(data: bytes) -> bytes:
    """A safetensors file with its header in the order of names: the notes in it have none."""
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
    except ValueError:
        return data
    return json.dumps(header, sort_keys=True).encode() + data[8 + size :]


def timeless(data: bytes) -> bytes:
    """JSON, or lines of it, without what depends on the clock; other bytes as they are."""
    try:
        try:
            values = [json.loads(data)]
        except ValueError:
            values = [json.loads(line) for line in data.splitlines()]
    except ValueError:
        return data
    return json.dumps([without_times(value) for value in values]).encode()


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    if isinstance(value, list):
        return [without_times(item) for item in value]
    return value


def differences(found: dict[str, str], wanted: dict[str, str]) -> str:
    """Which files are missing, too many or other; empty when all is the same."""
    parts = []
    for word, names in (
        ("missing", wanted.keys() - found.keys()),
        ("left over", found.keys() - wanted.keys()),
        ("another", {name for name in wanted.keys() & found.keys() if wanted[name] != found[name]}),
    ):
        if names:
            parts.append(f"{word} {', '.join(sorted(names))}")
    return "; ".join(parts)
