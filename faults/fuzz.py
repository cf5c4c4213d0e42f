"""Odd input for every reader and every public function.

    fuzz(seed, count, tally)    about `count` inputs: half of them files, half of them arguments

Files: sound ones changed in many places at once, ones made by grammar.py, things that are no file,
and where atheris is installed what it finds by following the branches that the reader takes
(guided.py). Arguments: cases.py. Outcomes: answered (in range), refused (ValueError or TypeError,
one line), wrong (a sound input was refused), silent (NaN or a number out of range, or an answer
where there is none), crash (another error, a signal, a hang, too much memory)."""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from faults import cases, damage, grammar, guided, specimens
from faults.functions import CALLS, Call, range_error
from faults.sandbox import trials, workspace
from faults.specimens import FORMATS, Format
from faults.tally import Outcome, Tally

SIZES = {"call": 20, "mutation": 20, "grammar": 5, "special": 1}  # inputs of one task
SECONDS = 20.0  # that a task may take
GUIDED = 10_000  # inputs from which on some are found by atheris, which takes seconds to start
MEMORY = 1 << 30  # bytes that an input may cost: some arrays of a few numbers
QUICK = tuple(form for form in FORMATS if form.share == 1)  # the readers that need no command line
NUMBERS = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x80",
    b"\xff\xff\xff\x7f",
    b"\xff" * 8,
    b"\0" * 8,
)


@dataclass(frozen=True)
class Task:
    """Some inputs of one kind; the seed and the number say which."""

    kind: str  # "call", "mutation", "grammar" or "special"
    name: str
    number: int
    seed: int

    @property
    def about(self) -> str:
        return f"{self.kind}, seed {self.seed}, task {self.number}"

    @property
    def rng(self) -> random.Random:
        return random.Random(f"{self.seed} {self.kind} {self.name} {self.number}")


# Functions


def size_of(call: Call) -> int:
    """Inputs of one task: few where a call is slow."""
    return max(2, round(SIZES["call"] * min(1, 2 * call.share)))


def draws(call: Call, task: Task) -> list[Any]:
    options = st.fixed_dictionaries({}, optional=dict(call.options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch and numpy warn of what is made on purpose here
        return cases.examples(
            st.tuples(call.arguments, options), task.rng.randrange(1 << 32), size_of(call)
        )


def tried_call(task: Task) -> list[Outcome]:
    call = CALLS[task.name]
    found = []
    for index, (arguments, options) in enumerate(draws(call, task)):
        values = [*arguments, *options.values()]
        known = [value.sound for value in values]
        sound = False if False in known else None if None in known else True
        words = [value.name for value in arguments] + [
            f"{key}={value.name}" for key, value in options.items()
        ]
        about = f"{task.about}, input {index}: {', '.join(words)[:200]}"
        given = {key: value.value for key, value in options.items()}
        word, why = judged(call, [value.value for value in arguments], given, sound)
        found.append(Outcome(task.name, word, f"{about}: {why}"))
    return found


def judged(
    call: Call, arguments: list[Any], options: dict[str, Any], sound: bool | None
) -> tuple[str, str]:
    """The outcome of one call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answer = call.function(*arguments, **options)
        except (ValueError, TypeError) as error:
            word, why = damage.refused(error)
            if why and not call.foreign:
                return word, why
            return ("wrong", f"refused: {damage.described(error)}") if sound else ("refused", "")
        except BaseException as error:
            if call.foreign and isinstance(error, RuntimeError):
                return "refused", ""
            return "crash", damage.described(error)
    if problem := range_error(answer, call):
        return "silent", problem
    return ("silent", "answered what has no answer") if sound is False else ("answered", "")


# Files


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Several damages at once, and numbers that are often the last or the first of their kind."""
    for _ in range(rng.choice((1, 2, 4, 8, 16))):
        if rng.random() < 0.4:
            number = rng.choice(NUMBERS)
            place = rng.randrange(max(1, min(len(data), rng.choice((64, 512, len(data) or 1)))))
            data = data[:place] + number + data[place + len(number) :]
        else:
            data = rng.choice(list(damage.KINDS.values()))(data if len(data) > 1 else b"\0\0", rng)
    return data


def tried_file(task: Task, pristine: Path, work: Path) -> list[Outcome]:
    form = next(form for form in FORMATS if form.name == task.name)
    rng, found = task.rng, []
    for index in range(SIZES[task.kind]):
        folder, file = placed(form, pristine, work)
        specimen = file.read_bytes()
        if task.kind == "special":
            name = list(grammar.SPECIAL)[task.number]
            file.unlink()
            grammar.SPECIAL[name](file)
        else:
            make = mutated_by if task.kind == "mutation" else rng.choice(grammar.WRITERS[task.name])
            name = getattr(make, "__name__", "made")
            file.write_bytes(make(rng, specimen))
        word, why = read_as(form, folder, damage.right(form, pristine, work))
        found.append(Outcome(form.name, word, f"{task.about}, input {index}, {name}: {why}"))
    return found


def mutated_by(rng: random.Random, specimen: bytes) -> bytes:
    return mutated(specimen, rng)


def placed(form: Format, pristine: Path, work: Path) -> tuple[Path, Path]:
    """A copy of the specimen's folder, and the file in it that is fuzzed."""
    folder = work / "place" / "specimen"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(pristine / form.folder, folder)
    return folder, sorted(folder.glob(form.file))[0]


def read_as(form: Format, folder: Path, right: object) -> tuple[str, str]:
    """As damage.py judges it.

    A file of another content may well be answered otherwise, if its checksum is right.
    """
    word, why = damage.judged(lambda: form.read(folder), right, promised=False)
    return {"noticed": "refused", "harmless": "answered", "not promised": "answered"}.get(
        word, word
    ), why


# All of it


def plan(seed: int, count: int) -> list[Task]:
    tasks = [
        Task("special", form.name, number, seed)
        for form in QUICK
        for number in range(len(grammar.SPECIAL))
    ]
    whole = sum(call.share for call in CALLS.values())
    for name, call in CALLS.items():
        many = 1 + round(count / 2 * call.share / whole / size_of(call))
        tasks += [Task("call", name, number, seed) for number in range(many)]
    for form in QUICK:
        tasks += [
            Task("mutation", form.name, number, seed)
            for number in range(1 + int(0.35 * count / SIZES["mutation"] / len(QUICK)))
        ]
    for name in grammar.WRITERS:
        slow = next(form for form in FORMATS if form.name == name).share < 1
        many = 1 + int(0.1 * count / SIZES["grammar"] / len(grammar.WRITERS) * (0.1 if slow else 1))
        tasks += [Task("grammar", name, number, seed) for number in range(many)]
    random.Random(seed).shuffle(tasks)
    return tasks


def fuzz(seed: int, count: int, tally: Tally) -> None:
    place = workspace()
    try:
        specimens.make(
            place / "pristine",
            tuple(form for form in FORMATS if form in QUICK or form.name in grammar.WRITERS),
        )
        work = worker(place)
        names = lambda task: (task.name, task.about)  # noqa: E731
        for outcome in trials(plan(seed, count), work, name=names, seconds=SECONDS, memory=MEMORY):
            tally.add(outcome)
        if count >= GUIDED:
            for outcome in guided.explored(seed, count // 20, place):
                tally.add(outcome)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def worker(place: Path) -> Callable[[Task], list[Outcome]]:
    def work(task: Task) -> list[Outcome]:
        if task.kind == "call":
            return tried_call(task)
        own = place / f"lane{os.getpid()}"
        own.mkdir(exist_ok=True)
        return tried_file(task, place / "pristine", own)

    return work
