"""mixup and MIT.

Exact on affine networks, against a slow twin, the shares' distribution, and every architecture cut
in pieces.
"""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

from maccal.data import load
from maccal.data.augment import beta
from maccal.data.pixels import PIXELS
from maccal.methods.mixing import PAIRS, draw, mit_objective, mixup_objective, stages
from maccal.models import MODELS, Net, build
from maccal.training import Objective, fit
from maccal.training.recipe import Recipe

PLAIN = Recipe(epochs=1, batch_size=32, lr=0.02, padding=0, flip=False, precision="fp32")
OBJECTIVES = {
    "mixup": mixup_objective(),
    "mit-l": mit_objective(),
    "mit-a": mit_objective(margin=0.5, where="all"),
}


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=100)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def batch(rows=8, size=8, dtype=torch.float32):
    generator = seeded()
    return torch.randn(rows, 3, size, size, generator=generator, dtype=dtype), torch.randint(
        10, (rows,), generator=generator
    )


def affine(stages):
    """Linear layers only, with the structure of a ResNet.

    A stem, stages, and something before the head.
    """
    layers = OrderedDict[str, nn.Module](conv1=nn.Flatten(), bn1=nn.Linear(192, 12))
    layers |= {
        f"layer{i}": nn.Sequential(nn.Linear(12, 12), nn.Linear(12, 12)) for i in range(stages)
    }
    return Net(
        nn.Sequential(OrderedDict(layers, pool=nn.Linear(12, 9), flatten=nn.Flatten())), 9, 10
    ).double()


def network(name="resnet8", device="cpu"):
    torch.manual_seed(0)
    with torch.device(device):
        return build(name, 10)


# What is drawn


@pytest.mark.parametrize("alpha", [0.01, 0.2, 1.0, 5.0])
def test_draws_are_beta(alpha):
    """Also at an alpha so small that the textbook's two gammas are both zero in float64 now and
    then.
    """
    shares = beta(alpha, (20_000,), seeded())
    assert float(shares.mean()) == pytest.approx(0.5, abs=0.015)
    assert float(shares.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)
    for limit in (1e-50, 1e-6, 0.1, 0.3, 0.7):
        assert float((shares < limit).double().mean()) == pytest.approx(
            stats.beta(alpha, alpha).cdf(limit), abs=0.015
        )
    assert (shares == 0.5).sum() == 0


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_mixup_views(alpha):
    """One share a batch; images and labels follow it; the shares are Beta."""
    x, y, generator, shares = torch.eye(8), torch.arange(8), seeded(), []
    for _ in range(4000):
        mixed, own, partner, share = mixup_objective(alpha).inputs(x, y, generator)
        shares.append(share[0])
    assert own is y
    assert share.shape == (8,)
    assert len(share.unique()) == 1
    assert torch.equal(mixed, share[0] * F.one_hot(y) + (1 - share[0]) * F.one_hot(partner))
    assert float(torch.stack(shares).mean()) == pytest.approx(0.5, abs=0.03)
    assert float(torch.stack(shares).var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.1)


@pytest.mark.parametrize("where", PAIRS)
def test_mit_views(where):
    """Two mixes of the same pairs; a row a share for every place, all rows alike."""
    x, y = torch.eye(8), torch.arange(8)
    m1, own, m2, partner, l1, l2 = mit_objective(where=where).inputs(x, y, seeded())
    assert own is y
    assert l1.shape == l2.shape == (8, PAIRS[where])
    assert len(l1.unique(dim=0)) == len(l2.unique(dim=0)) == 1
    assert len(torch.cat([l1[0], l2[0]]).unique()) == 2 * PAIRS[where]
    for mixed, share in ((m1, l1[0, 0]), (m2, l2[0, 0])):
        assert torch.equal(mixed, share * F.one_hot(y) + (1 - share) * F.one_hot(partner))


@pytest.mark.parametrize(
    ("alpha", "margin"), [(1.0, 0.0), (1.0, 0.5), (0.5, 0.5), (0.2, 0.9), (0.0, 0.9), (5.0, 0.3)]
)
def test_shares_keep_the_margin(alpha, margin):
    shares = torch.cat(
        [draw(alpha, margin, count, seeded(count), torch.float32) for count in range(1, 46)]
    )
    assert len(shares) > 1000
    assert float((shares[:, 0] - shares[:, 1]).min()) >= margin
    assert bool((shares[:, 0] > shares[:, 1]).all())
    assert float(shares[:, 0].min()) >= 0.5 >= float(shares[:, 1].max())


def test_shares_at_alpha_1():
    """Uniform from 1/2 to 1 and from 0 to 1/2, independent.

    Both are drawn again where they are close: what is left is as dense.
    """
    shares = draw(1.0, 0.0, 4000, seeded(), torch.float64)
    assert stats.kstest(shares[:, 0], stats.uniform(0.5, 0.5).cdf).pvalue > 0.01
    assert stats.kstest(shares[:, 1], stats.uniform(0, 0.5).cdf).pvalue > 0.01
    assert abs(float(shares.T.corrcoef()[0, 1])) < 0.05
    gaps = -draw(1.0, 0.5, 4000, seeded(), torch.float64).diff(dim=1)[:, 0]
    # a triangle's upper half
    assert stats.kstest(gaps, lambda gap: 1 - 4 * (1 - gap) ** 2).pvalue > 0.01


def test_what_cannot_be_drawn():
    for alpha in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"alpha is {alpha}; pass a finite number from 0 up"):
            mixup_objective(alpha)
        with pytest.raises(ValueError, match="alpha is"):
            mit_objective(alpha)
    for margin in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=f"margin is {margin}; pass a number from 0"):
            mit_objective(margin=margin)
    with pytest.raises(
        ValueError,
        match=r"with alpha 500.0 shares are hardly ever 0.5 apart; pass a smaller margin",
    ):
        mit_objective(500.0, 0.5)
    with pytest.raises(ValueError, match="where is 'stem'; pass one of 'logits', 'all'"):
        mit_objective(where="stem")


# What is minimised


@pytest.mark.parametrize("where", PAIRS)
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_mit_on_an_affine_network_is_two_clean_cross_entropies(where, depth):
    """Whatever the shares, and wherever the mixes are taken apart.

    The logits are those of the unmixed images.
    """
    net, (x, y) = affine(depth), batch(dtype=torch.float64)
    objective = mit_objective(margin=0.2, where=where)
    for seed in range(5):
        inputs = objective.inputs(x, y, seeded(seed))
        loss, logits = objective.loss(net, *inputs)
        partner = torch.randperm(len(x), generator=seeded(seed))
        clean = F.cross_entropy(net(x), y) / 2 + F.cross_entropy(net(x[partner]), y[partner]) / 2
        assert float(loss.detach()) == pytest.approx(float(clean.detach()), abs=1e-9)
        torch.testing.assert_close(logits, net(x).detach(), rtol=0, atol=1e-9)
        gradients = (
            torch.autograd.grad(value, list(net.parameters()), materialize_grads=True)
            for value in (loss, clean)
        )
        for found, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def solved(o1, o2, l1, l2):
    """In the form of the authors: eliminate one of the pair, then the other."""
    c1, c2 = (1 - l1) / (1 - l2), l2 / l1
    return (o1 - c1 * o2) / (l1 - l2 * c1), (o2 - c2 * o1) / (1 - l2 - (1 - l1) * c2)


def test_mit_a_is_its_slow_twin():
    """Named layers of a ResNet one by one, the shares as numbers."""
    net, twin, (x, y), objective = (
        network().double(),
        network().double(),
        batch(dtype=torch.float64),
        OBJECTIVES["mit-a"],
    )
    m1, _, m2, partner, l1, l2 = objective.inputs(x, y, seeded())
    loss, logits = objective.loss(net, m1, y, m2, partner, l1, l2)
    body, (a, b) = twin.body, solved(m1, m2, float(l1[0, 0]), float(l2[0, 0]))
    runs = [
        lambda h: body.relu(body.bn1(body.conv1(h))),
        body.layer1,
        body.layer2,
        body.layer3,
        lambda h: twin.head(h.mean((2, 3))),
    ]
    for run, share, other in zip(runs, l1[0].tolist(), l2[0].tolist(), strict=False):
        mixes = [run(s * a + (1 - s) * b) for s in (share, other)]
        a, b = solved(*mixes, share, other)
    torch.testing.assert_close(loss, F.cross_entropy(a, y) / 2 + F.cross_entropy(b, partner) / 2)
    torch.testing.assert_close(logits, a.detach())
    torch.testing.assert_close(net.state_dict(), twin.state_dict())


def test_mit_l_is_two_passes():
    """Each mix is a batch of its own to BatchNorm."""
    net, twin, (x, y), objective = network(), network(), batch(), OBJECTIVES["mit-l"]
    m1, _, m2, partner, l1, l2 = objective.inputs(x, y, seeded())
    loss, logits = objective.loss(net, m1, y, m2, partner, l1, l2)
    a, b = solved(twin(m1), twin(m2), float(l1[0, 0]), float(l2[0, 0]))
    torch.testing.assert_close(loss, F.cross_entropy(a, y) / 2 + F.cross_entropy(b, partner) / 2)
    torch.testing.assert_close(logits, a.detach())
    torch.testing.assert_close(net.state_dict(), twin.state_dict())


@pytest.mark.parametrize(("name", "passes"), [("mixup", 1), ("mit-l", 2), ("mit-a", 2)])
def test_batchnorm_counts_the_passes(name, passes):
    net, (x, y), objective = network(), batch(), OBJECTIVES[name]
    for step in range(1, 4):
        objective.loss(net, *objective.inputs(x, y, seeded()))
        assert {
            int(v) for k, v in net.state_dict().items() if k.endswith("num_batches_tracked")
        } == {step * passes}


def test_alpha_0_mixes_nothing():
    net, (x, y), plain = affine(3), batch(dtype=torch.float64), Objective()
    expected, logits = plain.loss(net, x, y)
    for objective in (mixup_objective(0.0), mit_objective(0.0), mit_objective(0.0, 0.9, "all")):
        inputs = objective.inputs(x, y, seeded())
        loss, found = objective.loss(net, *inputs)
        assert torch.equal(inputs[0], x)
        torch.testing.assert_close(found, logits, check_dtype=False)
        torch.testing.assert_close(loss, expected, check_dtype=False)


def test_mixup_is_cross_entropy_with_soft_labels():
    net, (x, y), objective = affine(3), batch(dtype=torch.float64), OBJECTIVES["mixup"]
    mixed, _, partner, share = objective.inputs(x, y, seeded())
    loss, logits = objective.loss(net, mixed, y, partner, share)
    soft = share[:, None] * F.one_hot(y, 10) + (1 - share[:, None]) * F.one_hot(partner, 10)
    torch.testing.assert_close(loss, F.cross_entropy(net(mixed), soft), check_dtype=False)
    torch.testing.assert_close(logits, net(mixed), check_dtype=False)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_shares_of_processes_make_up_the_batch(name):
    """Inputs are dealt out by rows; the mean of the processes' losses is the loss."""
    net, (x, y), objective = affine(4), batch(dtype=torch.float64), OBJECTIVES[name]
    inputs = objective.inputs(x, y, seeded())
    whole, logits = objective.loss(net, *inputs)
    parts = [objective.loss(net, *(tensor[rank::2] for tensor in inputs)) for rank in (0, 1)]
    torch.testing.assert_close((parts[0][0] + parts[1][0]) / 2, whole)
    torch.testing.assert_close(parts[1][1], logits[1::2])


# Where networks are cut


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_cut_at_its_stages(name):
    """All modules in order, once; stem and first stage see the whole image (resnet10.

    Half of it), each later stage half of it.
    """
    net, size = network(name, "meta"), 64 if name.endswith("tiny") else 32
    pieces = stages(net)
    assert len(pieces) == 2 + (
        4
        if name.startswith(("resnet50", "densenet121")) or name in ("resnet110", "resnet10")
        else 3
    )
    leaves = [
        [m for m in part.modules() if not list(m.children())]
        for part in (nn.ModuleList(pieces), net)
    ]
    assert len(leaves[0]) == len(leaves[1])
    assert all(a is b for a, b in zip(*leaves, strict=True))
    x, sizes = torch.empty(2, 3, size, size, device="meta"), []
    for piece in pieces[:-1]:
        x = piece(x)
        sizes.append(x.shape[-1])
    size = sizes[0] if name == "resnet10" else size
    assert sizes == [size, *(size // 2**i for i in range(len(pieces) - 2))]
    assert pieces[-1](x).shape == (2, 10)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_a_step(name):
    """The big ones without computing: shapes fit.

    In the others the gradient reaches every parameter.
    """
    small = name in {"resnet8", "wrn16_2", "densenet40"}
    net, (x, y), objective = (
        network(name, "cpu" if small else "meta"),
        batch(4),
        OBJECTIVES["mit-a"],
    )
    with torch.set_grad_enabled(small):
        loss, logits = objective.loss(
            net, *(tensor.to(net.head.weight.device) for tensor in objective.inputs(x, y, seeded()))
        )
    assert logits.shape == (4, 10)
    if small:
        loss.backward()
        assert all(bool(p.grad.any()) and bool(p.grad.isfinite().all()) for p in net.parameters())


@pytest.mark.parametrize("name", ["resnet8", "wrn16_2", "densenet40"])
def test_the_pieces_are_the_network(name):
    net, (x, _) = network(name).eval(), batch()
    with torch.no_grad():
        torch.testing.assert_close(nn.Sequential(*stages(net))(x), net(x))


def test_what_cannot_be_cut():
    for layers, count in ((1, 0), (5, 5)):
        body = nn.Sequential(
            *(
                nn.Linear(2, 2) if layers == 1 else nn.Sequential(nn.Linear(2, 2))
                for _ in range(layers)
            )
        )
        with pytest.raises(
            ValueError, match=f"a network with {count} stages, expected one to four"
        ):
            stages(Net(body, 2, 2))
    with pytest.raises(ValueError, match="a network with 0 stages"):
        stages(nn.Linear(2, 2))


# In training


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_same_seed_gives_the_same_bits(digits, name):
    nets = [network() for _ in range(3)]
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        history = fit(
            net, digits.train, PLAIN, pixels=PIXELS["digits"], objective=OBJECTIVES[name], seed=seed
        )
    first, again, other = (
        torch.cat([value.flatten() for value in net.state_dict().values()]) for net in nets
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert 0 < history[0]["accuracy"] < 1


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_learns(name):
    data = load("digits", limit=400)
    recipe = replace(PLAIN, epochs=5, lr=0.1, schedule="cosine", precision="bf16")
    history = fit(
        network(),
        data.train,
        recipe,
        pixels=PIXELS["digits"],
        val=data.val,
        objective=OBJECTIVES[name],
    )
    assert history[-1]["val_accuracy"] > 0.85
    assert history[-1]["loss"] < history[0]["loss"]
