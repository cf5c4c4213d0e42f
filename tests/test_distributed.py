"""BatchNorm over the batch of all processes: alone it is torch's own. (Two processes.

Test_training.py.)
"""

import copy

import torch
from torch import nn

from maccal.distributed import (
    SharedBatchNorm,
    everywhere,
    from_first,
    joined,
    my_rank,
    share_batchnorm,
    summed,
)
from maccal.models import build


def twins():
    torch.manual_seed(3)
    plain = build("resnet8", 10)
    other = copy.deepcopy(plain)
    share_batchnorm(other)
    return plain, other


def test_alone_it_is_torchs_batchnorm():
    plain, other = twins()
    assert any(isinstance(m, SharedBatchNorm) for m in other.modules())
    x = torch.randn(16, 3, 12, 12) * 3 + 7
    for network in (plain, other):
        network(x).square().sum().backward()
    for (name, a), (_, b) in zip(plain.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(
            a.grad, b.grad, rtol=1e-3, atol=1e-3 * float(a.grad.abs().max()), msg=name
        )
    for (name, a), (same, b) in zip(
        plain.state_dict().items(), other.state_dict().items(), strict=True
    ):
        assert name == same
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(plain.eval()(x), other.eval()(x))


def test_without_momentum_it_averages_all_batches():
    plain, mine = nn.BatchNorm2d(3, momentum=None), SharedBatchNorm(3, momentum=None)
    for seed in range(3):
        x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(plain(x), mine(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain.state_dict(), mine.state_dict(), rtol=1e-5, atol=1e-5)


def test_half_precision_in_half_precision_out():
    norm = SharedBatchNorm(3)
    x = torch.randn(8, 3, 4, 4).bfloat16()
    assert norm(x).dtype == torch.bfloat16
    torch.testing.assert_close(norm(x).float(), nn.BatchNorm2d(3)(x.float()), rtol=2e-2, atol=2e-2)


def test_one_process(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with joined() as device:
        assert device.type in ("cpu", "cuda")
        assert my_rank() == (0, 1)
    assert everywhere("mine") == ["mine"]
    assert from_first("mine") == "mine"
    assert torch.equal(summed(torch.ones(2)), torch.ones(2))
