"""The two pages of the site that are looked up: what other packages can do, and the API.

From results/peers.json, and the package's public names and docstrings; site_pages.py writes them.
"""

import inspect
import json
from pathlib import Path
from typing import Any

from markdown_table import table

import maccal

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
MARKS = {"yes": "yes", "no": "–", "named": "?", "failed": "!"}


def peers() -> str:
    found = json.loads((RESULTS / "peers.json").read_text(encoding="utf-8"))
    features = list(found["maccal"]["features"])
    head = ["", *found]
    lines = []
    for feature in features:
        cells = [peer["features"][feature] for peer in found.values()]
        lines.append([feature, *(MARKS[cell["state"]] for cell in cells)])
    return PEERS.format(table=table(head, lines), answers=answers(found))


def answers(found: dict[str, Any]) -> str:
    """What was called, peer by peer; folded until someone asks."""
    parts = []
    for name, peer in found.items():
        lines = []
        for feature, cell in peer["features"].items():
            if "call" in cell and feature != "command line":
                called = cell["call"].replace("\n", "\n    ")
                lines.append(f"**{feature}** ({cell['state']}): `{cell['answer']}`\n\n    {called}")
        title = f"<details markdown>\n<summary>{name} {peer['version']}</summary>"
        parts.append("\n\n".join([title, *lines, "</details>"]))
    return "\n\n".join(parts)


PEERS = """---
hide: [toc]
---

# Beside other packages

Each package was installed and asked, feature by feature:

- **yes**: it was called and answered. The lines that were run, and the answer, are below.
- **–**: no name in its source looks like the feature, or the answer is not the right one.
- **?**: a name in its source looks like it, but it was not called. **!**: it was called and failed.

<div class="many-columns" markdown>

{table}

</div>

The features are those that someone who wants trustworthy confidence asks for, and we chose them. A
package that is made for something else has few of them, and has much that is not in this table.

*A confidence of exactly 1*: three rows have an ECE of 29 / 60 with ten bins. A package that puts
1.0 into a bin of its own says 31 / 60.

## What was called

The lines see 2,000 rows of five classes (`probs`, `logits`, `labels`; `P`, `L`, `Y` as tensors), a
small torch `model` and its `loader`.

{answers}

*Made by `benchmarks/site_pages.py` from [peers.json](../results/peers.json), which
`benchmarks/features_of_peers.py` writes. The column of maccal is the package as it was then.*
"""


def first_sentence(name: str) -> str:
    """What a public name is, from its docstring; without a full stop, as a cell of a table."""
    text = inspect.getdoc(getattr(maccal, name)) or ""
    line = " ".join(text.split("\n\n")[0].split())
    return line.split(". ")[0].rstrip(".").replace("|", "\\|")


def overview() -> str:
    """One line per public name, which leads to its section."""
    public: list[str] = []
    for names in maccal.HOMES.values():
        public += [name for name in names if not name.isupper()]
    lines = []
    for name in sorted(public, key=str.lower):
        lines.append([f"[`{name}`][maccal.{name}]", first_sentence(name)])
    return table(("name", "what it is"), lines, right=False)


def api() -> str:
    parts = [API.format(overview=overview())]
    for room, names in maccal.HOMES.items():
        public = [name for name in names if not name.isupper()]
        parts.append(f"## maccal.{room}\n")
        parts += [f"::: maccal.{name}\n" for name in public]
    return "\n".join(parts)


API = """# API

All names are in `maccal` itself, `import maccal as mc`; the headings say in which part of the
package they live. `mc.DATASETS`, `mc.METHODS` and `mc.MODELS` are dictionaries of what can be named
on the command line.

{overview}

In the signatures

- an `Array` is a numpy array, a torch tensor, a list, or a column of pandas, pyarrow or polars;
- `Labels` are an `Array` of class indices, or names where `classes` has them in the order of the
  columns;
- `Same` is a tensor if a tensor was passed, and else a numpy array;
- `Inputs` is `"logits"` or `"probs"`;
- `Model` is the type of the model that was passed.
"""
