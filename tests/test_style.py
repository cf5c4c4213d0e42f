"""One thought per line: what a room may still have of what the style does not want.

A limit is a room's count when it was last lowered; it is never raised. Zero where none is named.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest

import maccal

PACKAGE = Path(maccal.__file__).parent
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
LONGEST = 100

LIMITS: dict[str, dict[str, int]] = {
    "data": {"walruses": 2},  # while block := file.read(...)
}


def nested(tree: ast.AST) -> int:
    """Comprehensions that hold another one, or that loop twice."""
    found = 0
    for node in ast.walk(tree):
        if isinstance(node, COMPREHENSIONS):
            inner = [child for child in ast.walk(node) if isinstance(child, COMPREHENSIONS)]
            found += len(inner) > 1 or len(node.generators) > 1
    return found


def walruses(tree: ast.AST) -> int:
    return sum(isinstance(node, ast.NamedExpr) for node in ast.walk(tree))


def counted(source: str) -> Counter[str]:
    tree = ast.parse(source)
    lines = source.split("\n")
    return Counter(
        {
            "long lines": sum(len(line) > LONGEST for line in lines),
            "nested comprehensions": nested(tree),
            "walruses": walruses(tree),
            "formatting switched off": source.count("# fmt: "),
        }
    )


def room_of(path: Path) -> str:
    """The folder below the package, or the file beside the folders."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def counts() -> dict[str, Counter[str]]:
    """Of every room."""
    found: dict[str, Counter[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = found.setdefault(room_of(path), Counter())
        room.update(counted(path.read_text()))
    return found


COUNTS = counts()


def beyond(found: Counter[str], limit: dict[str, int]) -> dict[str, int]:
    """What there is more of than allowed."""
    return {what: count for what, count in found.items() if count > limit.get(what, 0)}


@pytest.mark.parametrize("room", COUNTS)
def test_no_more_than_the_limit(room):
    assert beyond(COUNTS[room], LIMITS.get(room, {})) == {}


def test_every_limit_is_of_a_room_and_of_something_counted():
    assert set(LIMITS) <= set(COUNTS)
    assert set().union(*LIMITS.values()) <= set(counted(""))


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("x = " + "1" * 97, "long lines"),
        ("x = [[a for a in b] for b in c]", "nested comprehensions"),
        ("x = {a for b in c for a in b}", "nested comprehensions"),
        ("x = sum(len([a for a in b]) for b in c)", "nested comprehensions"),
        ("f(y := 1)", "walruses"),
        ("x = 1  # fmt: skip", "formatting switched off"),
    ],
)
def test_the_test_can_fail(source, what):
    found = counted(source)
    assert found == Counter({what: 1})
    assert beyond(found, {}) == {what: 1}
    assert beyond(found, {what: 1}) == {}


def test_plain_code_is_not_counted():
    source = "x = [a for a in b if a]\nfor a in x:\n    y = {k: v for k, v in a}\n" + "1" * 100
    assert counted(source).total() == 0
