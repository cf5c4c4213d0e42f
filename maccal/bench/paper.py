"""The numbers of the paper's five tables, as printed: percent, and seconds in the table of cost.

    table("table1")                                              the rows of a table, as dicts
    published("table1", method="maccal", data="cifar10", model="resnet50")["ece"]    0.92
    errata(), figures()                                          what it gets wrong, and its figures

table1      Table 1, ECE by method, data and model
ood         Table 2, AUROC and FPR95 of images from elsewhere: the mean over SVHN and the other
            CIFAR, on networks it does not name
combine     Table 3, accuracy and ECE of a method alone and (_ours) with MaC-Cal: the mean over the
            four networks on CIFAR, ResNet-50 on Tiny-ImageNet
cost        Table 4, seconds of the whole training, both stages
ablation    Table 5; `row` is the name that Stage2.ablation knows, `component` what it adds to the
            row before

Names are those of METHODS, DATASETS and MODELS. Where a row's numbers or network are in doubt,
`erratum` is an id of errata().
"""

import json
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

# the methods of Table 1 as it calls them, in its order; and, not in it, what stands beside them
TITLES = {
    "vanilla": "Vanilla",
    "acls": "ACLS",
    "ls": "LS",
    "mbls": "MbLS",
    "mixup": "mixup",
    "mit": "MIT",
    "fl": "FL",
    "flsd": "FLSD",
    "dfl": "DFL",
    "cpc": "CPC",
    "mmce": "MMCE",
    "plp": "PLP",
    "tst": "TST",
    "vtst": "VTST",
    "balcal": "BalCAL",
    "maccal": "Ours",
}
YARDSTICKS = {"temperature": "Temperature", "vector": "Vector", "matrix": "Matrix"}
TABLES = ("table1", "ood", "combine", "cost", "ablation")


@cache
def read() -> dict[str, list[dict[str, Any]]]:
    content: dict[str, list[dict[str, Any]]] = json.loads(
        Path(__file__).with_name("paper.json").read_text(encoding="utf-8")
    )
    return content


def rows(name: str) -> list[dict[str, Any]]:
    """Copies, so that no caller changes what another reads."""
    return [dict(row) for row in read()[name]]


def table(name: str) -> list[dict[str, Any]]:
    """The rows of a table, the methods in the paper's order.

    >>> table("ood")[0]
    {'method': 'vanilla', 'data': 'cifar10', 'auroc': 88.07, 'fpr95': 56.79}
    """
    if name not in TABLES:
        raise ValueError(f"no table {name!r}; the tables are {', '.join(TABLES)}")
    return rows(name)


def published(name: str, **keys: Any) -> dict[str, Any] | None:
    """The one row of a table with these values, or None where the paper has none; several are a
    ValueError.

    >>> published("cost", method="mit", data="tiny-imagenet", model="resnet50_tiny")["seconds"]
    204046
    >>> published("ood", method="mixup", data="cifar10") is None
    True
    """
    found = table(name)
    known = list(dict.fromkeys(chain.from_iterable(found)))
    for key in keys:
        if key not in known:
            raise ValueError(f"the rows of {name} have no {key!r}; they have {', '.join(known)}")
    found = [row for row in found if keys.items() <= row.items()]
    if len(found) > 1:
        more = ", ".join(key for key in known if key not in keys)
        raise ValueError(f"{len(found)} rows of {name} match {keys}; say more of {more}")
    return found[0] if found else None


def errata() -> list[dict[str, Any]]:
    """What the paper gets wrong: id, where, problem, what is printed and what we read.

    Ours is None where nothing tells.
    """
    return rows("errata")


def figures() -> list[dict[str, Any]]:
    """The figures: number, label in the source, a short caption and what each shows."""
    return rows("figures")
