"""BalCAL.

The simplex, the scale and the balance against their goldens, the two heads on every model, and
training resumed.
"""

import math
from dataclasses import replace

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from interruption import Stop, stopping
from short_training import PLAIN, SEEN, weights

from maccal.data import load
from maccal.methods.balcal import (
    Dual,
    balance,
    balcal,
    balcal_begin,
    balcal_end,
    balcal_loss,
    class_scale,
    dual,
    simplex,
)
from maccal.models import MODELS, build
from maccal.training import fit, predict
from maccal.training.checkpoint import read_checkpoint

K = 10


@pytest.fixture(scope="module")
def digits():
    return load("digits", limit=200)


def network(model="resnet8", seed=0):
    torch.manual_seed(seed)
    return dual(build(model, K), seed)


def batch(rows=12):
    return torch.randn(rows, 3, 8, 8), torch.arange(rows) % K


def gram(features, classes):
    m = simplex(features, classes, torch.Generator().manual_seed(0))
    assert m.shape == (features, classes)
    return m.T @ m


def heads():
    """64 rows, both heads of one mind, every 16th of them wrong."""
    shape = torch.sin(1.3 * torch.arange(64, dtype=torch.float64)[:, None] + 0.7 * torch.arange(K))
    labels = shape.argmax(1)
    labels[::16] = (labels[::16] + 1) % K
    return 6 * shape, 0.7 * shape, labels


@pytest.mark.parametrize(
    ("features", "classes"), [(2, 2), (16, 10), (10, 10), (64, 10), (640, 100), (2048, 200)]
)
def test_the_classes_form_a_simplex(features, classes):
    wanted = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(gram(features, classes), wanted, rtol=0, atol=1e-6)


def test_the_simplex_is_drawn():
    first, again, other = (
        simplex(32, 10, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=0.1)


@pytest.mark.parametrize(
    ("classes", "confidence"), [(10, 0.252351), (100, 0.026988), (200, 0.013543)]
)
def test_how_sure_the_etf_head_can_be(classes, confidence):
    """A feature along its class's vector; no other direction is surer."""
    m = simplex(256, classes, torch.Generator().manual_seed(0))
    top = (m.T @ m).softmax(1).diagonal()
    torch.testing.assert_close(top, torch.full((classes,), confidence), rtol=0, atol=1e-6)
    other = F.normalize(m[:, :1].T + 0.5 * torch.randn(2000, 256) / 16)
    assert float((other @ m).softmax(1).amax()) <= float(top[0]) + 1e-7


@pytest.mark.parametrize(
    ("features", "classes", "words"),
    [(64, 100, "at least 100"), (64, 1, "classes is 1"), (0, 0, "classes")],
)
def test_no_simplex(features, classes, words):
    with pytest.raises(ValueError, match=words):
        simplex(features, classes, torch.Generator())


def test_class_scale():
    wanted = torch.tensor([1, 1.414214, 0.816497, 1])
    torch.testing.assert_close(
        class_scale(torch.tensor([0, 0, 1, 2, 2, 2]), 4), wanted, rtol=0, atol=1e-6
    )
    assert torch.equal(class_scale(torch.arange(20) % 5, 7), torch.ones(7))
    labels = torch.randint(50, (128,))
    count = torch.bincount(labels, minlength=60)
    present = count > 0
    scale = class_scale(labels, 60)
    # a mean weight of one
    assert float((scale[present] ** 2 * count[present]).sum()) == pytest.approx(128)
    assert torch.equal(scale[~present], torch.ones(int((~present).sum())))


@pytest.mark.parametrize(
    ("delta", "wanted", "confidence"),
    [(1, 1, 0.548050), (0.6, 1, 0.548050), (0.5, 0.667786, 0.468758), (0.3, 0.178650, 0.281219)],
)
def test_balance(delta, wanted, confidence):
    linear, etf, labels = heads()
    share = balance(linear, etf, labels, delta)
    mixed = share * linear + (1 - share) * etf
    assert share == pytest.approx(wanted, abs=1e-6)
    assert float(mixed.softmax(1).amax(1).mean()) == pytest.approx(confidence, abs=1e-6)
    assert balance(linear.float(), etf.float(), labels, delta) == pytest.approx(share, abs=1e-4)


def test_balance_beyond_reach():
    """Where even the ETF head is too sure, it alone is the nearest.

    Where it is as sure as the linear one, nothing is nearer.
    """
    linear, etf, labels = heads()
    assert balance(linear, etf, labels, 0.01) < 1e-4
    assert balance(linear, linear, labels, 0.3) == 1


def test_the_balance_is_of_the_mixture():
    """The heads disagree.

    Delta times the accuracy of the mixed logits, which is not the linear head's.
    """
    linear = torch.tensor([[5.0, 0.0, 0.0]] * 3 + [[2.0, 1.9, 0.0]])
    etf, labels = torch.tensor([[0.0, 1.0, 0.0]]).repeat(4, 1), torch.tensor([0, 0, 0, 1])
    share = balance(linear, etf, labels, 0.6)
    mixed = share * linear + (1 - share) * etf
    assert mixed.argmax(1).tolist() == [0, 0, 0, 1]
    assert float(mixed.softmax(1).amax(1).mean()) == pytest.approx(0.6, abs=1e-3)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_a_second_head(name):
    """Shapes only: nothing is computed."""
    size = 64 if name.endswith("tiny") else 32
    with torch.device("meta"):
        net = build(name, K)
        two = dual(net, 0)
    two, x = two.to("meta"), torch.empty(2, 3, size, size, device="meta")
    assert [logits.shape for logits in two.both(x)] == [(2, K)] * 2
    assert two.features(x).shape == (2, two.num_features) == (2, net.num_features)
    assert two.head is net.head
    assert set(net.state_dict()) < set(two.state_dict())
    assert two.simplex.shape[0] == {"resnet50_tiny": 2048}.get(name, net.num_features)


@pytest.mark.parametrize("name", ["resnet8", "wrn16_2", "densenet40"])
def test_the_linear_branch_is_the_networks_own(name):
    torch.manual_seed(0)
    net = build(name, K)
    two, (x, _) = dual(net, 3).eval(), batch()
    with torch.no_grad():
        linear, etf = two.both(x)
        assert torch.equal(linear, net(x))
        assert torch.equal(two.head(two.features(x)), linear)
        assert etf.abs().amax() <= 1 + 1e-6
        torch.testing.assert_close(two(x), 0.8 * linear + 0.2 * etf)
        two.share.fill_(0.25)
        torch.testing.assert_close(two(x), 0.25 * linear + 0.75 * etf)


def test_dual_draws_with_its_seed_alone():
    net = build("resnet8", K)
    first = weights(dual(net, 1))
    torch.rand(3)
    assert torch.equal(first, weights(dual(net, 1)))
    assert not torch.equal(first, weights(dual(net, 2)))
    after = torch.get_rng_state()
    dual(net, 1)
    assert torch.equal(torch.get_rng_state(), after)


def test_a_silent_image_has_logits():
    """Features that are all zero have no direction; they are divided by 1e-12, not by 0."""
    two = network().eval()
    two.branch[1].bias.data.fill_(-1e6)
    with torch.no_grad():
        assert torch.equal(two.both(batch()[0])[1], torch.zeros(12, K))


def test_what_the_heads_share_runs_once():
    two, calls = network(), []
    for layer in two.body[: two.shared]:
        layer.register_forward_hook(lambda module, x, y: calls.append(module))
    balcal_loss(two, *batch())
    two.eval()(batch()[0])
    assert calls == 2 * list(two.body[: two.shared])


def test_loss():
    two, (x, y) = network(), (batch()[0], torch.tensor([0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 9]))
    loss, logits = balcal_loss(two, x, y)
    linear, etf = two.both(x)
    scale = torch.tensor(
        [math.sqrt(12 / 5 / n) if n else 1 for n in (4, 2, 1, 4, 0, 0, 0, 0, 0, 1)]
    )
    direction = F.normalize(two.branch(two.body[: two.shared](x)))
    scaled = direction @ (two.simplex * scale)
    torch.testing.assert_close(
        loss, 0.8 * F.cross_entropy(linear, y) + 0.2 * F.cross_entropy(scaled, y)
    )
    torch.testing.assert_close(logits, 0.8 * linear + 0.2 * etf)
    torch.testing.assert_close(
        two.get_extra_state(), torch.cat([linear, scaled, y[:, None].float()], 1)
    )


def test_lambda_one_is_cross_entropy():
    two, (x, y) = network(), batch()
    two.share.fill_(1)
    loss, logits = balcal_loss(two, x, y)
    linear = two.both(x)[0]
    assert torch.equal(loss, F.cross_entropy(linear, y))
    assert torch.equal(logits, linear)


@pytest.mark.parametrize(("share", "silent"), [(1.0, "branch"), (0.0, "head"), (0.5, None)])
def test_both_heads_teach_the_body(share, silent):
    two = network()
    two.share.fill_(share)
    balcal_loss(two, *batch())[0].backward()
    taught = {
        part: any(bool(p.grad.any()) for p in getattr(two, part).parameters())
        for part in ("body", "head", "branch")
    }
    assert taught == {part: part != silent for part in taught}
    assert not two.simplex.requires_grad
    assert "simplex" not in dict(two.named_parameters())


def test_bf16_logits_become_float32():
    two = network()
    with torch.autocast("cpu", torch.bfloat16):
        loss, logits = balcal_loss(two, *batch())
    assert {loss.dtype, logits.dtype, two.get_extra_state().dtype} == {torch.float32}


def test_an_epoch_ends_with_the_balance_of_all_its_rows(monkeypatch):
    two, (linear, etf, labels) = network(), heads()
    for rows in torch.arange(64).split(20):
        two.remember(linear[rows].float(), etf[rows].float(), labels[rows])
    balcal_end(two, 0, 1, delta=0.3)
    assert float(two.share) == pytest.approx(0.178650, abs=1e-6)
    assert two.state_dict()["_extra_state"].shape == (0, 2 * K + 1)
    two.remember(linear[:30].float(), etf[:30].float(), labels[:30])
    rest = torch.cat([linear, etf, labels[:, None]], 1)[30:].float()
    # another process
    monkeypatch.setitem(balcal_end.__globals__, "everywhere", lambda mine: [mine, rest])
    balcal_end(two, 1, 2, delta=0.5)
    assert float(two.share) == pytest.approx(0.667786, abs=1e-6)


def test_doors():
    with pytest.raises(ValueError, match="Net has one; pass dual"):
        balcal_begin(build("resnet8", K), 0, 1)
    for delta in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="delta is"):
            balcal(delta)
    with pytest.raises(ValueError, match="at least 100"):
        dual(build("resnet8", 100), 0)


def trained(data, recipe=PLAIN, objective=None, **settings):
    net = network()
    history = fit(
        net,
        data.train,
        recipe,
        pixels=SEEN,
        val=data.val,
        objective=objective or balcal(0.6),
        **settings,
    )
    return net, [
        {key: value for key, value in epoch.items() if key != "seconds"} for epoch in history
    ]


def test_it_learns_and_is_saved(digits, tmp_path):
    shares = []

    def end(net, epoch, epochs):
        assert len(net.get_extra_state()) == len(digits.train)
        balcal_end(net, epoch, epochs, delta=0.6)
        shares.append(float(net.share))

    net, history = trained(digits, replace(PLAIN, epochs=6), replace(balcal(), end=end))
    # later it rises as the ETF head, which cannot be sure, counts for more
    assert history[2]["loss"] < history[0]["loss"] / 2
    assert history[-1]["val_nll"] < history[0]["val_nll"] / 2
    assert history[-1]["accuracy"] > 0.9
    assert 0.1 < shares[-1] < shares[0]  # the linear head grows surer than 0.6 times its accuracy
    assert shares[-1] == float(net.share)
    state = {name: value.contiguous() for name, value in net.state_dict().items()}
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    again = network(seed=5)
    again.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    logits = [
        predict(n.to(memory_format=torch.channels_last), digits.test.images, SEEN)
        for n in (net, again)
    ]
    assert torch.equal(*logits)
    balcal_loss(again.train(), *batch())
    assert len(again.get_extra_state()) == 12


@pytest.mark.parametrize("after", [3, 7, 10])
def test_resumed_in_the_middle_it_ends_with_the_same_bits(digits, tmp_path, whole, after):
    """After 3 of an epoch's 7 steps, between the epochs, and within the second, which lambda of the
    first depends on.
    """
    file = tmp_path / "checkpoint.pt"
    with pytest.raises(Stop):
        trained(
            digits,
            objective=replace(balcal(0.6), inputs=stopping(after).inputs),
            checkpoint=file,
            every=0,
        )
    kept = read_checkpoint(file)["network"]["_extra_state"]
    assert len(kept) == {3: 96, 7: 0, 10: 96}[after]
    net, history = trained(digits, checkpoint=file)
    assert torch.equal(weights(whole[0]), weights(net))
    assert history == whole[1]


@pytest.fixture(scope="module")
def whole(digits):
    return trained(digits)


def test_resumed_after_the_last_step_of_an_epoch(digits, tmp_path, whole):
    """Killed after the last step is saved and before lambda is set."""
    file = tmp_path / "checkpoint.pt"

    def end(net, epoch, epochs):
        raise Stop

    with pytest.raises(Stop):
        trained(digits, objective=replace(balcal(0.6), end=end), checkpoint=file, every=0)
    assert len(read_checkpoint(file)["network"]["_extra_state"]) == len(digits.train)
    net, history = trained(digits, checkpoint=file)
    assert isinstance(net, Dual)
    assert torch.equal(weights(whole[0]), weights(net))
    assert history == whole[1]
