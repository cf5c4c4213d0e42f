"""The classifier inside a model: the linear layer whose W x + b is the model's logits.

find_head      its name, found by running one batch
replace_head   puts another module in its place
frozen         eval mode for a while; then every mode and every buffer is put back, to the bit

Cost: one forward pass of one batch, which keeps the inputs and outputs of all linear layers.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.features.batches import Batch, as_batch, move

# Of several layers that give the same logits, one with such a name is preferred.
NAMES = ("classifier", "score", "fc", "head", "heads", "linear", "last_linear", "output")
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

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """W x + b in the same precision."""
        with self.settings():
            return F.linear(x, layer.weight, layer.bias)

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

    And the prefix that its names have outside of it.
    """
    wrappers = (
        ("module", (nn.DataParallel, nn.parallel.DistributedDataParallel)),
        ("_orig_mod", nn.Module),  # torch.compile
    )
    for attribute, kinds in wrappers:
        if attribute in model._modules and isinstance(model, kinds):
            inner, prefix = unwrap(model.get_submodule(attribute))
            return inner, f"{attribute}.{prefix}"
    return model, ""


def without_prefix(head: str | None, prefix: str) -> str | None:
    """The head's name inside the wrappers."""
    return None if head is None else head.removeprefix(prefix)


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


Call = tuple[nn.Linear, Tensor, Tensor]  # a layer, what went in, what came out


@contextmanager
def spied(layers: dict[str, nn.Linear]) -> Iterator[dict[str, Call]]:
    """The last call of each layer, in the order of the calls."""
    calls: dict[str, Call] = {}

    def spy(name: str) -> Callable[..., None]:
        def hook(
            layer: nn.Linear, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
        ) -> None:
            calls.pop(name, None)
            calls[name] = (layer, args[0] if args else kwargs["input"], output)

        return hook

    handles = [
        layer.register_forward_hook(spy(name), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


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


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    return {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}


def locate(run: Runner, batch: Batch, head: str | None) -> str:
    """The name of the linear layer that gives the logits of this batch."""
    layers = linear_layers(run.model)
    if head is not None:
        layers = {head: named(run.model, head, list(layers))}
    with spied(layers) as calls:
        logits = run(batch)
    if not bool(logits.isfinite().all(1).any()):
        raise ValueError(
            "no row of the first batch has finite logits; look at the inputs and the weights"
        )
    found = [name for name, (layer, x, _) in calls.items() if close(run.linear(layer, x), logits)]
    if not found:
        tried = f"none of the model's {len(layers)} nn.Linear layers does"
        if head is not None:
            tried = f"head={head!r} does"
        why = explain(run.model, calls, logits)
        raise ValueError(f"{tried} not give the logits as W x + b: {why}")
    # one with a usual name, and of those the one that ran last
    return max(found, key=lambda name: (name.split(".")[0] in NAMES, found.index(name)))


def named(model: nn.Module, head: str, linear: list[str]) -> nn.Linear:
    """The layer that the user named; `linear` are the names of those that it may be."""
    try:
        layer = model.get_submodule(head)
    except AttributeError:
        names = [name for name, _ in model.named_modules()]
        likely = difflib.get_close_matches(head, names) or linear[-5:]
        raise ValueError(
            f"the model has no module {head!r}; did you mean one of {likely}?"
        ) from None
    if not isinstance(layer, nn.Linear):
        inside = [name for name in linear if name.startswith(f"{head}.")] or linear[-5:]
        raise ValueError(
            f"head={head!r} is a {type(layer).__name__}; "
            f"expected an nn.Linear, such as one of {inside}"
        )
    return layer


def explain(model: nn.Module, calls: dict[str, Call], logits: Tensor) -> str:
    """Why no layer gives the logits, as far as one can tell."""
    outs = {name: out for name, (_, _, out) in calls.items() if out.shape == logits.shape}
    for name, out in outs.items():
        if close(out, logits):
            return (
                f"{name!r} gives them, but it normalises, scales or masks its weights; "
                "put a plain nn.Linear in its place"
            )
        if close(out.softmax(1), logits) or close(out.log_softmax(1), logits):
            return f"the model returns the softmax of {name!r}; make it return logits"
    if len(outs) > 1 and close(torch.stack(list(outs.values())).mean(0), logits):
        return f"they are the mean of {list(outs)}; make the model return one of them"
    if outs:
        have = "have" if len(outs) > 1 else "has"
        return f'{list(outs)} {have} their shape, but something follows; or name it with head="..."'
    convolutions = convolutions_of(model, logits.shape[1])
    if convolutions:
        return (
            f"the classifier seems to be the convolution {convolutions[-1]!r}; "
            "put a flatten and an nn.Linear in its place"
        )
    return (
        f"none that ran has {logits.shape[1]} outputs for {len(logits)} rows; "
        'name the classifier with head="..."'
    )


def convolutions_of(model: nn.Module, channels: int) -> list[str]:
    """The names of the convolutions with so many outputs."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d) and module.out_channels == channels:
            found.append(name)
    return found


def find_head(model: nn.Module, inputs: Any, head: str | None = None) -> str:
    """The dotted name of a model's classifier, as in model.named_modules().

    `inputs` is one batch as a loader gives it. The classifier is the linear layer whose W x + b is
    the logits; if it runs on every token of a row, one of the tokens must give them. ValueError,
    with the reason, when there is no such layer, or when the one named with head= is not it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> find_head(model, (torch.ones(2, 4), torch.tensor([0, 2])))
    '2'
    """
    inner, prefix = unwrap(model)
    run = Runner(inner, device_of(inner))
    with frozen(inner):
        return prefix + locate(run, as_batch(inputs), without_prefix(head, prefix))


def replace_head(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the model's head, wherever the model refers to it.

    It gets the dtype, the device and the mode of the head.
    """
    if name == "":
        raise ValueError(
            "the model is a linear layer itself; use calibrate_head on its inputs instead"
        )
    old = named(model, name, list(linear_layers(model)))
    module.to(old.weight.device, old.weight.dtype).train(old.training)
    for parent in list(model.modules()):
        for key, child in list(parent._modules.items()):
            if child is old:
                setattr(parent, key, module)
