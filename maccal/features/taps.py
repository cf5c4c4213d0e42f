"""Taps on a classifier's layers: what goes into them while the model runs.

The features of a row are the inputs of the layers, one after the other, each the mean of its
positions. Where the model picks one position of many (a token), the features are that position's.
Where the classifier is not linear in what goes in, they are the logits (classifiers.py says when).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maccal.features.batches import Batch
from maccal.features.finding import Found
from maccal.features.layers import Hook, hooked, input_of, pooled, positions_of, shaped_like
from maccal.features.running import Runner, close

# A position in digits of this base: whole numbers that float16 and bfloat16 hold exactly.
BASE = 256
DIGITS = 4


class Tap:
    """A forward hook that keeps the inputs of a layer, as rows x positions x channels.

    With `picks` it replaces each position's logits by the number of the position, in digits. What
    the model then returns says exactly which one it takes, even where rounding makes the logits of
    two equal.
    """

    def __init__(self, picks: bool) -> None:
        self.picks = picks
        self.x = torch.empty(0, 1, 0)  # what went into the layer
        self.out = torch.empty(0, 1, 0)  # what the model was given: logits, or positions in digits

    def __call__(self, layer: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        self.x = positions_of(layer, input_of(args, kwargs))
        self.out = positions_of(layer, output)
        if not self.picks:
            return None
        self.out = numbered(self.out)
        return shaped_like(layer, self.out.expand(len(output), -1, -1), output)

    def picked(self, logits: Tensor) -> Tensor | None:
        """The inputs at the positions that these logits name; None if they name none."""
        token = position_in(logits).clamp(0, len(self.out) - 1)
        if not torch.equal(self.out[token].double(), logits.double()):
            return None
        return self.x[torch.arange(len(token), device=token.device), token]


def numbered(outputs: Tensor) -> Tensor:
    """The number of every position, positions x classes: in digits, the lowest first."""
    count, classes = outputs.shape[1:]
    token = torch.arange(count, device=outputs.device)
    places = min(classes, DIGITS)
    if count > BASE**places:
        raise ValueError(
            f"the head runs on {count} tokens per row, too many to tell apart; "
            "take the token before the head"
        )
    digits = torch.stack([token // BASE**k % BASE for k in range(places)], 1)
    return F.pad(digits, (0, classes - places)).to(outputs.dtype)


def position_in(logits: Tensor) -> Tensor:
    """The position that each row's digits say."""
    count = min(logits.shape[1], DIGITS)
    return torch.stack([logits[:, k].long() * BASE**k for k in range(count)]).sum(0)


def tapped(run: Runner, found: Found, batch: Batch) -> Tensor:
    """The features of a batch, N x D."""
    shares = found.classifier.shares
    if shares is None:
        return run(batch)
    layers = found.classifier.layers(run.model)
    taps = {name: Tap(found.picks) for name in layers}

    def hook(name: str) -> Hook:
        return taps[name]

    with hooked(layers, hook):
        logits = run(batch)
    features = features_of(list(taps.values()), shares, logits)
    if features is None:
        raise ValueError(
            "the head gave the logits of the first batch, but not of a later one; "
            "there is more than one way to them"
        )
    return features


def features_of(taps: list[Tap], shares: tuple[float, ...], logits: Tensor) -> Tensor | None:
    """What went into the layers and gave these logits; None if it did not."""
    if taps[0].picks:
        return taps[0].picked(logits)
    sums = [share * pooled(tap.out) for tap, share in zip(taps, shares, strict=True)]
    # without a finite row there is nothing to compare; the features will say which row it is
    lost = not bool(logits.isfinite().all(1).any())
    if not lost and not close(torch.stack(sums).sum(0), logits):
        return None
    return torch.cat([pooled(tap.x) for tap in taps], 1)
