"""Several processes as one: who am I, what do the others have, and BatchNorm over the batch of all.

    torchrun --nproc-per-node N -m maccal train ...

`joined` enters the group that torchrun describes (nccl on GPUs, gloo on CPUs), and leaves it;
without torchrun it does nothing. `held` keeps other commands away from a folder while this one
works on it."""

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from maccal.io import locked

PAUSE = 0.5  # seconds between looks at a lock that another command has


@contextmanager
def joined() -> Iterator[torch.device]:
    """The device of this process; inside, the processes that torchrun started know each other."""
    cuda = torch.cuda.is_available()
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield torch.device("cuda" if cuda else "cpu")
        return
    device = (
        torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    )
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield device
        dist.barrier()  # no process leaves while another still talks to it
    finally:
        # what is left of DistributedDataParallel would keep the group's threads past its end
        gc.collect()
        dist.destroy_process_group()


def my_rank() -> tuple[int, int]:
    """This process's rank and the number of processes."""
    return (
        (dist.get_rank(), dist.get_world_size())
        if dist.is_available() and dist.is_initialized()
        else (0, 1)
    )


def everywhere(value: Any) -> list[Any]:
    """The value of every rank, by rank."""
    if not (dist.is_available() and dist.is_initialized()):
        return [value]
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def from_first(value: Any) -> Any:
    """The value of rank 0."""
    if my_rank()[1] == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


class Busy(Exception):
    pass


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Wait until no other command works on the folder, and keep it for this one.

    Of several processes the first has the lock.
    """
    with ExitStack() as stack:
        said = False
        # Looking again and again, not waiting once: torch ends processes that hear nothing of each
        # other for half an hour
        while not from_first(my_rank()[0] == 0 and taken(folder, stack)):
            if my_rank()[0] == 0 and not said:
                words = (
                    f"maccal: {folder} is being worked on by another process; waiting for it to end"
                )
                print(words, file=sys.stderr, flush=True)
                said = True
            time.sleep(PAUSE)
        yield


def taken(folder: Path, stack: ExitStack) -> bool:
    """Whether the folder's lock is ours now, until the stack is closed."""

    def give_up() -> None:
        raise Busy

    try:
        stack.enter_context(locked(folder, waiting=give_up))
    except Busy:
        return False
    return True


class Sum(torch.autograd.Function):
    """The sum over all processes, of values forwards and of gradients backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        if my_rank()[1] > 1:
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return Sum.forward(ctx, gradients[0].contiguous())


def summed(x: Tensor) -> Tensor:
    total: Tensor = Sum.apply(x)  # type: ignore[no-untyped-call]
    return total


class SharedBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the rows of all processes, on any device.

    Torch's own SyncBatchNorm has no CPU kernels.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        wide = x.float()
        ones = torch.full((1,), x.numel() / x.shape[1], device=x.device)
        count, sums = torch.split(summed(torch.cat([ones, wide.sum((0, 2, 3))])), [1, x.shape[1]])
        centred = wide - (sums / count)[:, None, None]
        # two passes: exact where the mean is large
        variance = summed(centred.square().sum((0, 2, 3))) / count
        self.remember(sums.detach() / count.detach(), variance.detach() * count / (count - 1))
        scale = self.weight / (variance + self.eps).sqrt()
        return (centred * scale[:, None, None] + self.bias[:, None, None]).to(x.dtype)

    @torch.no_grad()
    def remember(self, mean: Tensor, variance: Tensor) -> None:
        """The running averages that eval mode uses."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


def share_batchnorm(network: nn.Module) -> None:
    """Let every BatchNorm2d see the rows of all processes; names, parameters and buffers stay."""
    for parent in network.modules():
        for name, child in parent.named_children():
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, shared(child))


def shared(norm: nn.BatchNorm2d) -> SharedBatchNorm:
    result = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum)
    result.weight, result.bias = norm.weight, norm.bias
    result.running_mean, result.running_var, result.num_batches_tracked = (
        norm.running_mean, norm.running_var, norm.num_batches_tracked,
    )  # fmt: skip
    return result.train(norm.training)
