"""Whether a classifier's weights are used for nothing but its logits.

A layer that runs twice in a pass, or whose weight the model uses elsewhere, is part of what makes
its own features: new weights would meet other features than those they were fitted on. So the
weights are changed for one pass of one batch, and the features must stay.

Cost: two forward passes of one batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from maccal.features.batches import as_batch
from maccal.features.classifiers import Classifier
from maccal.features.finding import Found, locate
from maccal.features.lookup import ROUNDING, alike
from maccal.features.running import Runner, close, device_of, frozen, unwrap
from maccal.features.taps import tapped

NOT_ALONE = (
    "is used for more than the logits in a forward pass: what goes into it changes with its own "
    "weights, so that new ones would not do what they were fitted for; give the classifier a layer "
    "of its own"
)


def check_alone(model: nn.Module, inputs: Any, name: str) -> None:
    """ValueError if the features of this batch, or the way from them to the logits, change with the
    classifier's weights.
    """
    inner, prefix = unwrap(model)
    run = Runner(inner, device_of(inner))
    batch = as_batch(inputs)
    with frozen(inner):
        head = Classifier.parse(name).inside(prefix)
        found = locate(run, batch, head.name)
        layers = list(found.classifier.layers(inner).values())
        if found.classifier.shares is None:
            # its features are the logits, which a factor of the weights must multiply
            logits = run(batch)
            with multiplied(layers, evenly=True):
                stays = close(run(batch), 2 * logits)
        else:
            before = tapped(run, found, batch)
            stays = same(before, changed_features(run, found, batch, layers))
            # a model that is random, dropout in eval mode, say, tells nothing
            stays = stays or not same(before, tapped(run, found, batch))
    if not stays:
        raise ValueError(f"{name!r} {NOT_ALONE}")


def changed_features(
    run: Runner, found: Found, batch: Any, layers: list[nn.Module]
) -> Tensor | None:
    """The features with other weights; None if the logits no longer come from them."""
    with multiplied(layers, evenly=False):
        try:
            return tapped(run, found, batch)
        except ValueError:
            return None


def same(before: Tensor, after: Tensor | None) -> bool:
    if after is None or before.shape != after.shape:
        return False
    return alike(before, after, ROUNDING[before.dtype])


@contextmanager
def multiplied(layers: list[nn.Module], evenly: bool) -> Iterator[None]:
    """All parameters times 2, or each number times another one from 1/2 to 2; then as before."""
    parameters = list(chain.from_iterable(layer.parameters() for layer in layers))
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(2 if evenly else uneven(parameter))
        yield
    finally:
        with torch.no_grad():
            for parameter, before in zip(parameters, kept, strict=True):
                parameter.copy_(before)


def uneven(parameter: Tensor) -> Tensor:
    factors = torch.linspace(0.5, 2, parameter.numel(), device=parameter.device)
    return factors.view_as(parameter).to(parameter.dtype)
