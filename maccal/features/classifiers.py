"""The classifier inside a model: the linear layer whose W x + b is the model's logits.

find_head      its name, found by running one batch
replace_head   another module in its place
frozen         the model in eval mode, and after that as it was: every mode and every buffer to the bit

Cost: one forward pass of one batch, which keeps the inputs and outputs of all linear layers.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.features.batches import Batch, move, split

# of two equal layers the one so called
NAMES = ("classifier", "score", "fc", "head", "heads", "linear", "last_linear", "output")
# of the largest logit
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@dataclass(frozen=True)
class Run:
    """A model, without wrappers that would share out a batch or wait for other processes, and how
    it is run.
    """

    model: nn.Module
    device: torch.device
    autocast: torch.dtype | None = None

    def __call__(self, batch: Batch) -> Tensor:
        """The logits of a batch."""
        args, kwargs = move((batch.args, batch.kwargs), self.device)
        # not inference_mode: a tensor that the model keeps from this pass must not break a later
        # training
        with (
            torch.no_grad(),
            torch.autocast(
                self.device.type, dtype=self.autocast, enabled=self.autocast is not None
            ),
        ):
            return logits_of(self.model(*args, **kwargs))

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """W x + b in the precision of the run."""
        with (
            torch.no_grad(),
            torch.autocast(
                self.device.type, dtype=self.autocast, enabled=self.autocast is not None
            ),
        ):
            return F.linear(x, layer.weight, layer.bias)


def unwrap(model: nn.Module) -> tuple[nn.Module, str]:
    """The model inside DataParallel, DistributedDataParallel and torch.compile, and the prefix of
    its names.
    """
    for attribute, kinds in (
        ("module", (nn.DataParallel, nn.parallel.DistributedDataParallel)),
        ("_orig_mod", nn.Module),
    ):
        if attribute in model._modules and isinstance(model, kinds):
            inner, prefix = unwrap(model.get_submodule(attribute))
            return inner, f"{attribute}.{prefix}"
    return model, ""


def place(model: nn.Module) -> torch.device:
    """Where the model's first parameter or buffer is."""
    return next(
        (t.device for tensors in (model.parameters(), model.buffers()) for t in tensors),
        torch.device("cpu"),
    )


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the bit, for which -0.0 is not 0.0 and a NaN is itself."""
    return torch.equal(
        a.detach().reshape(-1).view(torch.uint8), b.detach().reshape(-1).view(torch.uint8)
    )


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Eval mode; on the way out the mode of every submodule and every buffer are what they were, to
    the bit.

    The flags are set without model.eval(), which some models override to merge weights.
    """
    state = [
        (m, m.training, {k: (b, None if b is None else b.clone()) for k, b in m._buffers.items()})
        for m in model.modules()
    ]
    try:
        for module, *_ in state:
            module.training = False
        yield
    finally:
        for module, training, buffers in state:
            module.training = training
            module._buffers.clear()
            for name, (buffer, value) in buffers.items():
                module._buffers[name] = buffer
                if buffer is not None and value is not None and not same_bits(buffer, value):
                    buffer.data.copy_(value)


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
            f"the model returned a {type(output).__name__}{inside}; expected logits: a tensor, .logits or a tuple"
        )
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise ValueError(
            f"the model's logits have shape {tuple(logits.shape)}; expected (rows, classes) with two classes or more"
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
    """Whether the outputs, at one token of each row if there are several, are the logits within the
    rounding of their types.
    """
    if outputs.ndim < 2 or len(outputs) != len(logits) or outputs.shape[-1] != logits.shape[1]:
        return False
    keep = logits.isfinite().all(1)  # what is not finite is reported with its row, later
    out, target = (
        outputs[keep].double().reshape(int(keep.sum()), -1, logits.shape[1]),
        logits[keep].double(),
    )
    if not out.numel():
        return False
    error = (out - target[:, None]).abs().amax(2).amin(1).max()
    return bool(
        error <= max(TOLERANCE[outputs.dtype], TOLERANCE[logits.dtype]) * target.abs().max()
    )


def locate(run: Run, batch: Batch, head: str | None) -> str:
    """The name of the linear layer that gives the logits of this batch."""
    layers = {name: m for name, m in run.model.named_modules() if isinstance(m, nn.Linear)}
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
        tried = (
            f"head={head!r} does"
            if head is not None
            else f"none of the model's {len(layers)} nn.Linear layers does"
        )
        raise ValueError(
            f"{tried} not give the logits as W x + b: {explain(run.model, calls, logits)}"
        )
    return max(found, key=lambda name: (name.split(".")[0] in NAMES, found.index(name)))


def named(model: nn.Module, head: str, linear: list[str]) -> nn.Linear:
    """The layer the user named."""
    try:
        layer = model.get_submodule(head)
    except AttributeError:
        names = (
            difflib.get_close_matches(head, [name for name, _ in model.named_modules()])
            or linear[-5:]
        )
        raise ValueError(
            f"the model has no module {head!r}; did you mean one of {names}?"
        ) from None
    if not isinstance(layer, nn.Linear):
        inside = [name for name in linear if name.startswith(f"{head}.")] or linear[-5:]
        raise ValueError(
            f"head={head!r} is a {type(layer).__name__}; expected an nn.Linear, such as one of {inside}"
        )
    return layer


def explain(model: nn.Module, calls: dict[str, Call], logits: Tensor) -> str:
    """Why no layer gives the logits, as far as it can be told."""
    outs = {name: out for name, (_, _, out) in calls.items() if out.shape == logits.shape}
    convs = [
        n
        for n, m in model.named_modules()
        if isinstance(m, nn.Conv1d | nn.Conv2d) and m.out_channels == logits.shape[1]
    ]
    for name, out in outs.items():
        if close(out, logits):
            return f"{name!r} gives them, but it normalises, scales or masks its weights; put a plain nn.Linear in its place"
        if close(out.softmax(1), logits) or close(out.log_softmax(1), logits):
            return f"the model returns the softmax of {name!r}; make it return logits"
    if len(outs) > 1 and close(torch.stack(list(outs.values())).mean(0), logits):
        return f"they are the mean of {list(outs)}; make the model return one of them"
    if outs:
        return f'{list(outs)} {"have" if len(outs) > 1 else "has"} their shape, but something follows; or name it with head="..."'
    if convs:
        return f"the classifier seems to be the convolution {convs[-1]!r}; put a flatten and an nn.Linear in its place"
    return f'none that ran has {logits.shape[1]} outputs for {len(logits)} rows; name the classifier with head="..."'


def find_head(model: nn.Module, inputs: Any, head: str | None = None) -> str:
    """The dotted name of a model's classifier, as in model.named_modules(); `inputs` is one batch
    as a loader gives it.

    The linear layer whose W x + b is the logits, at one token of each row if it runs on all of
    them. ValueError, with the reason, when there is none, or when the one named with head= is not
    it.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> find_head(model, (torch.ones(2, 4), torch.tensor([0, 2])))
    '2'
    """
    inner, prefix = unwrap(model)
    with frozen(inner):
        return prefix + locate(
            Run(inner, place(inner)), split(inputs), head and head.removeprefix(prefix)
        )


def replace_head(model: nn.Module, name: str, module: nn.Module) -> None:
    """Put a module in the place of the model's head, wherever the model refers to it, with its
    dtype, device and mode.
    """
    if name == "":
        raise ValueError(
            "the model is a linear layer itself; use calibrate_head on its inputs instead"
        )
    old = named(model, name, [n for n, m in model.named_modules() if isinstance(m, nn.Linear)])
    module.to(old.weight.device, old.weight.dtype).train(old.training)
    for parent in list(model.modules()):
        for key in [key for key, child in parent._modules.items() if child is old]:
            setattr(parent, key, module)
