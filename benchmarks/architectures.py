"""Which public architectures maccal can calibrate, and whether what they say survives a file.

    python benchmarks/architectures.py build/architectures

One or two of each family of timm, torchvision and transformers: the one that its name calls small.
Weights are random, inputs are four rows of noise. For each: the classifier is found; a temperature
and one epoch of MaC-Cal from the trained classifier are fitted; the temperature's logits are the
old ones over one number; state-dict keys are as before, and a classifier without bias has none
afterwards; another copy of the model that loads the weights strictly says the same, and for
transformers one that was saved and loaded by save_pretrained and from_pretrained. A classifier that
starts at zero gets random weights first.

Every architecture is one line of tried.jsonl in the folder, so that an interrupted walk goes on.
Left out are those above 100 million weights, or that need more than 20 s. Writes
results/architectures.json and .md. Cost: about twenty minutes of one core.
"""

import argparse
import importlib
import json
import signal
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from architecture_names import (
    IMAGE_CLASSES,
    IMAGE_CONFIGS,
    SMALL_WORDS,
    TEXT_CLASSES,
    TEXT_CONFIGS,
    VISION_NAMES,
)
from torch import Tensor, nn

import maccal as mc
from maccal.features.classifiers import Classifier
from maccal.io import write

RESULTS = Path(__file__).parent.parent / "results"
CLASSES = 5
ROWS = 4
MOST_WEIGHTS = 100_000_000
SECONDS = 20
FLAT = 1e-6  # of logits: all classes are the same to the model
ROUNDING = 1e-5  # of the largest logit
SIZE = 64  # pixels across, for networks that take any
Batch = dict[str, Tensor]
Line = dict[str, Any]


class Architecture(NamedTuple):
    """A model that can be built, and the batch that it is tried on."""

    package: str
    name: str
    build: Callable[[], tuple[nn.Module, Batch]]


class LeftOut(Exception):
    """Not tried, and why."""


# -- what there is ------------------------------------------------------------------------------


def images(size: int, key: str = "x") -> Batch:
    generator = torch.Generator().manual_seed(1)
    return {key: torch.randn(ROWS, 3, size, size, generator=generator)}


def tokens() -> Batch:
    words = torch.randint(3, 50, (ROWS, 16), generator=torch.Generator().manual_seed(2))
    return {"input_ids": words, "attention_mask": torch.ones_like(words)}


def smallness(name: str) -> tuple[int, int, str]:
    """Sorts names: those with a word for small first, then the shortest."""
    words = [word in name for word in SMALL_WORDS]
    return (words.index(True) if any(words) else len(words), len(name), name)


def of_timm() -> Iterator[Architecture]:
    timm = importlib.import_module("timm")
    for module in timm.list_modules():
        names = sorted(timm.list_models(module=module), key=smallness)
        for name in names[:1] + names[len(names) // 2 :][:1][: len(names) > 4]:
            yield Architecture("timm", name, partial(timm_model, name))


def timm_model(name: str) -> tuple[nn.Module, Batch]:
    timm = importlib.import_module("timm")
    model = timm.create_model(name, pretrained=False, num_classes=CLASSES)
    about = model.pretrained_cfg
    channels, height, _ = about["input_size"]
    if channels != 3:
        raise LeftOut(f"inputs of {channels} channels")
    return model, images(height if about.get("fixed_input_size") else SIZE)


def of_torchvision() -> Iterator[Architecture]:
    for name in VISION_NAMES:
        yield Architecture("torchvision", name, partial(torchvision_model, name))


def torchvision_model(name: str) -> tuple[nn.Module, Batch]:
    models = importlib.import_module("torchvision.models")
    large = {"inception_v3": 299, "googlenet": 96, "alexnet": 96}
    own = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
    fixed = name.startswith(("vit", "maxvit", "swin"))
    size = 224 if fixed else large.get(name, SIZE)
    return models.get_model(name, weights=None, num_classes=CLASSES, **own), images(size)


def of_transformers() -> Iterator[Architecture]:
    for name in TEXT_CLASSES:
        build = partial(transformers_model, f"{name}ForSequenceClassification", TEXT_CONFIGS)
        yield Architecture("transformers", f"{name}ForSequenceClassification", build)
    for name in IMAGE_CLASSES:
        build = partial(transformers_model, f"{name}", IMAGE_CONFIGS)
        yield Architecture("transformers", name, build)


def transformers_model(name: str, sizes: dict[str, Any]) -> tuple[nn.Module, Batch]:
    """With a small config: the sizes that its config knows."""
    transformers = importlib.import_module("transformers")
    kind = getattr(transformers, name, None)
    if kind is None:
        raise LeftOut("not in this version of transformers")
    known = kind.config_class().to_dict()
    own = {key: value for key, value in sizes.items() if key in known}
    model = kind(kind.config_class(num_labels=CLASSES, **own))
    if sizes is TEXT_CONFIGS:
        return model, tokens()
    return model, images(own.get("image_size", SIZE), "pixel_values")


# -- one of them --------------------------------------------------------------------------------


@torch.no_grad()
def said(model: nn.Module, batch: Batch) -> Tensor:
    inputs = {key: value for key, value in batch.items() if key != "labels"}
    given = model(inputs["x"]) if "x" in inputs else model(**inputs)
    given = getattr(given, "logits", given)
    return given[0] if isinstance(given, tuple | list) else given


def close(first: Tensor, second: Tensor) -> bool:
    limit = ROUNDING * float(second.abs().max())
    return torch.allclose(first, second, rtol=0, atol=limit)


def loader_of(batch: Batch) -> list[Any]:
    return [(batch["x"], batch["labels"])] if "x" in batch else [batch]


def tried(architecture: Architecture) -> Line:
    """A line of the record; `left_out` says why there is nothing else in it."""
    line: Line = {"package": architecture.package, "name": architecture.name}
    start = time.process_time()
    try:
        with at_most(SECONDS):
            line |= looked_at(*built(architecture))
    except LeftOut as error:
        line["left_out"] = str(error)
    return {**line, "seconds": round(time.process_time() - start, 2)}


def built(architecture: Architecture) -> tuple[nn.Module, Batch]:
    """The model in eval mode and a batch that it takes, with labels."""
    torch.manual_seed(0)
    try:
        model, batch = architecture.build()
        weights = sum(parameter.numel() for parameter in model.parameters())
        if weights > MOST_WEIGHTS:
            raise LeftOut(f"{weights / 1e6:.0f} million weights")
        logits = said(model.eval(), batch)
    except LeftOut:
        raise
    except Exception as error:
        raise LeftOut(f"not built or run by this script: {in_short(error)}") from error
    if logits.shape != (ROWS, CLASSES):
        raise LeftOut(f"no classifier of rows: its outputs have the shape {tuple(logits.shape)}")
    return model, with_labels(model, batch)


def with_labels(model: nn.Module, batch: Batch) -> Batch:
    """Labels of which the model is right on three of four."""
    labels = said(model, batch).argmax(1)
    labels[0] = (labels[0] + 1) % CLASSES
    return {**batch, "labels": labels}


def looked_at(model: nn.Module, batch: Batch) -> Line:
    line: Line = {"weights": sum(parameter.numel() for parameter in model.parameters())}
    try:
        line["head"] = mc.find_head(model, loader_of(batch)[0])
    except ValueError as error:
        return {**line, "refused": str(error)}
    classifier = Classifier.parse(line["head"])
    if float(said(model, batch).std(1).min()) < FLAT:
        wake(model, classifier)
        batch = with_labels(model, batch)
        line["woken"] = True
    line["bias"] = has_bias(model, classifier)
    line["temperature"] = calibrated(model, batch, classifier, "temperature")
    line["maccal"] = calibrated(model, batch, classifier, "maccal")
    return line


@torch.no_grad()
def wake(model: nn.Module, classifier: Classifier) -> None:
    """Random numbers for a classifier that starts at zero, or whose features do."""
    generator = torch.Generator().manual_seed(3)
    for layer in classifier.layers(model).values():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)


def has_bias(model: nn.Module, classifier: Classifier) -> bool:
    layers = classifier.layers(model).values()
    return any(getattr(layer, "bias", None) is not None for layer in layers)


def calibrated(
    model: nn.Module, batch: Batch, classifier: Classifier, calibrator: str
) -> dict[str, Any]:
    """What holds of the calibrated model; `refused` where there is none."""
    config = mc.Stage2(epochs=1) if calibrator == "maccal" else None
    try:
        new = mc.calibrate(
            model,
            loader_of(batch),
            accuracy=0.5,
            calibrator=calibrator,
            config=config,
            head=classifier.name,
        )
    except ValueError as error:
        return {"refused": str(error)}
    now = said(new, batch)
    holds = {
        "keys": list(new.state_dict()) == list(model.state_dict()),
        "bias": has_bias(new, classifier) == has_bias(model, classifier),
        "strict": close(said(loaded(model, new), batch), now),
    }
    if calibrator == "temperature":
        first = new.get_submodule(classifier.names[0])
        temperature = first.history[0]["temperature"]  # type: ignore[index, union-attr]
        holds["divided"] = close(now, said(model, batch) / temperature)
    if hasattr(new, "save_pretrained"):
        holds["pretrained"] = close(said(saved_and_loaded(new), batch), now)
    return holds


def loaded(model: nn.Module, new: nn.Module) -> nn.Module:
    """Another copy of the model as it was, with the new weights."""
    copy = deepcopy(model)
    copy.load_state_dict(new.state_dict(), strict=True)
    return copy


def saved_and_loaded(model: Any) -> nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again: nn.Module = type(model).from_pretrained(folder)
        return again.eval()


def in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise LeftOut(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


# -- all of them --------------------------------------------------------------------------------


def declare_operators() -> Any:
    """Some builds of torchvision do not import without two operators that its GPU build has."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def walk(record: Path) -> list[Line]:
    """The lines that are there, and those of the architectures that are not among them."""
    lines = [json.loads(text) for text in record.read_text().splitlines()]
    done = {(line["package"], line["name"]) for line in lines}
    for architecture in chain(of_transformers(), of_torchvision(), of_timm()):
        if (architecture.package, architecture.name) in done:
            continue
        lines.append(tried(architecture))
        with record.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
        print(json.dumps(lines[-1]), flush=True)
    return lines


def works(holds: dict[str, Any]) -> bool:
    return "refused" not in holds and all(holds.values())


def verdict(line: Line) -> str:
    """One word or two for a line."""
    if "left_out" in line:
        return "left out"
    if "refused" in line or not works(line["temperature"]):
        return "fails"
    return "both" if works(line["maccal"]) else "temperature only"


def page(lines: list[Line]) -> str:
    text = [
        "# Architectures that maccal calibrates",
        "",
        "Of each family of timm, torchvision and transformers one or two, with random weights and",
        "four rows of noise (`benchmarks/architectures.py` says how they are chosen and what is",
        "checked: logits over one number, state-dict keys, no new bias, strict loading, and",
        "`save_pretrained` with `from_pretrained` for transformers).",
        "",
        "| package | tried | temperature and MaC-Cal | temperature only | fails | no bias |",
        "|---|---|---|---|---|---|",
    ]
    for package in ("timm", "torchvision", "transformers"):
        own = [line for line in lines if line["package"] == package]
        text.append(row_of(package, own))
    text.append(row_of("all", lines))
    text += ["", "No bias: so many have a classifier without one, and still have none afterwards."]
    text += listed("Fails", lines, "fails")
    text += listed("Temperature only", lines, "temperature only")
    text += listed("Left out", lines, "left out")
    text += ["", "## Classifiers that are more than one layer", ""]
    for line in lines:
        if "(" in line.get("head", ""):
            text.append(f"- {line['package']} {line['name']}: `{line['head']}`")
    return "\n".join(text) + "\n"


def row_of(package: str, lines: list[Line]) -> str:
    counts = Counter(verdict(line) for line in lines)
    bare = sum(line.get("bias") is False for line in lines)
    count = len(lines) - counts["left out"]
    numbers = (count, counts["both"], counts["temperature only"], counts["fails"], bare)
    return f"| {package} | {' | '.join(map(str, numbers))} |"


def listed(title: str, lines: list[Line], wanted: str) -> list[str]:
    """The architectures of one verdict, each with its reason."""
    text = ["", f"## {title}", ""]
    chosen = [line for line in lines if verdict(line) == wanted]
    for line in chosen:
        text.append(f"- {line['package']} {line['name']}: {reason(line)}")
    return text if chosen else [*text, "None."]


def reason(line: Line) -> str:
    for part in (line, line.get("temperature", {}), line.get("maccal", {})):
        for key in ("left_out", "refused"):
            if key in part:
                return str(part[key])
    wrong = []
    for calibrator in ("temperature", "maccal"):
        wrong += [f"{calibrator}: {key}" for key, holds in line[calibrator].items() if not holds]
    return f"does not hold: {', '.join(wrong)}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    kept = declare_operators()
    record = args.folder / "tried.jsonl"
    record.touch()
    lines = walk(record)
    names = ("torch", "timm", "torchvision", "transformers")
    versions = {name: importlib.import_module(name).__version__ for name in names}
    whole = {"versions": versions, "seconds": SECONDS, "rows": ROWS, "architectures": lines}
    write(RESULTS / "architectures.json", json.dumps(whole, indent=1) + "\n")
    write(RESULTS / "architectures.md", page(lines))
    del kept


if __name__ == "__main__":
    main()
