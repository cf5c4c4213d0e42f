"""Training: everything that a step of stage I depends on, and the steps.

    training = Training(network, train, recipe, pixels, Objective(), seed, device)
    training.begin()      enter an epoch, from its first batch or from where it was left
    training.step()       one batch
    training.end(val)     leave the epoch: its numbers go into the history

The data set is one tensor on the device; an epoch is a permutation of its rows. A batch is cut out,
cropped and mirrored as one tensor, and run in channels_last and, where the processor has it, in
bf16. A checkpoint holds all that the next step depends on: weights, optimiser, generators, the
order of the epoch, how far it has come, and the history. So a training that is killed at any moment
and started again ends with the same bits.

Under torchrun each process takes its share of every batch: gradients, BatchNorm and numbers are
those of the whole batch.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from maccal.data.augment import crop_and_flip
from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.distributed import everywhere, my_rank, share_batchnorm, summed
from maccal.io import FileError, write_sealed
from maccal.training.checkpoint import CHECKPOINT, differing, read_checkpoint
from maccal.training.objective import Objective, Problem
from maccal.training.precision import autocast, precise
from maccal.training.prediction import predict, val_numbers
from maccal.training.recipe import Recipe

History = list[dict[str, float]]  # one dict per epoch


class Diverged(ValueError):
    """The loss or a weight is no longer a finite number."""


def batch_ranges(count: int, size: int, world: int) -> list[tuple[int, int]]:
    """The batches of an epoch, as ranges of its order.

    If the last one has fewer than two rows per process, they join the batch before.

    >>> batch_ranges(10, 4, 1), batch_ranges(9, 4, 1)
    ([(0, 4), (4, 8), (8, 10)], [(0, 4), (4, 9)])
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] < 2 * world:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


class Training:
    """Everything that a step depends on, and the steps."""

    def __init__(
        self,
        network: nn.Module,
        train: Split,
        recipe: Recipe,
        pixels: Pixels,
        objective: Objective,
        seed: int,
        device: torch.device,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """`about` is what else a checkpoint must agree on to be resumed here."""
        self.rank, self.world = my_rank()
        check_batch_size(recipe.batch_size, self.world)
        # what stays
        self.recipe = precise(recipe, device)
        self.pixels = pixels
        self.objective = objective
        self.device = device
        self.images = train.images.to(device)
        self.labels = train.labels.to(device)
        self.batches = batch_ranges(len(train), recipe.batch_size, self.world)
        self.about = {"recipe": asdict(self.recipe), "seed": seed, "rows": len(train)}
        self.about |= about or {}
        # what changes
        self.network = network
        network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.world > 1:
            share_batchnorm(network)
        self.optimiser = torch.optim.SGD(
            network.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.epoch = 0
        self.batch = 0
        self.seconds = 0.0
        self.history = History()
        self.order = torch.empty(0, dtype=torch.int64)
        # of the epoch so far: the sum of the losses, the right answers, the rows
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.problem: nn.Module = nn.Identity()  # made anew by `begin`

    @property
    def steps_done(self) -> int:
        return self.epoch * len(self.batches) + self.batch

    def begin(self) -> None:
        """Enter an epoch, from its first batch or from where it was left."""
        self.objective.begin(self.network, self.epoch, self.recipe.epochs)
        self.network.train()
        network = torch.compile(self.network) if self.recipe.compile else self.network
        self.problem = Problem(network, self.objective.loss)  # type: ignore[arg-type]
        if self.world > 1:
            self.problem = DistributedDataParallel(self.problem)
        if self.batch == 0:
            self.order = torch.randperm(len(self.labels), generator=self.generator)
            self.sums.zero_()

    def step(self) -> None:
        """One batch: cut it out, augment it, run it forward and backward, move the weights."""
        first, last = self.batches[self.batch]
        rows = self.order[first:last].to(self.device)
        mine = self.my_inputs(rows)
        with autocast(self.recipe, self.device):
            loss, logits = self.problem(*mine)
        # DistributedDataParallel takes the plain mean of the processes' gradients: each loss has to
        # count by its share of the rows
        weight = len(mine[0]) * self.world / len(rows)
        if self.recipe.reduction == "sum":
            weight *= len(rows)
        torch.autograd.backward(loss * weight)
        self.move()
        self.count(loss.detach(), logits.detach(), mine[1])
        self.batch += 1

    def my_inputs(self, rows: Tensor) -> list[Tensor]:
        """What the loss is given of these images: drawn for all of them, this process's share."""
        recipe = self.recipe
        images = crop_and_flip(self.images[rows], self.generator, recipe.padding, recipe.flip)
        inputs = self.objective.inputs(self.pixels(images), self.labels[rows], self.generator)
        return [tensor[self.rank :: self.world] for tensor in inputs]

    def move(self) -> None:
        """A step of SGD, on a gradient that is clipped where the recipe says so."""
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.lr_at(self.epoch, self.batch, len(self.batches))
        self.optimiser.step()
        self.optimiser.zero_grad()

    def count(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch, of all processes, to the numbers of the epoch."""
        right = (logits.argmax(1) == labels).sum()
        numbers = [loss.double() * len(labels), right, right.new_tensor(len(labels))]
        self.sums += summed(torch.stack(numbers))

    def end(self, val: Split | None) -> None:
        """Leave an epoch: its numbers go into the history."""
        loss, accuracy = self.look()
        self.objective.end(self.network, self.epoch, self.recipe.epochs)
        numbers = {
            "epoch": self.epoch + 1,
            "lr": self.recipe.lr_at(self.epoch),
            "loss": loss,
            "accuracy": accuracy,
        }
        last = self.epoch + 1 == self.recipe.epochs
        if val is not None and (last or (self.epoch + 1) % self.recipe.watch == 0):
            with autocast(self.recipe, self.device):
                logits = predict(self.network, val.images, self.pixels)
                numbers |= val_numbers(logits, val.labels)
        self.history.append(numbers | {"seconds": self.seconds})
        self.epoch += 1
        self.batch = 0

    def look(self) -> tuple[float, float]:
        """Loss and accuracy of the epoch so far; raises Diverged when the loss is not finite."""
        loss, right, count = self.sums.tolist()
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss is no longer a finite number, in epoch {self.epoch + 1} "
                f"by batch {self.batch} of {len(self.batches)}; "
                "train with a lower lr, a smaller clip, or precision fp32"
            )
        return loss / max(count, 1), right / max(count, 1)

    def state(self) -> dict[str, Any]:
        """All that the next step depends on."""
        return {
            "about": self.about,
            "network": self.network.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generators": [self.generator.get_state(), torch.get_rng_state()],
            "order": self.order,
            "sums": self.sums,
            "epoch": self.epoch,
            "batch": self.batch,
            "seconds": self.seconds,
            "history": self.history,
        }

    def save(self, path: Path | str) -> None:
        """Replace the checkpoint, in one rename; Diverged if the training has gone wrong."""
        self.look()
        if not all(bool(p.isfinite().all()) for p in self.network.parameters()):
            raise Diverged(
                f"a weight is no longer a finite number, in epoch {self.epoch + 1}; "
                "train with a lower lr or a smaller clip"
            )
        if self.rank == 0:
            buffer = io.BytesIO()
            torch.save(self.state(), buffer)
            write_sealed(path, CHECKPOINT, buffer.getbuffer())

    def restore(self, path: Path | str) -> None:
        """Go on from a checkpoint of the same training; FileError if it is another one's."""
        state = read_checkpoint(path, self.device)
        try:
            for part, wanted in self.about.items():
                found = state["about"].get(part)
                if found != wanted:
                    raise ValueError(differing(found, wanted))
            self.take(state)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise FileError(
                path, f"a checkpoint of another training: {reason}; delete it, or go elsewhere"
            ) from error
        if len(set(everywhere((self.epoch, self.batch)))) > 1:
            raise ValueError(
                f"{path}: the processes read different checkpoints; "
                "let all of them see the same folder"
            )

    def take(self, state: Mapping[str, Any]) -> None:
        """Become what a checkpoint says."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        own, global_one = state["generators"]
        self.generator.set_state(own.cpu())
        torch.set_rng_state(global_one.cpu())
        self.order = state["order"].cpu()
        self.sums = state["sums"]
        self.epoch = state["epoch"]
        self.batch = state["batch"]
        self.seconds = state["seconds"]
        self.history = state["history"]


def check_batch_size(batch_size: int, world: int) -> None:
    """BatchNorm needs two rows in every process."""
    least = 2 * world
    if batch_size < least:
        raise ValueError(
            f"batch_size is {batch_size} for {world} processes; "
            f"pass at least {least}, the batch of all of them"
        )
