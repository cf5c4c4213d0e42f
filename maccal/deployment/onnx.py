"""A model as an ONNX file that onnxruntime was seen to agree with, for any number of rows.

    export_onnx(model, batch, "model.onnx")

torch.export traces the model in eval mode, torch.onnx translates it, onnxruntime runs it on the
batch and on batches of other sizes, and only when all logits agree with torch's is the file
written. Cost: a few seconds for a small network, most of it torch's translation.
Needs onnx, onnxscript and onnxruntime: pip install maccal[onnx]
"""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from maccal.deployment.facts import facts_of
from maccal.features.batches import Batch, as_batch
from maccal.features.running import device_of, frozen, logits_of, unwrap
from maccal.io import write

TOLERANCE = 1e-5  # of the largest logit, or of one
LARGEST = 2_000_000_000  # bytes that one ONNX file may hold
Axes = Mapping[str, Mapping[int, str]]  # of an input, by number of the axis: a name for its length
NEEDED = "export_onnx needs onnx, onnxscript and onnxruntime: pip install 'maccal[onnx]'"


class Logits(nn.Module):
    """The logits of a model, whatever else it returns; its inputs one after the other.

    torch.onnx does not take a model that is called with keywords alone.
    """

    def __init__(self, model: nn.Module, keywords: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.keywords = keywords

    def forward(self, *inputs: Tensor) -> Tensor:
        if not self.keywords:
            return logits_of(self.model(*inputs))
        return logits_of(self.model(**dict(zip(self.keywords, inputs, strict=True))))


def export_onnx(
    model: nn.Module, batch: Any, path: Path | str, *, axes: Axes | None = None
) -> Path:
    """Write the model as an ONNX file: inputs to `logits`, with any number of rows.

    `batch` is one as a loader gives it, or a tensor of inputs. Inputs are called as in a mapping,
    or x, or x0, x1, ... where there are several. `axes` names further axes that may have any
    length, such as {"input_ids": {1: "tokens"}}. The model stays as it was. ValueError, and no
    file, where it cannot be translated, or where onnxruntime does not say the same.
    """
    inside, _ = unwrap(model)
    check_precision(inside)
    inputs = named_inputs(batch)
    check_axes(axes or {}, inputs)
    onnx, runtime = packages()
    with frozen(inside), torch.no_grad():
        wrapped = Logits(inside, inputs.keywords)
        translated = translate(wrapped, inputs, axes or {})
        check_free(translated, axes or {})
        note(onnx, translated, model)
        if translated.ByteSize() > LARGEST:
            raise ValueError("the model has more than 2 GB, which one ONNX file cannot hold")
        data = translated.SerializeToString()
        check_agreement(runtime, data, wrapped, inputs)
    return write(path, data)


class Inputs:
    """The inputs of a batch on the processor, by name, in the order of the model's arguments."""

    def __init__(self, batch: Batch) -> None:
        self.keywords = tuple(batch.kwargs)
        if self.keywords:
            self.values = dict(batch.kwargs)
        elif len(batch.args) == 1:
            self.values = {"x": batch.args[0]}
        else:
            self.values = {f"x{number}": value for number, value in enumerate(batch.args)}
        for name, value in self.values.items():
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise ValueError(f"the input {name} is a {kind}; export needs tensors alone")
            if value.ndim == 0:
                raise ValueError(f"the input {name} is one number; the first axis is that of rows")
        self.rows = len(next(iter(self.values.values())))
        if self.rows == 0:
            raise ValueError("the batch has no rows; pass one of two rows or more")

    def of(self, rows: int) -> dict[str, Tensor]:
        """As many rows, from the start, and from the start again."""
        number = torch.arange(rows) % self.rows
        return {name: value.cpu()[number] for name, value in self.values.items()}

    def arguments(self, rows: int, device: torch.device) -> tuple[Tensor, ...]:
        """What the model is called with."""
        return tuple(value.to(device) for value in self.of(rows).values())


def named_inputs(batch: Any) -> Inputs:
    """The inputs of a batch, with or without labels."""
    if isinstance(batch, Tensor):
        return Inputs(Batch((batch,), {}, torch.empty(0)))
    if isinstance(batch, Mapping):
        try:
            return Inputs(as_batch(batch))
        except ValueError:  # no labels, which are not needed here
            return Inputs(Batch((), dict(batch), torch.empty(0)))
    return Inputs(as_batch(batch))


def check_precision(model: nn.Module) -> None:
    """ValueError for 16 bits, in which no two programs agree to 1e-5."""
    for name, parameter in model.named_parameters():
        if parameter.dtype in (torch.float16, torch.bfloat16):
            raise ValueError(
                f"{name} is {parameter.dtype}, too coarse to be checked to {TOLERANCE:g}; pass "
                "copy.deepcopy(model).float() and inputs in float32"
            )


def check_axes(axes: Axes, inputs: Inputs) -> None:
    for name, named in axes.items():
        if not isinstance(named, Mapping):
            raise ValueError(
                f"axes: {name!r} has {named!r}; pass numbers and names, {{1: 'tokens'}}"
            )
        if name not in inputs.values:
            known = ", ".join(inputs.values)
            raise ValueError(f"axes: there is no input {name!r}; the inputs are {known}")


def packages() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  (torch.onnx asks for it)
    except ImportError as error:
        raise ImportError(f"{NEEDED} ({error})") from error
    return onnx, onnxruntime


def translate(wrapped: Logits, inputs: Inputs, axes: Axes) -> Any:
    """The model in ONNX; two rows at least, as torch.export takes one row for a constant."""
    shapes = []
    for name in inputs.values:
        shapes.append({0: torch.export.Dim("batch"), **free_axes(axes.get(name, {}))})
    try:
        with quiet():
            program = torch.onnx.export(
                wrapped,
                inputs.arguments(max(2, inputs.rows), device_of(wrapped)),
                dynamo=True,
                dynamic_shapes={"inputs": tuple(shapes)},
                input_names=list(inputs.values),
                output_names=["logits"],
                verbose=False,
            )
    except Exception as error:  # torch.export and torch.onnx have no class of errors in common
        reason = " ".join(str(error.__cause__ or error).split())[:400]
        raise ValueError(f"torch cannot export this model: {reason}") from error
    assert program is not None
    return program.model_proto


def check_free(translated: Any, axes: Axes) -> None:
    """ValueError for an axis that torch has fixed, without a word: another input's goes with it."""
    for given in translated.graph.input:
        dimensions = given.type.tensor_type.shape.dim
        for axis, name in axes.get(given.name, {}).items():
            if not dimensions[axis].dim_param:
                raise ValueError(
                    f"axes: axis {axis} of {given.name} ({name}) can only be "
                    f"{dimensions[axis].dim_value}: another input, or the model, asks for that; "
                    "name the axis of every input that goes with it"
                )


def free_axes(axes: Mapping[int, str]) -> dict[int, Any]:
    return {axis: torch.export.Dim(name) for axis, name in axes.items()}


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and log lines that torch and onnxscript write about themselves."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def note(onnx: Any, translated: Any, model: nn.Module) -> None:
    """What was calibrated, in the metadata of the file."""
    facts = facts_of(model)
    words = {"maccal": facts["versions"]["maccal"], "weights_sha256": facts["weights_sha256"]}
    if facts["feedback"] is not None:
        words["calibration"] = facts["feedback"]["words"]
    onnx.helper.set_model_props(translated, words)


def check_agreement(runtime: Any, data: bytes, wrapped: Logits, inputs: Inputs) -> None:
    """ValueError unless onnxruntime says what torch says, of one row, of the batch, and of more."""
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3  # errors
    try:
        session = runtime.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
    except Exception as failure:  # onnxruntime's errors have no class in common
        reason = " ".join(str(failure).split())[:400]
        raise ValueError(f"onnxruntime cannot run this model: {reason}") from failure
    asked = [given.name for given in session.get_inputs()]
    for rows in (1, inputs.rows, inputs.rows + 1):
        expected = wrapped(*inputs.arguments(rows, device_of(wrapped))).float().cpu().numpy()
        given = inputs.of(rows)
        (found,) = session.run(["logits"], {name: given[name].numpy() for name in asked})
        error = float(np.abs(found - expected).max())
        scale = max(1.0, float(np.abs(expected).max()))
        if found.shape != expected.shape or not error <= TOLERANCE * scale:
            raise ValueError(
                f"onnxruntime differs from torch by {error:.1e} on {rows} rows (logits up to "
                f"{scale:.3g}); nothing was written"
            )
