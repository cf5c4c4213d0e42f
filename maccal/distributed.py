"""Several processes as one, started with `torchrun --nproc-per-node N -m maccal train ...`.

    joined             enter the group of processes, and leave it; without torchrun, nothing
    my_rank            which process this is, and how many there are
    everywhere         the values of all processes
    from_first         the value of the first process
    summed             a sum over all processes, with its gradient
    share_batchnorm    BatchNorm over the rows of all processes
    held               keep other commands away from a folder while this one works on it

The processes talk by nccl on GPUs and by gloo on CPUs.
"""

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
    device = torch.device("cuda" if cuda else "cpu")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        yield device
        return
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield device
        dist.barrier()  # no process leaves while another still talks to it
    finally:
        # What is left of DistributedDataParallel would keep the group's threads past its end
        gc.collect()
        dist.destroy_process_group()


def in_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def my_rank() -> tuple[int, int]:
    """This process's rank and the number of processes."""
    if not in_group():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def everywhere(value: Any) -> list[Any]:
    """The value of every process, by rank."""
    if not in_group():
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
    """Another process has the lock."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Wait until no other command works on the folder, and keep it for this one.

    Of several processes that torchrun started, the first has the lock.
    """
    first = my_rank()[0] == 0
    said = False
    with ExitStack() as stack:
        # Looks again and again instead of waiting once: torch ends processes that hear nothing from
        # each other for half an hour
        while not from_first(first and taken(folder, stack)):
            if first and not said:
                busy = f"{folder} is being worked on by another process"
                print(f"maccal: {busy}; waiting for it to end", file=sys.stderr, flush=True)
                said = True
            time.sleep(PAUSE)
        yield


def taken(folder: Path, stack: ExitStack) -> bool:
    """Whether the folder's lock is now ours, until the stack is closed."""

    def give_up() -> None:
        raise Busy

    try:
        stack.enter_context(locked(folder, waiting=give_up))
    except Busy:
        return False
    return True


class Sum(torch.autograd.Function):
    """The sum over all processes: of the values forwards, of the gradients backwards."""

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
    """The sum of x over all processes, with its gradient."""
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
        # Two passes, so that it is exact even if the mean is large
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
    """Let every BatchNorm2d see the rows of all processes.

    Names, parameters and buffers stay as they are.
    """
    for parent in network.modules():
        for name, child in parent.named_children():
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, shared(child))


def shared(norm: nn.BatchNorm2d) -> SharedBatchNorm:
    """The same layer over all processes, with the very parameters and buffers of this one."""
    result = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum)
    result.weight = norm.weight
    result.bias = norm.bias
    result.running_mean = norm.running_mean
    result.running_var = norm.running_var
    result.num_batches_tracked = norm.num_batches_tracked
    return result.train(norm.training)
