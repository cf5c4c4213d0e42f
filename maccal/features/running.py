"""A model as it is run to look into it: without its wrappers, frozen, without gradients.

unwrap       the model inside DataParallel, DistributedDataParallel and torch.compile
frozen       eval mode for a while; then every mode and every buffer is put back, to the bit
Runner       the logits of a batch, under autocast where that was asked for
close        whether outputs are the logits, within the rounding of their types
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maccal.features.batches import Batch, move

# How far a layer's output may be from the logits, as a share of the largest one.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class Runner:
    """A model and how it is run.

    Without wrappers: those would share out a batch, or wait for other processes.
    """

    model: nn.Module
    device: torch.device
    autocast: torch.dtype | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """The logits of a batch."""
        args, kwargs = move((batch.args, batch.kwargs), self.device)
        with self.settings():
            return logits_of(self.model(*args, **kwargs))

    @contextmanager
    def settings(self) -> Iterator[None]:
        """No gradients, and autocast where it was asked for.

        Not inference_mode: a tensor that the model keeps from this pass must not break a later
        training.
        """
        enabled = self.autocast is not None
        with (
            torch.no_grad(),
            torch.autocast(self.device.type, dtype=self.autocast, enabled=enabled),
        ):
            yield


def unwrap(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside DataParallel, DistributedDataParallel and torch.compile.

    And the prefix that its names have outside of it. ValueError for a model without eager layers or
    without weights.
    """
    check_model(model)
    wrappers = (
        ("module", (nn.DataParallel, nn.parallel.DistributedDataParallel)),
        ("_orig_mod", nn.Module),  # torch.compile
    )
    for attribute, kinds in wrappers:
        if attribute in model._modules and isinstance(model, kinds):
            inner, prefix = unwrap(model.get_submodule(attribute))
            return inner, f"{attribute}.{prefix}"
    return model, ""


def check_model(model: Any) -> None:
    """ValueError for what cannot be looked into."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ValueError(
            "the model is compiled by torch.jit, which hides its layers; pass it as it was before"
        )
    if not isinstance(model, nn.Module):
        raise ValueError(f"the model is a {type(model).__name__}; expected an nn.Module")
    tensors = chain(model.named_parameters(), model.named_buffers())
    empty = next((name for name, tensor in tensors if tensor.device.type == "meta"), None)
    if empty is not None:
        raise ValueError(
            f"{empty!r} is on the meta device, without values; load the model's weights first"
        )


def device_of(model: nn.Module) -> torch.device:
    """Where the model's first parameter, or else its first buffer, is."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether they are equal to the bit: -0.0 is not 0.0, and a NaN is itself."""
    return torch.equal(bits(a), bits(b))


def bits(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


class ModuleState(NamedTuple):
    """The mode and the buffers of a module, and a copy of what the buffers held."""

    module: nn.Module
    training: bool
    buffers: dict[str, Tensor | None]
    values: dict[str, Tensor]

    @classmethod
    def of(cls, module: nn.Module) -> "ModuleState":
        values = {name: b.clone() for name, b in module._buffers.items() if b is not None}
        return cls(module, module.training, dict(module._buffers), values)

    def put_back(self) -> None:
        """The same tensors in the same order; only those that have changed are written to."""
        self.module.training = self.training
        self.module._buffers.clear()
        self.module._buffers.update(self.buffers)
        for name, value in self.values.items():
            buffer = self.buffers[name]
            assert buffer is not None
            if not same_bits(buffer, value):
                buffer.data.copy_(value)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Eval mode; on the way out the mode and the buffers of every submodule are what they were.

    The flags are set without model.eval(), which some models override to merge weights.
    """
    states = [ModuleState.of(module) for module in model.modules()]
    try:
        for state in states:
            state.module.training = False
        yield
    finally:
        for state in states:
            state.put_back()


def logits_of(output: Any) -> Tensor:
    """The N x K logits in whatever a model returned."""
    logits = output
    if hasattr(output, "logits"):
        logits = output.logits
    elif isinstance(output, Mapping):
        logits = output.get("logits")
    elif isinstance(output, tuple | list) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        inside = f" with the keys {list(output)}" if isinstance(output, Mapping) else ""
        raise ValueError(
            f"the model returned a {type(output).__name__}{inside}; "
            "expected logits: a tensor, .logits or a tuple"
        )
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"the model's logits have shape {tuple(logits.shape)}; "
            "expected (rows, classes) with two classes or more"
        )
    return logits


def close(outputs: Tensor, logits: Tensor) -> bool:
    """Whether the outputs are the logits, within the rounding of their types.

    If a row has several tokens, one of them must give its logits.
    """
    if outputs.ndim < 2 or len(outputs) != len(logits) or outputs.shape[-1] != logits.shape[1]:
        return False
    finite = logits.isfinite().all(1)  # a row that is not finite is reported later, with its number
    out = outputs[finite].double().reshape(int(finite.sum()), -1, logits.shape[1])
    target = logits[finite].double()
    if not out.numel():
        return False
    error = (out - target[:, None]).abs().amax(2).amin(1).max()
    tolerance = max(TOLERANCE[outputs.dtype], TOLERANCE[logits.dtype])
    return bool(error <= tolerance * target.abs().max())
