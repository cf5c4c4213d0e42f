"""A verb's function as a command: its flags, its help, and the flags that every verb has.

tyro makes the flags from the signature. Here the help is made plain: the words of the docstring
without its line breaks, no {None}, no "(default: None)", NAME ... for several of them, and below it
the examples of verbs.py. Printing a completion script is tyro's too.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from docstring_parser import parse

from maccal.cli.output import want
from maccal.cli.verbs import Verb

SHARED = {
    "json": "print the result as JSON on stdout, and nothing else there.",
    "quiet": "no notes and no progress on stderr; errors are still said.",
}
EVERYWHERE = "--version shows the version; --plugin FILE runs your Python file first"
LONG = re.compile(r"\d+\.\d{7,}")  # a number with more digits than one reads
MARKERS = (
    tyro.conf.DisallowNone,
    tyro.conf.PositionalMetavarFromFieldName,
)


UNSET = tyro.constructors.ConstructorRegistry()
INSIDE: set[Any] = set()  # dataclasses that tyro is being asked about


@UNSET.primitive_rule
def none_is_unset(
    about: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[None] | None:
    """None is shown as "unset"; it cannot be typed (DisallowNone)."""
    if about.type is not type(None):
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="{unset}",
        instance_from_str=lambda words: None,
        is_instance=lambda value: value is None,
        str_from_instance=lambda value: ["unset"],
        choices=("unset",),
    )


@UNSET.struct_rule
def described_fields(
    about: tyro.constructors.StructTypeInfo,
) -> tyro.constructors.StructConstructorSpec | None:
    """A dataclass as tyro sees it, with the help of its fields made as plain as a verb's own."""
    if not is_dataclass(about.type) or about.type in INSIDE:
        return None
    INSIDE.add(about.type)
    try:
        usual = tyro.constructors.ConstructorRegistry.get_struct_spec(about)
    finally:
        INSIDE.discard(about.type)
    if not isinstance(usual, tyro.constructors.StructConstructorSpec):
        return None
    fields = []
    for field in usual.fields:
        words = field.helptext() if callable(field.helptext) else field.helptext
        fields.append(replace(field, type=told(field.type, words or "")))
    return replace(usual, fields=tuple(fields))


def run_verb(name: str, verb: Verb, function: Callable[..., Any], words: Sequence[str]) -> None:
    """Parse the words, and do it; for --help also the examples."""
    plain_help()
    try:
        tyro.cli(
            as_command(function), prog=f"maccal {name}", args=words, config=MARKERS, registry=UNSET
        )
    except SystemExit as left:
        if left.code in (0, None) and {"-h", "--help"} & set(words):
            print(epilog(verb))
        raise


def epilog(verb: Verb) -> str:
    """The examples, one command per line with what it does below."""
    lines = ["examples:"]
    for example in verb.examples:
        lines += [f"  maccal {example.words}", f"      {example.about}"]
    return "\n".join([*lines, "", f"with every verb: {EVERYWHERE}"])


def as_command(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the shared flags, and with its help as annotations that tyro reads."""
    source = getattr(function, "func", function)  # a partial has the words of what it is of
    helped = {one.arg_name: one.description or "" for one in parse(source.__doc__ or "").params}
    hints = get_type_hints(source, include_extras=True)
    parameters = []
    for parameter in inspect.signature(function).parameters.values():
        found = described(hints[parameter.name], helped.get(parameter.name, ""))
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(parameter.replace(annotation=found, kind=kind))
    for name, words in SHARED.items():
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False,
                annotation=described(bool, words),
            )
        )

    def command(*, json: bool = False, quiet: bool = False, **given: Any) -> None:
        want(json=json, quiet=quiet)
        function(**given)

    signature: Any = inspect.Signature(parameters)
    vars(command)["__signature__"] = signature
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    command.__name__ = source.__name__
    command.__doc__ = source.__doc__
    return command


def described(annotation: Any, words: str) -> Any:
    """A parameter's annotation with its help; a switch has no --no- form."""
    if bare(annotation) is bool:
        single: Any = tyro.conf.FlagCreatePairsOff
        annotation = single[annotation]
    return told(annotation, words)


def bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def told(annotation: Any, words: str) -> Any:
    """The annotation with its help; a dataclass has the comments at its fields instead."""
    inner = bare(annotation)
    if is_dataclass(inner):
        return annotation
    metavar = None
    known = [one for one in getattr(annotation, "__metadata__", ()) if hasattr(one, "metavar")]
    if get_origin(inner) is tuple and not any(one.metavar for one in known):
        metavar = several(get_args(inner)[0])
    about = tyro.conf.arg(
        help=" ".join(words.split()), help_behavior_hint=default_words, metavar=metavar
    )
    return Annotated[annotation, about]


def several(element: Any) -> str:
    """
    >>> several(float), several(Literal["thr", "aps"])
    ('FLOAT ...', '{thr,aps} ...')
    """
    if get_origin(element) is Literal:
        return f"{{{','.join(get_args(element))}}} ..."
    return f"{element.__name__.upper()} ..."


def default_words(default: str) -> str:
    """What is said of a default: nothing where it is that the flag is not given.

    >>> default_words("None"), default_words("0.42857142857142855 1")
    ('', '(default: 0.4286 1)')
    """
    if default in ("unset", "None", "False", ""):
        return ""
    short = LONG.sub(lambda found: f"{float(found[0]):.4g}", default)
    return f"(default: {short})"


def plain_help() -> None:
    """No styles where they are not wanted, or where they would go to a file."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    terminal = all(stream.isatty() for stream in streams)
    tyro._experimental_options["ansi_codes"] = terminal and not os.environ.get("NO_COLOR")
