"""PLP.

The published schedule, which tensors move in which epoch, and where every architecture is cut.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from interruption import Stop, stopping

from maccal.data import load
from maccal.data.pixels import PIXELS
from maccal.methods.mixing import stages
from maccal.methods.plp import RESNET50, block_ends, cuts_of, plp_objective, published_boundaries
from maccal.models import MODELS, build
from maccal.training import Training, fit
from maccal.training.recipe import Recipe

CUTS = [9, 15, 23]  # of resnet8: stem and layer1, layer2, all
RECIPE = Recipe(epochs=3, batch_size=32, lr=0.05, padding=1, flip=False)
SEEN = PIXELS["digits"]


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=200)


def network(name="resnet8", device="cpu"):
    torch.manual_seed(0)
    with torch.device(device):
        return build(name, 10)


def copied(net):
    return {name: value.clone() for name, value in net.state_dict().items()}


def learns(net):
    return [parameter.requires_grad for parameter in net.parameters()]


# The schedule


def test_boundaries():
    assert published_boundaries(350, 11) == [0, 31, 63, 95, 127, 159, 190, 222, 254, 286, 318, 350]
    assert published_boundaries(100, 11) == [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 100]
    assert published_boundaries(100, 4, 2.0) == [0, 6, 25, 56, 100]


@pytest.mark.parametrize("count", range(1, 12))
def test_boundaries_are_exact(count):
    """Whole numbers do not fall to the one below by rounding."""
    for epochs in range(1, 400):
        assert published_boundaries(epochs, count) == [
            j * epochs // count for j in range(count + 1)
        ]


def test_the_paper_s_training():
    """ResNet-50, 350 epochs.

    Everything learns up to epoch 30, then without layer4.2 and fc, in the end stem and layer1 only.
    """
    net, objective, counts = network("resnet50", "meta"), plp_objective(RESNET50), []
    for epoch in range(350):
        objective.begin(net, epoch, 350)
        count = sum(learns(net))
        assert learns(net) == [True] * count + [False] * (161 - count)
        counts.append(count)
    ends = [30, 62, 94, 126, 158, 189, 221, 253, 285, 317, 349]
    assert [counts[end] for end in ends] == RESNET50[::-1]
    assert [epoch for epoch in range(349) if counts[epoch] != counts[epoch + 1]] == ends[:-1]
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    assert {name.split(".")[1] for name in names} == {"conv1", "bn1", "layer1"}


def test_fewer_epochs_than_cuts():
    """Some cuts are passed over; the last epoch trains the least."""
    net, objective, counts = network("resnet50", "meta"), plp_objective(RESNET50), []
    for epoch in range(4):
        objective.begin(net, epoch, 4)
        counts.append(sum(learns(net)))
    assert counts == [141, 102, 72, 33]


def test_any_epoch_can_be_entered():
    """Forwards, backwards or twice; after the last one everything learns again."""
    net, objective = network(), plp_objective(CUTS)
    for epoch in (2, 0, 0, 1, 2, 2):
        objective.begin(net, epoch, 3)
        assert sum(learns(net)) == CUTS[2 - epoch]
        objective.end(net, epoch, 3)
        assert sum(learns(net)) == (CUTS[2 - epoch] if epoch < 2 else 23)


def test_what_is_no_list_of_cuts():
    for cuts in ([], [0, 23], [9, 9, 23], [15, 9]):
        with pytest.raises(ValueError, match="pass rising numbers of parameter tensors"):
            plp_objective(cuts)
    with pytest.raises(ValueError, match="power is 0; pass a number above 0"):
        plp_objective(CUTS, 0)
    with pytest.raises(
        ValueError, match="the cuts end at 161, the network has 23 parameter tensors"
    ):
        plp_objective(RESNET50).begin(network(), 0, 350)


# Where networks are cut


@pytest.mark.parametrize("name", MODELS)
def test_cuts_of_every_model(name):
    """Rising, at ends of blocks, from stem and first stage to everything.

    Each step takes about as many blocks as any other.
    """
    net = network(name, "meta")
    cuts, ends = cuts_of(net), block_ends(net)
    names = [key for key, _ in net.named_parameters()]
    assert cuts == sorted(set(cuts))
    assert 3 <= len(cuts) <= 11
    assert cuts[-1] == len(names)
    assert cuts[0] == sum(len(list(piece.parameters())) for piece in stages(net)[:2])
    assert set(cuts[:-1]) <= set(ends[:-1])
    for cut in cuts[:-1]:
        assert block_of(names[cut - 1]) != block_of(names[cut])
    steps = [
        ends.index(high) - ends.index(low)
        for low, high in zip(cuts[:-1], [*cuts[1:-1], ends[-1]], strict=True)
    ]
    assert max(steps) - min(steps) <= 1


def block_of(name):
    """body.layer2.0.conv1.weight is in body.layer2.0, body.17.new.0.weight in body.17."""
    return name.split(".")[1 : 3 if "layer" in name else 2]


def test_cuts_of_the_paper_s_networks():
    assert cuts_of(network("resnet50", "meta")) == [
        33,
        54,
        72,
        84,
        93,
        102,
        120,
        129,
        141,
        150,
        161,
    ]
    assert cuts_of(network("resnet50_tiny", "meta")) == RESNET50
    assert cuts_of(network("resnet8")) == CUTS
    assert cuts_of(network("resnet20")) == [21, 27, 33, 39, 45, 51, 59]  # fewer blocks than 11
    assert [
        len(cuts_of(network(name, "meta"))) for name in ("resnet110", "wrn26_10", "densenet121")
    ] == [11, 9, 11]


# In training


def test_which_tensors_move(digits):
    """Bit-identical where frozen, in spite of momentum and weight decay.

    The frozen BatchNorms' statistics still move.
    """
    net, plp, states = network(), plp_objective(CUTS), []

    def begin(net, epoch, epochs):
        plp.begin(net, epoch, epochs)
        states.append(copied(net))

    fit(net, digits.train, RECIPE, pixels=SEEN, objective=replace(plp, begin=begin))
    states.append(copied(net))
    names = [name for name, _ in net.named_parameters()]
    for epoch, (before, after) in enumerate(pairwise(states)):
        moved = {name for name in before if not torch.equal(before[name], after[name])}
        assert moved & set(names) == set(names[: CUTS[2 - epoch]])
        assert moved >= before.keys() - set(names)
    assert all(learns(net))
    assert not net.training


def test_nothing_is_computed_for_the_frozen():
    net, objective = network(), plp_objective(CUTS)
    objective.begin(net, 1, 3)
    loss, _ = objective.loss(net, torch.randn(8, 3, 8, 8), torch.arange(8))
    loss.backward()
    assert [parameter.grad is not None for parameter in net.parameters()] == [True] * 15 + [
        False
    ] * 8
    assert bool(next(net.parameters()).grad.any())


def test_momentum_of_the_frozen_stays(digits):
    training = Training(
        network(), digits.train, RECIPE, SEEN, plp_objective(CUTS), 1, torch.device("cpu")
    )
    training.begin()
    training.step()
    training.epoch = 2
    training.begin()
    buffers = [
        training.optimiser.state[p]["momentum_buffer"] for p in training.network.parameters()
    ]
    before = [buffer.clone() for buffer in buffers]
    training.step()
    assert [not torch.equal(*pair) for pair in zip(before, buffers, strict=True)] == [True] * 9 + [
        False
    ] * 14


def test_one_cut_is_vanilla(digits):
    """Nothing is ever frozen: the same bits as without PLP."""
    nets = [network(), network()]
    for net, objective in zip(nets, (None, plp_objective([23])), strict=True):
        fit(net, digits.train, RECIPE, pixels=SEEN, objective=objective)
    assert all(
        torch.equal(*pair)
        for pair in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("after", [3, 7, 10, 17])
def test_resumed_in_the_middle_it_ends_with_the_same_bits(digits, tmp_path, after):
    whole, rest, settings = network(), network(), {"pixels": SEEN, "seed": 1}
    fit(whole, digits.train, RECIPE, objective=plp_objective(CUTS), **settings)
    settings |= {"checkpoint": tmp_path / "checkpoint.pt", "every": 0}
    with pytest.raises(Stop):
        fit(
            network(),
            digits.train,
            RECIPE,
            objective=replace(plp_objective(CUTS), inputs=stopping(after).inputs),
            **settings,
        )
    fit(rest, digits.train, RECIPE, objective=plp_objective(CUTS), **settings)
    assert all(
        torch.equal(*pair)
        for pair in zip(whole.state_dict().values(), rest.state_dict().values(), strict=True)
    )


def test_it_is_cross_entropy():
    net, x, y = network(), torch.randn(8, 3, 8, 8), torch.arange(8)
    loss, logits = plp_objective(CUTS).loss(net, x, y)
    torch.testing.assert_close(loss, F.cross_entropy(logits, y))
