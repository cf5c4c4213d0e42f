"""The publisher's pickles, read without unpickling: nothing is imported, called or built by name.

A pickle is a program. The CIFAR files use few of its instructions, and this interpreter knows those
alone. What comes out is one dict of bytes, text, whole numbers, lists, and arrays of bytes. The
instructions by which numpy makes an array are recognised as one exact pattern. None of numpy's own
functions is called for them: the array is a view of the bytes in the file, in the shape that the
file says, if both agree.

    protocols 2 to 4    _reconstruct, (ndarray, (0,), b"b"),
                        then BUILD (1, shape, uint8, order, bytes)
    protocol 5          _frombuffer, (bytes, uint8, shape, order)
    protocol 2          _codecs.encode, (text, "latin1"): bytes as Python 3 writes them

It reads the files as published (Python 2, protocol 2), and the same dicts saved by any Python 3 and
numpy in the protocols 2 to 5. Anything else is a FileError that names the byte.

Memory: that of the file, once more for its strings, and 100 bytes for each of at most INSTRUCTIONS.
"""

import math
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from maccal.io import FileError, read_bytes

LARGEST = 1 << 30  # bytes of a file; the largest published one has 155 million
INSTRUCTIONS = 2_000_000  # the longest published file has 350,000
DIMENSIONS = 4


class Name(Enum):
    """What a file may ask for by name. Names are compared with these, and never looked up."""

    RECONSTRUCT = "_reconstruct"
    FROMBUFFER = "_frombuffer"
    NDARRAY = "numpy.ndarray"
    DTYPE = "numpy.dtype"
    ENCODE = "_codecs.encode"
    UINT8 = "uint8"  # what calling DTYPE gives: the only type there is


NAMES = {
    "numpy.core.multiarray._reconstruct": Name.RECONSTRUCT,
    "numpy._core.multiarray._reconstruct": Name.RECONSTRUCT,
    "numpy.core.numeric._frombuffer": Name.FROMBUFFER,
    "numpy._core.numeric._frombuffer": Name.FROMBUFFER,
    "numpy.ndarray": Name.NDARRAY,
    "numpy.dtype": Name.DTYPE,
    "_codecs.encode": Name.ENCODE,
}
# The arguments that make numpy's uint8, and the state it is given then; Python 2 wrote its text as
# bytes
UINT8 = ("u1", False, True)
OLD_UINT8 = (b"u1", False, True)
STATE = (3, "|", None, None, None, -1, -1, 0)
OLD_STATE = (3, b"|", *STATE[2:])


class Refused(ValueError):
    """What the file asks for, and does not get."""


class Shell:
    """An array before and after it is filled, which happens once. It is equal only to itself."""

    def __init__(self, array: np.ndarray | None = None) -> None:
        self.array = array


def read_pickle(path: Path) -> dict[Any, Any]:
    """The dict in the file, its keys bytes, text or whole numbers; FileError for anything else."""
    reader = Reader(read_bytes(path, LARGEST))
    try:
        content = reader.run()
    except (Refused, IndexError, KeyError, UnicodeError) as error:
        said = str(error) if isinstance(error, Refused) else "an instruction without its operand"
        problem = f"not a CIFAR pickle ({said}, at byte {reader.start}); download it again"
        raise FileError(path, problem) from None
    if not isinstance(content, dict):
        raise FileError(path, f"a pickle of {type(content).__name__}; expected a dict")
    return {key: filled(value) for key, value in content.items()}


def filled(value: Any) -> Any:
    """The array in a shell, or any other value as it is."""
    return value.array if isinstance(value, Shell) else value


class Reader:
    """The state of the interpreter."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.next = 0  # the byte to be read next
        self.start = 0  # the byte where the current instruction starts
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}
        self.encoded = 0  # bytes that were made from text

    def run(self) -> Any:
        """The one value that is left on the stack at the end of the file."""
        if self.take(1) != b"\x80" or not 2 <= self.number(1) <= 5:
            raise Refused("no pickle of protocol 2 to 5")
        for _ in range(INSTRUCTIONS):
            self.start = self.next
            code = self.take(1)
            if code == b".":
                return self.result()
            if code not in READ:
                raise Refused(f"an instruction {code!r}, which no file of images needs")
            READ[code](self)
        raise Refused(f"more than {INSTRUCTIONS:,} instructions")

    def result(self) -> Any:
        if len(self.stack) != 1 or self.below or self.next != len(self.data):
            raise Refused("it ends where it should not")
        return self.stack[0]

    # Operands

    def take(self, size: int) -> bytes:
        end = self.next + size
        if end > len(self.data):
            raise Refused("the file ends early")
        taken = self.data[self.next : end]
        self.next = end
        return taken

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "little", signed=signed)

    def line(self) -> str:
        end = self.data.find(b"\n", self.next, self.next + 100)
        if end < 0:
            raise Refused("a name without an end")
        name = self.take(end - self.next).decode("ascii")
        self.next += 1
        return name

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        """Take all values above the last mark, and the mark, from the stack."""
        values = self.stack
        self.stack = self.below.pop()
        return values

    # Instructions

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def frame(self) -> None:
        """Protocols 4 and 5 announce how many bytes to read at once; we have them all."""
        if self.number(8) > len(self.data) - self.next:
            raise Refused("the file ends early")

    def long(self) -> None:
        size = self.number(1)
        if size > 8:
            raise Refused("a whole number of more than eight bytes")
        self.push(self.number(size, signed=True))

    def remember(self, key: int) -> None:
        self.memo[key] = self.stack[-1]

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise Refused("values for a list that is none")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise Refused("values for a dict that is none")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (bytes, str, int):
                raise Refused(f"a {type(key).__name__} as a key")
            if key in target:
                raise Refused("a key that comes twice")
            target[key] = value

    def tuple_of(self, count: int) -> None:
        if count > len(self.stack):
            raise Refused("a tuple of more values than there are")
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.push(values)

    def name(self, module: str, name: str) -> None:
        wanted = f"{module}.{name}"
        if wanted not in NAMES:
            raise Refused(f"it asks for {wanted[:100]}, which no file of images needs")
        self.push(NAMES[wanted])

    def stack_name(self) -> None:
        name = self.stack.pop()
        module = self.stack.pop()
        if type(name) is not str or type(module) is not str:
            raise Refused("a name that is no text")
        self.name(module, name)

    def reduce(self) -> None:
        """A name is called with arguments: one of four patterns."""
        arguments = self.stack.pop()
        called = self.stack.pop()
        if type(arguments) is not tuple or not isinstance(called, Name):
            raise Refused("a call that no file of images needs")
        self.push(self.called(called, arguments))

    def called(self, name: Name, arguments: tuple[Any, ...]) -> Any:
        if name is Name.ENCODE:
            return self.latin1(arguments)
        if name is Name.DTYPE and arguments in (UINT8, OLD_UINT8):
            return Name.UINT8
        if name is Name.RECONSTRUCT and arguments == (Name.NDARRAY, (0,), b"b"):
            return Shell()
        if name is Name.FROMBUFFER and len(arguments) == 4:
            data, kind, shape, order = arguments
            return Shell(array_of(data, kind, shape, order))
        raise Refused("something else than an array of bytes (numpy's uint8)")

    def latin1(self, arguments: tuple[Any, ...]) -> bytes:
        """Bytes from text; in all no more than the file has, as a text could be used many times."""
        if len(arguments) != 2 or arguments[1] != "latin1" or type(arguments[0]) is not str:
            raise Refused("a call that no file of images needs")
        self.encoded += len(arguments[0])
        if self.encoded > len(self.data):
            raise Refused("more bytes than the file has")
        return arguments[0].encode("latin1")

    def build(self) -> None:
        """The state of a type, which must be uint8's; or the contents of an array, once."""
        state = self.stack.pop()
        target = self.stack[-1]
        if type(state) is tuple and target is Name.UINT8 and state in (STATE, OLD_STATE):
            return
        if type(state) is not tuple or not isinstance(target, Shell) or len(state) != 5:
            raise Refused("a state that no file of images needs")
        if target.array is not None or type(state[0]) is not int or state[0] != 1:
            raise Refused("an array that is filled twice, or of an unknown version")
        _, shape, kind, fortran, data = state
        if type(fortran) not in (bool, int) or fortran not in (0, 1):
            raise Refused("an array of unknown order")
        target.array = array_of(data, kind, shape, "F" if fortran else "C")


def array_of(data: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    """The bytes in that shape, if it has as many."""
    if kind is not Name.UINT8 or type(data) is not bytes or order not in ("C", "F"):
        raise Refused("something else than an array of bytes (numpy's uint8)")
    if type(shape) is not tuple or not 1 <= len(shape) <= DIMENSIONS:
        raise Refused("an array without a usable shape")
    if any(type(size) is not int or size < 1 for size in shape) or math.prod(shape) != len(data):
        raise Refused(f"{len(data):,} bytes for an array of another shape")
    return np.frombuffer(data, np.uint8).reshape(shape, order=order)


READ: dict[bytes, Callable[[Reader], object]] = {
    b"}": lambda r: r.push({}),
    b"]": lambda r: r.push([]),
    b")": lambda r: r.push(()),
    b"N": lambda r: r.push(None),
    b"\x88": lambda r: r.push(True),
    b"\x89": lambda r: r.push(False),
    b"K": lambda r: r.push(r.number(1)),
    b"M": lambda r: r.push(r.number(2)),
    b"J": lambda r: r.push(r.number(4, signed=True)),
    b"\x8a": Reader.long,
    # Strings of Python 2 and bytes of Python 3; the number is how many bytes say the size
    b"U": lambda r: r.push(r.take(r.number(1))),
    b"T": lambda r: r.push(r.take(r.number(4))),
    b"C": lambda r: r.push(r.take(r.number(1))),
    b"B": lambda r: r.push(r.take(r.number(4))),
    b"\x8e": lambda r: r.push(r.take(r.number(8))),
    b"\x96": lambda r: r.push(r.take(r.number(8))),
    b"\x8c": lambda r: r.push(r.take(r.number(1)).decode("utf-8", "surrogatepass")),
    b"X": lambda r: r.push(r.take(r.number(4)).decode("utf-8", "surrogatepass")),
    b"\x8d": lambda r: r.push(r.take(r.number(8)).decode("utf-8", "surrogatepass")),
    b"(": Reader.mark,
    b"\x95": Reader.frame,
    b"q": lambda r: r.remember(r.number(1)),
    b"r": lambda r: r.remember(r.number(4)),
    b"\x94": lambda r: r.remember(len(r.memo)),
    b"h": lambda r: r.push(r.memo[r.number(1)]),
    b"j": lambda r: r.push(r.memo[r.number(4)]),
    b"a": lambda r: r.append([r.stack.pop()]),
    b"e": lambda r: r.append(r.since_mark()),
    b"s": lambda r: r.set_items([r.stack.pop(-2), r.stack.pop()]),
    b"u": lambda r: r.set_items(r.since_mark()),
    b"t": lambda r: r.push(tuple(r.since_mark())),
    b"\x85": lambda r: r.tuple_of(1),
    b"\x86": lambda r: r.tuple_of(2),
    b"\x87": lambda r: r.tuple_of(3),
    b"c": lambda r: r.name(r.line(), r.line()),
    b"\x93": Reader.stack_name,
    b"R": Reader.reduce,
    b"b": Reader.build,
}
