"""A table in Markdown."""

from collections.abc import Sequence


def table(head: Sequence[str], lines: Sequence[Sequence[str]], right: bool = True) -> str:
    """All columns but the first are numbers, and stand to the right; or else words."""
    ruler = ["---", *["---:" if right else "---"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *lines))
