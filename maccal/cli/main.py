"""The command line: the verb that the first words name, imported when it is asked for.

`maccal --help` needs no torch, and a verb only what it uses.
"""

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, Union

import tyro

from maccal.cli.failures import answered
from maccal.cli.output import want
from maccal.cli.parsing import EVERYWHERE, MARKERS, UNSET, as_command, plain_help, run_verb
from maccal.cli.verbs import GROUPS, VERBS, Verb
from maccal.plugins import load_plugins, without_plugins

ABOUT = "Make a neural network's confidence trustworthy: measure it, calibrate it, report it."
HELP = ("-h", "--help")
FLAGS = ("--help", "--version", "--plugin")  # that may stand where the verb does
# In tyro's completion scripts: None is no choice; where no flag or verb fits, files may; zsh counts
# words from 1; and of a file's name only the last word is known, where bash's script joins all
REPAIRS = (
    ("'unset', ", ""),
    (", 'unset'", ""),
    (
        "    return completions\n\n\ndef main()",
        "    files = ['__TYRO_COMPLETE_FILES__']\n"
        "    return completions or (files if current_word else [])\n\n\ndef main()",
    ),
    ('"${words[@]}" "$CURRENT"', '"${words[@]}" "$((CURRENT - 1))"'),
    (
        'COMPREPLY=($(compgen -f -- "$cur"))',
        "compopt -o filenames 2>/dev/null\n"
        '    COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))',
    ),
)
COMPLETION = ("--tyro-print-completion", "--tyro-write-completion")


def nothing() -> None:
    """Of no interest to who calls."""


def command(imported: Callable[[], None]) -> None:
    """What the command line says; `imported` is called before the work begins."""
    words, files = without_plugins(sys.argv[1:])
    if {"--version", "-V"} & set(words):
        print(f"maccal {version('maccal')}")
        return
    want()
    if set(COMPLETION) & set(words):
        complete(words)
        return
    group = words[0] if words and words[0] in GROUPS else ""
    name, rest = chosen(words)
    if not name and rest[:1] and rest[0] in HELP:
        print(overview(group))
        return
    if not name:
        raise ValueError(mistake(group, rest))
    verb = VERBS[name]
    module = import_module(verb.home.partition(":")[0])
    load_plugins(files)
    function = function_of(verb, module, words)
    imported()
    run_verb(name, verb, function, rest)


def chosen(words: Sequence[str]) -> tuple[str, list[str]]:
    """The verb that the first one or two words name, "" if none, and the words after it.

    >>> chosen(["data", "get", "svhn"]), chosen(["evalute", "x.npz"])
    (('data get', ['svhn']), ('', ['evalute', 'x.npz']))
    """
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in VERBS:
            return name, list(words[length:])
    return "", list(words[1:] if words and words[0] in GROUPS else words)


def function_of(verb: Verb, module: Any, words: Sequence[str]) -> Callable[..., Any]:
    found = getattr(module, verb.home.partition(":")[2])
    return found(words) if verb.made else found


def overview(group: str = "") -> str:
    """The verbs, or those of a group, each with a line."""
    usage = f"maccal {group}".strip()
    lines = [f"usage: {usage} VERB ...", "", GROUPS.get(group, ABOUT), "", "verbs:"]
    for name, about in rows_of(group).items():
        lines.append(f"  {name:10} {about}")
    lines += ["", f"maccal {f'{group} '.lstrip()}VERB --help has each verb's flags, and examples."]
    return "\n".join([*lines, f"With every verb: {EVERYWHERE}."])


def rows_of(group: str) -> dict[str, str]:
    """The names that may come next, and what each is."""
    rows: dict[str, str] = {}
    for name, verb in VERBS.items():
        first, _, second = name.partition(" ")
        if group and first == group:
            rows[second] = verb.about
        elif not group:
            rows[first] = GROUPS.get(first, verb.about)
    return rows


def mistake(group: str, words: Sequence[str]) -> str:
    """What to say where no verb is named, or one that is not there."""
    known = list(rows_of(group))
    after = f"maccal {group}".strip()
    if not words:
        return f"no verb; choose {', '.join(known)}, or see {after} --help"
    close = get_close_matches(words[0], [*known, *FLAGS], n=2)
    if not close and words[0].startswith("-"):
        return f"{words[0]}: the verb comes first; choose {', '.join(known)}"
    guess = f"did you mean {' or '.join(close)}?" if close else f"choose {', '.join(known)}."
    return f"no verb {words[0]!r}; {guess} See {after} --help"


def complete(words: Sequence[str]) -> None:
    """Print or write a completion script: tyro's, which knows all verbs and their flags."""
    plain_help()
    commands: dict[str, Callable[..., Any]] = {}
    groups: dict[str, list[Any]] = {}
    for name, verb in VERBS.items():
        made = function_of(verb, import_module(verb.home.partition(":")[0]), [])
        first, _, second = name.partition(" ")
        if not second:
            commands[first] = as_command(made)
            continue
        inner = tyro.conf.subcommand(second, constructor=as_command(made))
        groups.setdefault(first, []).append(Annotated[Any, inner])
    for first, inner_verbs in groups.items():
        commands[first] = grouped(inner_verbs)
    script = io.StringIO()
    try:
        with redirect_stdout(script):
            tyro.extras.subcommand_cli_from_dict(
                commands, prog="maccal", args=words, config=MARKERS, registry=UNSET
            )
    finally:
        sys.stdout.write(mended(script.getvalue()))


def mended(script: str) -> str:
    """A completion script that completes the names of files too, and no word that is ours alone.

    tyro's knows files only as the values of flags, not as FILE of `maccal evaluate FILE`.
    """
    for old, new in REPAIRS:
        script = script.replace(old, new)
    return script


def grouped(verbs: list[Any]) -> Callable[..., Any]:
    def group(verb: Any) -> None:
        """Verbs of one group."""

    marker: Any = tyro.conf.OmitArgPrefixes
    choice: Any = Union[tuple(verbs)]  # noqa: UP007
    group.__annotations__ = {"verb": marker[choice]}
    return tyro.conf.configure(tyro.conf.OmitSubcommandPrefixes)(group)


def main(imported: Callable[[], None] = nothing) -> None:
    answered(lambda: command(imported))
