"""Names of a package that are imported when they are first asked for.

torch, scipy, scikit-learn and matplotlib take seconds to import. A program that only reads rows, or
prints its version, need not wait for them.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def on_demand(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A `__getattr__` for the package.

    `homes` says which submodule has which names; submodules themselves are found without it.
    """

    def find(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                return getattr(import_module(f"{package}.{home}"), name)
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
