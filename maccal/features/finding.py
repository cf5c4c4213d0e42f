"""Finding the classifier of a model: by running one batch, and comparing layers with the logits.

    1. one layer       its W x + b is the logits: of the row, of one of its positions (a token), or
                       of the mean of its positions (a convolution in front of the pooling)
    2. several         a mean or another sum of layers is the logits; the shares are solved for
    3. a factor        the outputs of the last layers with K outputs, times a factor, multiply the
                       logits by it: tried with the factors 2 and 1/4, which round nothing

Cost: one forward pass of one batch where one nn.Linear is the classifier, which keeps the inputs
and outputs of all linear layers. Any other classifier costs one pass more, which looks only at
layers with K outputs, and two passes for each number of last layers in step 3.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from maccal.features.batches import Batch, as_batch
from maccal.features.classifiers import Classifier
from maccal.features.layers import (
    CONVOLUTIONS,
    Call,
    computed,
    is_pointwise,
    layers_of,
    linear_layers,
    matrix_of,
    pooled,
    positions_of,
    scaled,
    watched,
)
from maccal.features.running import Runner, close, device_of, frozen, unwrap

# Of several layers that give the same logits, one with such a name is preferred.
NAMES = ("classifier", "score", "fc", "head", "heads", "linear", "last_linear", "output")
FACTORS = (2.0, 0.25)
MOST = 8  # layers that may share one factor
LEAST_SHARE = 1e-3  # of a layer in a sum


class Found(NamedTuple):
    """The classifier, and whether the model picks one of the positions that its layer runs on."""

    classifier: Classifier
    picks: bool = False


def locate(run: Runner, batch: Batch, head: str | None) -> Found:
    """The classifier that gives the logits of this batch; ValueError with the reason for none."""
    layers = layers_of(run.model)
    if head is None:
        found = searched(run, batch, layers)
        tried = f"none of the model's {len(layers)} linear layers gives"
    else:
        layers = Classifier.parse(head).layers(run.model)
        found = confirmed(run, batch, head, layers)
        tried = f"head={head!r} does not give"
    if found is not None:
        return found
    logits, calls = watched(run, batch, layers)
    other = None if head is None else searched(run, batch, layers_of(run.model))
    if other is not None:
        why = f"{other.classifier.name!r} does; leave head= out to take it"
    else:
        why = explain(run.model, calls, logits)
    raise ValueError(f"{tried} the logits as W x + b: {why}")


def searched(run: Runner, batch: Batch, layers: dict[str, nn.Module]) -> Found | None:
    """The classifier among these layers."""
    logits, calls = first_pass(run, batch, linear_layers(run.model), copies=False)
    found = one_of(run, calls, logits)
    if found is not None:
        return found
    logits, calls = watched(run, batch, with_outputs(layers, logits.shape[1]))
    return (
        one_of(run, calls, logits)
        or sum_of(run, calls, logits)
        or scale_of(run, batch, calls, logits)
    )


def confirmed(run: Runner, batch: Batch, head: str, layers: dict[str, nn.Module]) -> Found | None:
    """The classifier that the user named, if it is one."""
    asked = Classifier.parse(head)
    logits, calls = first_pass(run, batch, layers)
    if any(name not in calls for name in asked.names):
        return None
    if asked.alone:
        return one_of(run, calls, logits) or scale_of(run, batch, calls, logits)
    if asked.shares is None:
        return Found(asked) if scales(run, batch, layers, logits) else None
    outputs = torch.stack([mean_output(run, calls[name]) for name in asked.names])
    return Found(asked) if close(weighted(outputs, asked.shares), logits) else None


def first_pass(
    run: Runner, batch: Batch, layers: dict[str, nn.Module], copies: bool = True
) -> tuple[Tensor, dict[str, Call]]:
    """As watched; ValueError for a batch that the model does not take, or has no answer to."""
    try:
        logits, calls = watched(run, batch, layers, copies)
    except (TypeError, RuntimeError, IndexError) as error:
        if not seems_numbered(batch):
            raise
        raise ValueError(f"{NUMBERED}; the model says: {error}") from error
    if seems_numbered(batch) and int(batch.y.max()) >= logits.shape[1]:
        raise ValueError(f"{NUMBERED}: the last part has values up to {int(batch.y.max())}")
    if not bool(logits.isfinite().all(1).any()):
        raise ValueError(
            "no row of the first batch has finite logits; look at the inputs and the weights"
        )
    return logits, calls


NUMBERED = (
    "the labels must come last in a batch; is this one (inputs, labels, index)? Drop the index"
)


def seems_numbered(batch: Batch) -> bool:
    """Whether what stands before the labels could be the labels."""
    last = batch.args[-1] if len(batch.args) > 1 else None
    if not isinstance(last, Tensor) or last.is_floating_point():
        return False
    return last.shape == batch.y.shape and len(batch.y) > 0


def with_outputs(layers: dict[str, nn.Module], classes: int) -> dict[str, nn.Module]:
    return {name: layer for name, layer in layers.items() if len(matrix_of(layer)) == classes}


def fits(call: Call, logits: Tensor) -> bool:
    """Whether the layer's output has the logits' rows and classes."""
    right = len(call.out) == len(call.x) == len(logits)
    return right and len(matrix_of(call.layer)) == logits.shape[1]


def one_of(run: Runner, calls: dict[str, Call], logits: Tensor) -> Found | None:
    """The layer that gives the logits.

    Of several one with a usual name, and of those the one that ran last.
    """
    found = {}
    for name, call in calls.items():
        if not fits(call, logits):
            continue
        outputs = computed(run, call)
        if close(outputs, logits):
            found[name] = outputs.shape[1] > 1
        elif close(pooled(outputs), logits):
            found[name] = False
    if not found:
        return None
    order = list(found)
    best = max(order, key=lambda name: (name.split(".")[0] in NAMES, order.index(name)))
    return Found(Classifier((best,), (1.0,)), found[best])


def mean_output(run: Runner, call: Call) -> Tensor:
    """W x + b for the mean of the positions, rows x classes."""
    return pooled(computed(run, call))


def weighted(outputs: Tensor, shares: tuple[float, ...]) -> Tensor:
    """The sum of B x rows x classes with these shares."""
    factors = torch.tensor(shares, dtype=torch.float64, device=outputs.device)
    return torch.einsum("bnk,b->nk", outputs.double(), factors).to(outputs.dtype)


def sum_of(run: Runner, calls: dict[str, Call], logits: Tensor) -> Found | None:
    """The layers whose outputs add up to the logits: in the mean, or with shares of their own."""
    able = {name: mean_output(run, call) for name, call in calls.items() if fits(call, logits)}
    finite = logits.isfinite().all(1)
    if len(able) < 2 or finite.sum() * logits.shape[1] < 2 * len(able):
        return None
    outputs = torch.stack(list(able.values()))
    columns = outputs[:, finite].double().flatten(1).T
    solved = torch.linalg.lstsq(columns, logits[finite].double().flatten()[:, None]).solution[:, 0]
    taken = [i for i, share in enumerate(solved.tolist()) if abs(share) > LEAST_SHARE]
    names = tuple(list(able)[i] for i in taken)
    # a mean is exact, whatever the rounding of what was solved
    for shares in [(1 / len(taken),) * len(taken), tuple(solved[taken].tolist())]:
        if len(taken) > 1 and close(weighted(outputs[taken], shares), logits):
            return Found(Classifier(names, shares))
    return None


def scale_of(run: Runner, batch: Batch, calls: dict[str, Call], logits: Tensor) -> Found | None:
    """The fewest last layers of which a common factor is a factor of the logits."""
    plain = {}
    for name, call in calls.items():
        if close_everywhere(computed(run, call), positions_of(call.layer, call.out)):
            plain[name] = call.layer
    for count in range(1, min(len(plain), MOST) + 1):
        last = dict(list(plain.items())[-count:])
        if scales(run, batch, last, logits):
            return Found(Classifier(tuple(last), None))
    return None


def close_everywhere(a: Tensor, b: Tensor) -> bool:
    """Whether two outputs are the same at every position."""
    return a.shape == b.shape and close(a.flatten(0, 1), b.flatten(0, 1))


def scales(run: Runner, batch: Batch, layers: dict[str, nn.Module], logits: Tensor) -> bool:
    """Whether a factor of these layers' outputs is one of the logits."""
    if not bool((logits != 0).any()):
        return False
    tried = (close(scaled(run, batch, layers, by), logits * by) for by in FACTORS)
    return all(tried)


def explain(model: nn.Module, calls: dict[str, Call], logits: Tensor) -> str:
    """Why no layer gives the logits, as far as one can tell."""
    outs = {name: call.out for name, call in calls.items() if call.out.shape == logits.shape}
    for name, out in outs.items():
        if close(out, logits):
            return (
                f"{name!r} gives them, but it normalises, scales or masks its weights; "
                "put a plain nn.Linear in its place"
            )
        if close(out.softmax(1), logits) or close(out.log_softmax(1), logits):
            return f"the model returns the softmax of {name!r}; make it return logits"
    if outs:
        have = "have" if len(outs) > 1 else "has"
        return f'{list(outs)} {have} their shape, but something follows; or name it with head="..."'
    convolutions = wide_convolutions(model, logits.shape[1])
    if convolutions:
        return (
            f"the classifier seems to be the convolution {convolutions[-1]!r}, whose kernel is "
            "larger than 1; put pooling and an nn.Linear in its place"
        )
    return (
        f"none that ran has {logits.shape[1]} outputs for {len(logits)} rows; "
        'name the classifier with head="..."'
    )


def wide_convolutions(model: nn.Module, channels: int) -> list[str]:
    """The names of the convolutions with so many outputs that look at several positions at once."""
    found = []
    for name, module in model.named_modules():
        wide = isinstance(module, CONVOLUTIONS) and not is_pointwise(module)
        if wide and module.out_channels == channels:
            found.append(name)
    return found


def find_head(model: nn.Module, inputs: Any, head: str | None = None) -> str:
    """The name of a model's classifier: of its layer, as in model.named_modules().

    `inputs` is one batch as a loader gives it. The classifier is the linear layer whose W x + b is
    the logits; if it runs on every position of a row, one of them or their mean must give them.
    Where several layers make the logits the name says how, as in "mean(head, head_dist)": see
    classifiers.py. ValueError, with the reason, when nothing of the kind does, or not what head=
    names.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> find_head(model, (torch.ones(2, 4), torch.tensor([0, 2])))
    '2'
    """
    inner, prefix = unwrap(model)
    run = Runner(inner, device_of(inner))
    with frozen(inner):
        found = locate(run, as_batch(inputs), without_prefix(head, prefix))
    return found.classifier.outside(prefix).name


def without_prefix(head: str | None, prefix: str) -> str | None:
    """The head's name inside the wrappers."""
    return None if head is None else Classifier.parse(head).inside(prefix).name
