"""With what a row was made: versions of the packages, the commit of a checkout, threads, precision.

provenance(threads=2, precision="bf16")     of a run; a stranger's predictions have neither
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Provenance:
    """With what a row was made; None is what is not known, or was not there."""

    maccal: str | None = None
    commit: str | None = None  # of the checkout that the package was imported from
    torch: str | None = None
    numpy: str | None = None
    threads: int | None = None  # of the training
    precision: str | None = None


def provenance(threads: int | None = None, precision: str | None = None) -> Provenance:
    """As of this process."""
    return Provenance(
        version("maccal"),
        commit_of(PACKAGE.parent),
        version("torch"),
        version("numpy"),
        threads,
        precision,
    )


@cache
def commit_of(checkout: Path) -> str | None:
    """The commit that is checked out in a folder; None where it is no checkout of git's.

    Reads git's own files: a program need not have git to make a run.
    """
    try:
        folder = git_folder(checkout / ".git")
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        return commit_of_branch(folder, head.removeprefix("ref: "))
    except (OSError, ValueError):
        return None


def git_folder(path: Path) -> Path:
    """Where git keeps its files: in a further work tree, .git is a file that says where."""
    if path.is_dir():
        return path
    return path.parent / path.read_text().removeprefix("gitdir: ").strip()


def commit_of_branch(folder: Path, branch: str) -> str | None:
    """The commit of a branch, from its own file or from the list of all."""
    common = folder / "commondir"  # a further work tree shares its branches
    home = folder / common.read_text().strip() if common.exists() else folder
    if (home / branch).exists():
        return (home / branch).read_text().strip()
    for line in (home / "packed-refs").read_text().splitlines():
        commit, _, name = line.partition(" ")
        if name == branch:
            return commit
    return None
