"""Stage I: one loop for every method, on whole tensors, resumable to the bit.

    fit(network, train, recipe, pixels=..., val=..., checkpoint="run/checkpoint.pt")

The data set is one tensor on the device; an epoch is a permutation of its rows. A batch is cut out,
cropped and mirrored as one tensor, run in channels_last and, where the processor has it, in bf16. A
checkpoint holds all that the next step depends on: weights, optimiser, generators, the epoch's
order, how far it has come, and the history. It replaces the one before it in one rename, so a
training killed at any moment and started again ends with the same bits. It has a checksum, and is
refused when it is damaged.

Under torchrun each process takes its share of every batch: the gradients, BatchNorm and the numbers
are those of the whole batch."""

import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from maccal.data.augment import crop_and_flip
from maccal.data.pixels import Pixels
from maccal.data.split import Split
from maccal.distributed import everywhere, my_rank, share_batchnorm, summed
from maccal.io import FileError, write_sealed
from maccal.training.checkpoint import CHECKPOINT, differing, read_checkpoint
from maccal.training.objective import Objective, Problem
from maccal.training.recipe import Recipe, bf16_runs, capabilities, has_bf16

History = list[dict[str, float]]
LOOK = 20  # steps between looks at the loss: each look waits for the device


class Diverged(ValueError):
    """The loss or a weight is no longer a finite number."""


def precise(recipe: Recipe, device: torch.device) -> Recipe:
    """The recipe with its precision settled for this device.

    ValueError where bf16 would kill the process.
    """
    if recipe.precision == "auto":
        return replace(recipe, precision="bf16" if has_bf16(device) else "fp32")
    if (
        recipe.precision == "bf16"
        and device.type == "cpu"
        and capabilities().get("amx_bf16")
        and not bf16_runs()
    ):
        raise ValueError(
            "this processor announces bf16 matrices (AMX) but cannot run them; pass precision fp32, "
            "or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before the start"
        )
    return recipe


def cast(recipe: Recipe, device: torch.device) -> AbstractContextManager[None]:
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16")


def batch_ranges(count: int, size: int, world: int) -> list[tuple[int, int]]:
    """The batches of an epoch as ranges; left-over rows, if fewer than two a process, join the
    batch before.

    >>> batch_ranges(10, 4, 1), batch_ranges(9, 4, 1)
    ([(0, 4), (4, 8), (8, 10)], [(0, 4), (4, 9)])
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] < 2 * world:
        starts.pop()
    return list(zip(starts, [*starts[1:], count], strict=True))


class Training:
    """Everything a step depends on, and the steps."""

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
        self.rank, self.world = my_rank()
        if recipe.batch_size < 2 * self.world:
            least = 2 * self.world
            raise ValueError(
                f"batch_size is {recipe.batch_size} for {self.world} processes; pass at least {least}, the batch of all of them"
            )
        self.recipe, self.pixels, self.objective, self.device = (
            precise(recipe, device),
            pixels,
            objective,
            device,
        )
        self.network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.images, self.labels = train.images.to(device), train.labels.to(device)
        self.batches = batch_ranges(len(train), recipe.batch_size, self.world)
        if self.world > 1:
            share_batchnorm(network)
        self.optimiser = torch.optim.SGD(
            network.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.generator = torch.Generator().manual_seed(seed)
        self.about = {
            "recipe": asdict(self.recipe),
            "seed": seed,
            "rows": len(train),
            **(about or {}),
        }
        self.epoch, self.batch, self.seconds, self.history = 0, 0, 0.0, History()
        self.order = torch.empty(0, dtype=torch.int64)
        # of loss, of right answers, of rows
        self.sums = torch.zeros(3, dtype=torch.float64, device=device)
        self.problem: nn.Module = nn.Identity()

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
        """One batch: cut out, augment, forward, backward, move."""
        first, last = self.batches[self.batch]
        rows = self.order[first:last].to(self.device)
        whole = crop_and_flip(
            self.images[rows], self.generator, self.recipe.padding, self.recipe.flip
        )
        inputs = self.objective.inputs(self.pixels(whole), self.labels[rows], self.generator)
        mine = [tensor[self.rank :: self.world] for tensor in inputs]
        with cast(self.recipe, self.device):
            loss, logits = self.problem(*mine)
        # DistributedDataParallel takes the mean of the processes' gradients
        share = len(mine[0]) * self.world / len(rows)
        torch.autograd.backward(
            loss * (share * (len(rows) if self.recipe.reduction == "sum" else 1))
        )
        self.move()
        right = (logits.detach().argmax(1) == mine[1]).sum()
        self.sums += summed(
            torch.stack(
                [loss.detach().double() * len(mine[0]), right, right.new_tensor(len(mine[0]))]
            )
        )
        self.batch += 1

    def move(self) -> None:
        if self.recipe.clip:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.recipe.clip)
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.lr_at(self.epoch, self.batch, len(self.batches))
        self.optimiser.step()
        self.optimiser.zero_grad()

    def end(self, val: Split | None) -> None:
        """Leave an epoch: its numbers go into the history."""
        self.look()
        self.objective.end(self.network, self.epoch, self.recipe.epochs)
        loss, right, count = self.sums.tolist()
        numbers = {
            "epoch": self.epoch + 1,
            "lr": self.recipe.lr_at(self.epoch),
            "loss": loss / count,
            "accuracy": right / count,
        }
        last = self.epoch + 1 == self.recipe.epochs
        if val is not None and (last or (self.epoch + 1) % self.recipe.watch == 0):
            with cast(self.recipe, self.device):
                numbers |= judged(predict(self.network, val.images, self.pixels), val.labels)
        self.history.append(numbers | {"seconds": self.seconds})
        self.epoch, self.batch = self.epoch + 1, 0

    def look(self) -> dict[str, float]:
        """Loss and accuracy of the epoch so far; raises when the loss is no number."""
        loss, right, count = self.sums.tolist()
        if not loss - loss == 0:  # neither infinite nor nan
            raise Diverged(
                f"the loss is no longer a finite number, in epoch {self.epoch + 1} by batch {self.batch} of {len(self.batches)}; "
                "train with a lower lr, a smaller clip, or precision fp32"
            )
        return {"loss": loss / max(count, 1), "accuracy": right / max(count, 1)}

    def state(self) -> dict[str, Any]:
        return {
            "about": self.about, "network": self.network.state_dict(), "optimiser": self.optimiser.state_dict(),
            "generators": [self.generator.get_state(), torch.get_rng_state()], "order": self.order, "sums": self.sums,
            "epoch": self.epoch, "batch": self.batch, "seconds": self.seconds, "history": self.history,
        }  # fmt: skip

    def save(self, path: Path) -> None:
        """Replace the checkpoint, unless the training has gone wrong."""
        self.look()
        if not all(bool(p.isfinite().all()) for p in self.network.parameters()):
            raise Diverged(
                f"a weight is no longer a finite number, in epoch {self.epoch + 1}; train with a lower lr or a smaller clip"
            )
        if self.rank == 0:
            buffer = io.BytesIO()
            torch.save(self.state(), buffer)
            write_sealed(path, CHECKPOINT, buffer.getbuffer())

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint of the same training."""
        state = read_checkpoint(path, self.device)
        try:
            for part, wanted in self.about.items():
                if (found := state["about"].get(part)) != wanted:
                    raise ValueError(differing(found, wanted))
            self.take(state)
        except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:300]
            raise FileError(
                path, f"a checkpoint of another training: {reason}; delete it, or go elsewhere"
            ) from error
        if len(set(everywhere((self.epoch, self.batch)))) > 1:
            raise ValueError(
                f"{path}: the processes read different checkpoints; let all of them see the same folder"
            )

    def take(self, state: Mapping[str, Any]) -> None:
        """Become what a checkpoint says."""
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])
        for setter, saved in zip(
            (self.generator.set_state, torch.set_rng_state), state["generators"], strict=True
        ):
            setter(saved.cpu())
        self.order, self.sums = state["order"].cpu(), state["sums"]
        self.epoch, self.batch, self.seconds, self.history = (
            state[k] for k in ("epoch", "batch", "seconds", "history")
        )


@torch.no_grad()
def predict(network: nn.Module, images: Tensor, pixels: Pixels, size: int = 500) -> Tensor:
    """Logits of all images, float32 on the CPU, from eval mode; the network keeps its mode.

    Processes share the work.
    """
    (rank, world), device, mode = my_rank(), next(network.parameters()).device, network.training
    network.eval()
    parts = [
        network(pixels(part.to(device))).float().cpu()
        for part in torch.split(images[rank::world], size)
    ]
    network.train(mode)
    logits = everywhere(torch.cat(parts))
    whole = logits[0].new_empty(len(images), logits[0].shape[1])
    for first, rows in enumerate(logits):
        whole[first::world] = rows
    return whole


def judged(logits: Tensor, labels: Tensor) -> dict[str, float]:
    return {
        "val_accuracy": float((logits.argmax(1) == labels).double().mean()),
        "val_nll": float(F.cross_entropy(logits.double(), labels)),
    }


def bar(training: Training, show: bool) -> Progress:
    words = "epoch {task.fields[epoch]} of {task.fields[epochs]}  loss {task.fields[loss]:.4f}  accuracy {task.fields[accuracy]:.2%}"
    columns = (
        TextColumn(words),
        BarColumn(),
        TextColumn("{task.fields[rate]:.0f} images/s"),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, disable=not show or training.rank > 0, transient=True)
    steps = training.recipe.epochs * len(training.batches)
    fields: dict[str, Any] = {
        "epoch": training.epoch + 1,
        "epochs": training.recipe.epochs,
        "loss": 0.0,
        "accuracy": 0.0,
        "rate": 0.0,
    }
    progress.add_task(
        "", total=steps, completed=training.epoch * len(training.batches) + training.batch, **fields
    )
    return progress


def fit(
    network: nn.Module,
    train: Split,
    recipe: Recipe,
    *,
    pixels: Pixels,
    val: Split | None = None,
    objective: Objective | None = None,
    seed: int = 1,
    checkpoint: Path | str | None = None,
    about: Mapping[str, Any] | None = None,
    every: float = 60.0,
    log: Callable[[History], None] | None = None,
    device: torch.device | str = "cpu",
    progress: bool = False,
) -> History:
    """Train the network in place; returns a dict an epoch: loss and accuracy as trained, and on the
    held-out rows.

    With `checkpoint`, a file, the state is kept there every so many seconds and at the end of each
    epoch, and a file that is already there is gone on from; what `about` says is kept in it, and
    must be the same then. `log` is given the history after each epoch, and when a checkpoint is
    gone on from. Diverged when the loss is no longer a number."""
    training = Training(
        network, train, recipe, pixels, objective or Objective(), seed, torch.device(device), about
    )
    checkpoint = None if checkpoint is None else Path(checkpoint)
    if checkpoint is not None and checkpoint.exists():
        training.restore(checkpoint)
        if log is not None and training.rank == 0 and training.history:
            log(training.history)  # a kill may have come between checkpoint and log
    with bar(training, progress) as shown:
        for _ in epochs(training, shown, checkpoint, every):
            training.end(val)
            if checkpoint is not None:
                training.save(checkpoint)
            if log is not None and training.rank == 0:
                log(training.history)
    network.eval()
    return training.history


def epochs(
    training: Training, shown: Progress, checkpoint: Path | None, every: float
) -> Iterator[int]:
    """Walk the steps; stops after each epoch's last."""
    saved = looked = before = time.monotonic()
    shown_at = training.epoch * len(training.batches) + training.batch
    while training.epoch < training.recipe.epochs:
        training.begin()
        while training.batch < len(training.batches):
            training.step()
            now = time.monotonic()
            training.seconds, before = training.seconds + now - before, now
            if training.batch % LOOK == 0 or training.batch == len(training.batches):
                place = training.epoch * len(training.batches) + training.batch
                rate = (place - shown_at) * training.recipe.batch_size / (now - looked)
                numbers: dict[str, Any] = {
                    "epoch": training.epoch + 1,
                    "rate": rate,
                    **training.look(),
                }
                shown.update(TaskID(0), completed=place, **numbers)
                shown_at, looked = place, now
            if checkpoint is not None and now - saved >= every:
                training.save(checkpoint)
                saved = now
        yield training.epoch
