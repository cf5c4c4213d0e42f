"""Damages a file and looks at what its reader makes of it: what every format that we write or read
does with bad disks.

    damage(seed, count, tally)    about `count` trials, shared out over FORMATS

Outcomes: noticed (an error of one line, or a warning and the right result), harmless (the right
result), silent (another result and no word), not promised (the same from a file without a
checksum), wrong (an error of several lines), crash (anything else). The right result is the one of
the undamaged file, to the bit."""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from faults import specimens
from faults.sandbox import trials, workspace
from faults.specimens import FORMATS, Format
from faults.tally import Outcome, Tally


def flip(data: bytes, rng: random.Random) -> bytes:
    place, bit = rng.randrange(len(data)), rng.randrange(8)
    return data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]


def zero(data: bytes, rng: random.Random) -> bytes:
    start, stop = span(data, rng)
    return data[:start] + bytes(stop - start) + data[stop:]


def truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def insert(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data) + 1)
    return data[:place] + rng.randbytes(rng.choice((1, 2, 8, 64))) + data[place:]


def duplicate(data: bytes, rng: random.Random) -> bytes:
    start, stop = span(data, rng)
    return data[:stop] + data[start:stop] + data[stop:]


def swap(data: bytes, rng: random.Random) -> bytes:
    """Two blocks of one size change places."""
    size = min(rng.choice((1, 16, 512, 4096)), len(data) // 2)
    first, second = sorted(rng.randrange(len(data) // size) * size for _ in range(2))
    a, b = data[first : first + size], data[second : second + size]
    if first == second:
        return data
    return data[:first] + b + data[first + size : second] + a + data[second + size :]


def span(data: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data))
    return start, min(len(data), start + rng.choice((1, 4, 16, 512, 4096)))


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": flip,
    "zero": zero,
    "truncate": truncate,
    "insert": insert,
    "duplicate": duplicate,
    "swap": swap,
}


@dataclass(frozen=True)
class Trial:
    """The number of a trial of a format says, with the seed, all about it."""

    format: Format
    number: int
    seed: int

    @property
    def about(self) -> str:
        return f"seed {self.seed}, trial {self.number}, {self.kind}"

    @property
    def kind(self) -> str:
        return list(KINDS)[self.number % len(KINDS)]

    def damaged(self, data: bytes) -> bytes:
        """Other bytes than these: a damage that changes nothing is tried again."""
        rng = random.Random(f"{self.seed} {self.format.name} {self.number}")
        while True:
            found = KINDS[self.kind](data, rng)
            if found != data:
                return found


def judged(read: Callable[[], object], wanted: object, promised: bool = True) -> tuple[str, str]:
    """The outcome of reading a damaged file, in one word, and what to say of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        try:
            found = read()
        except (ValueError, OSError) as error:
            return refused(error)
        except BaseException as error:
            return "crash", described(error)
    if found == wanted:
        return ("noticed" if said else "harmless"), ""
    return ("silent" if promised else "not promised"), f"read as {str(found)[:80]}"


def refused(error: Exception) -> tuple[str, str]:
    """An error for users has words, and one line of them."""
    words = str(error).strip()
    if not words or "\n" in words:
        return "wrong", f"not one line: {described(error)}"
    return "noticed", ""


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def tried(trial: Trial, pristine: Path, work: Path) -> Outcome:
    """Copy the specimen, damage the file, read."""
    form = trial.format
    folder = work / "place" / "specimen"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(pristine / form.folder, folder)
    file = sorted(folder.glob(form.file))[0]
    before = file.read_bytes()
    after = trial.damaged(before)
    file.write_bytes(after)
    promised = form.promised and (len(after) == len(before) or not form.published)
    word, why = judged(lambda: form.read(folder), right(form, pristine, work), promised)
    return Outcome(form.name, word, f"{trial.about}: {why}" if why else trial.about)


@cache
def right(form: Format, pristine: Path, work: Path) -> object:
    """What the undamaged file gives.

    The reader is asked twice, for an answer that changes could not be judged.
    """
    answers: list[object] = []
    for number in range(2):
        folder = work / f"right{number}" / "specimen"
        shutil.copytree(pristine / form.folder, folder)
        answers.append(form.read(folder))
        shutil.rmtree(folder.parent)
    if answers[0] != answers[1]:
        raise RuntimeError(f"{form.name}: two readings of one sound file differ")
    return answers[0]


def plan(seed: int, count: int, formats: tuple[Format, ...] = FORMATS) -> list[Trial]:
    """So many trials in all, or a few more: every format has each kind of damage at least once."""
    each = count / sum(form.share for form in formats)
    found = []
    for form in formats:
        number = max(len(KINDS), round(each * form.share) + 1)
        found += [Trial(form, index, seed) for index in range(number)]
    random.Random(seed).shuffle(found)  # slow and quick ones side by side
    return found


def damage(
    seed: int,
    count: int,
    tally: Tally,
    formats: tuple[Format, ...] = FORMATS,
    make: Callable[..., None] = specimens.make,
) -> None:
    place = workspace()
    try:
        make(place / "pristine", formats)

        def work(trial: Trial) -> list[Outcome]:
            own = place / f"lane{os.getpid()}"
            own.mkdir(exist_ok=True)
            return [tried(trial, place / "pristine", own)]

        for outcome in trials(
            plan(seed, count, formats), work, name=lambda trial: (trial.format.name, trial.about)
        ):
            tally.add(outcome)
    finally:
        shutil.rmtree(place, ignore_errors=True)
