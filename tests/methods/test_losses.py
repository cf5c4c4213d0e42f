"""Every loss against published numbers, its slow twin, its limits and its symmetries; finite at
extremes, in bounded memory.

A loss that maccal.methods.losses exports and CASES does not name fails here; one that it names goes
through every test below."""

import json
from pathlib import Path

import pytest
import reference_losses
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from maccal.methods.losses import pairs
from maccal.methods.registry import losses

# name of the case: function, options. Margins are small enough to bite.
CASES = {
    "cross_entropy": (losses.cross_entropy, {}),
    "label_smoothing": (losses.label_smoothing, {"alpha": 0.1}),
    "mbls": (losses.mbls, {"margin": 1.1, "alpha": 0.3}),
    "acls": (losses.acls, {"margin": 1.1, "alpha": 0.3, "top": 0.9, "rest": 0.4}),
    "focal": (losses.focal, {"gamma": 3.0}),
    "focal, root": (losses.focal, {"gamma": 0.5}),
    "flsd": (losses.flsd, {}),
    "flsd, three exponents": (losses.flsd, {"gammas": (4.0, 2.5, 0.7)}),
    "dual_focal": (losses.dual_focal, {"gamma": 5.0}),
    "dual_focal, root": (losses.dual_focal, {"gamma": 0.5}),
    "cpc": (losses.cpc, {"discrimination": 0.7, "exclusion": 1.3}),
    "binary_discrimination": (losses.binary_discrimination, {}),
    "binary_exclusion": (losses.binary_exclusion, {}),
    "mmce": (losses.mmce, {"weight": 3.0, "form": "weighted"}),
    "mmce, as coded": (losses.mmce, {"form": "as coded"}),
    "kernel, weighted": (losses.kernel_calibration_error, {"form": "weighted"}),
    "kernel, unweighted": (losses.kernel_calibration_error, {"form": "unweighted"}),
    "mixed_cross_entropy": (losses.mixed_cross_entropy, {"share": 0.3}),
    "mit_l": (losses.mit_l, {"l1": 0.8, "l2": 0.3}),
    "standard_normal_kl": (losses.standard_normal_kl, {}),
}
NOT_LOSSES = {"Reduction", "decouple"}
NOT_SHIFT_INVARIANT = {losses.acls, losses.standard_normal_kl}
THREE_CLASSES = {losses.cpc, losses.binary_exclusion}
# asks only whether predictions are labels; has none
ANY_LABELS = {losses.kernel_calibration_error, losses.standard_normal_kl}
# the second logits and the variances follow the first logits, so that one set of draws and
# symmetries serves all
ARGUMENTS = {
    losses.mixed_cross_entropy: lambda s, y, z: (s, y, z),
    losses.mit_l: lambda s, y, z: (s, -0.5 * s, y, z),
    losses.standard_normal_kl: lambda s, y, z: (s, -s.abs()),
}

each = pytest.mark.parametrize("case", CASES)


def each_but(functions):
    return pytest.mark.parametrize(
        "case", [case for case, (function, _) in CASES.items() if function not in functions]
    )


def arguments(function, batch):
    return ARGUMENTS.get(function, lambda s, y, z: (s, y))(*batch)


def value(case, batch, **more):
    function, options = CASES[case]
    return function(*arguments(function, batch), **options, **more)


def with_gradient(case, batch, **more):
    logits = batch[0].detach().clone().requires_grad_()
    result = value(case, (logits, *batch[1:]), **more)
    return result.detach(), torch.autograd.grad(result, logits)[0]


def draw(rows=6, classes=5, seed=0, scale=3.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(rows, classes, generator=generator, dtype=dtype)
    labels = torch.randint(classes, (2, rows), generator=generator)
    labels[0, ::2] = logits.argmax(1)[::2]  # some rows are right
    return logits, labels[0], labels[1]


def test_every_loss_is_tested():
    assert {function.__name__ for function, _ in CASES.values()} == set(losses.__all__) - NOT_LOSSES


# Numbers of the public implementations

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "losses.json").read_text())


def published():
    """The four input sets of the goldens."""
    i, k = torch.arange(8, dtype=torch.float64)[:, None], torch.arange(10, dtype=torch.float64)
    waves, labels = torch.sin(1.3 * i + 0.7 * k), 3 * torch.arange(8) % 10
    return {
        "A": (
            torch.tensor([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0]], dtype=torch.float64),
            torch.tensor([0, 2]),
        ),
        "B": (3 * waves, labels),
        "C": (12 * waves, labels),
        "D": (3 * waves, torch.tensor([2, 0, 8, 7, 4, 3, 9, 8])),
    }


PUBLISHED = {
    "ce_mean": losses.cross_entropy,
    "ce_sum": lambda s, y: losses.cross_entropy(s, y, reduction="sum"),
    **{f"ls_alpha{a}_mean": lambda s, y, a=a: losses.label_smoothing(s, y, a) for a in (0.05, 0.1)},
    **{f"mbls_m{m}_a0.1": lambda s, y, m=m: losses.mbls(s, y, m) for m in (10, 6, 2, 1)},
    **{
        f"acls_pos1_neg0.1_a0.1_m{m}": lambda s, y, m=m: losses.acls(s, y, m) for m in (10, 6, 2, 1)
    },
    **{
        f"fl_gamma{g}_sum": lambda s, y, g=g: losses.focal(s, y, g, reduction="sum")
        for g in (1, 2, 3)
    },
    "fl_gamma3_mean": losses.focal,
    "flsd53_sum": lambda s, y: losses.flsd(s, y, reduction="sum"),
    "flsd53_mean": losses.flsd,
    **{
        f"dfl_gamma{g}_sum": lambda s, y, g=g: losses.dual_focal(s, y, g, reduction="sum")
        for g in (5.0, 6.1, 3.9, 3.4, 4.5, 2.6, 2.3)
    },
    "cpc_bdc0.1_bec1": losses.cpc,
    "cpc_bdc1_bec1": lambda s, y: losses.cpc(s, y, discrimination=1.0),
    "cpc_bdc_term": losses.binary_discrimination,
    "cpc_bec_term": losses.binary_exclusion,
    "mmce_m_term_f32": lambda s, y: losses.kernel_calibration_error(s, y, "unweighted"),
    "mmce_w_term_f32": lambda s, y: losses.kernel_calibration_error(s, y, "as coded"),
    "ce_plus_2mmce_w_f32": lambda s, y: losses.mmce(s, y, form="as coded"),
    "ce_plus_1mmce_m_f32": lambda s, y: losses.mmce(s, y, weight=1.0, form="unweighted"),
    "mixup_lam0.3_yb=reversed_targets": lambda s, y: losses.mixed_cross_entropy(
        s, y, y.flip(0), 0.3
    ),
    "mitL_l1=0.8_l2=0.3_logits2=roll(logits,1,dim1)_yb=reversed": lambda s, y: losses.mit_l(
        s, s.roll(1, 1), y, y.flip(0), 0.8, 0.3
    ),
}


def test_every_golden_is_tested():
    assert set(PUBLISHED) == set(GOLDEN)


@pytest.mark.parametrize("which", "ABCD")
@pytest.mark.parametrize("name", PUBLISHED)
def test_golden(name, which):
    """Value, L1 norm of the gradient and its first row.

    In float32 where the source was, then to 1e-6 relative above 1.
    """
    logits, labels = published()[which]
    single = name.endswith("_f32")
    s = (logits.float() if single else logits).requires_grad_()
    loss = PUBLISHED[name](s, labels)
    (gradient,) = torch.autograd.grad(loss, s)
    golden, rel = GOLDEN[name][which], 1e-6 if single else 1e-9
    assert loss.item() == pytest.approx(golden["loss"], abs=1e-6, rel=rel)
    assert gradient.abs().sum().item() == pytest.approx(golden["grad_l1"], abs=1e-6, rel=rel)
    assert gradient[0].tolist() == pytest.approx(golden["grad_row0"], abs=1e-6, rel=rel)


def test_the_weighted_formula_as_published():
    """Set D has four rows right and four wrong: the public code divides by four once too often."""
    logits, labels = published()["D"]
    assert losses.kernel_calibration_error(logits, labels).item() == pytest.approx(
        0.231017, abs=1e-6
    )
    assert losses.kernel_calibration_error(logits, labels, "as coded").item() == pytest.approx(
        0.057754, abs=1e-6
    )


# The slow twins, and derivatives


@st.composite
def batches(draw_from):
    """Logits in quarters, so that they tie often."""
    rows, classes = draw_from(st.integers(1, 6)), draw_from(st.integers(3, 6))
    quarters = draw_from(
        st.lists(st.integers(-40, 40), min_size=rows * classes, max_size=rows * classes)
    )
    labels = draw_from(st.lists(st.integers(0, classes - 1), min_size=2 * rows, max_size=2 * rows))
    logits = torch.tensor(quarters, dtype=torch.float64).view(rows, classes) / 4
    return logits, *torch.tensor(labels).view(2, rows)


@each
@given(batch=batches())
@settings(max_examples=40)
def test_twin(case, batch):
    function, options = CASES[case]
    twin = getattr(reference_losses, function.__name__)
    expected = twin(*(a.tolist() for a in arguments(function, batch)), **options)
    assert value(case, batch).item() == pytest.approx(expected, abs=1e-7, rel=1e-9)


@each_but({losses.acls})
@pytest.mark.parametrize("seed", range(3))
def test_derivative(case, seed):
    """By differences; ACLS stops a gradient and has its own test."""
    logits, labels, partners = draw(seed=seed)
    torch.autograd.gradcheck(lambda s: value(case, (s, labels, partners)), logits.requires_grad_())


@pytest.mark.parametrize("seed", range(3))
def test_derivative_of_acls_holds_the_maximum(seed):
    batch, options, step = draw(seed=seed), CASES["acls"][1], 1e-6
    rows, labels = batch[0].tolist(), batch[1].tolist()
    frozen = [max(row) for row in rows]
    gradient = with_gradient("acls", batch)[1].tolist()
    for i, row in enumerate(rows):
        for k in range(len(row)):
            up, down = (
                reference_losses.acls(
                    [*rows[:i], [*row[:k], row[k] + h, *row[k + 1 :]], *rows[i + 1 :]],
                    labels,
                    **options,
                    frozen=frozen,
                )
                for h in (step, -step)
            )
            assert gradient[i][k] == pytest.approx((up - down) / (2 * step), abs=1e-7)


# Limits and symmetries

LIMITS = {
    "label_smoothing, alpha 0": lambda s, y: losses.label_smoothing(s, y, alpha=0.0),
    "mbls, alpha 0": lambda s, y: losses.mbls(s, y, margin=0.0, alpha=0.0),
    "mbls, margin": lambda s, y: losses.mbls(s, y, margin=1e3),
    "acls, alpha 0": lambda s, y: losses.acls(s, y, margin=0.0, alpha=0.0),
    "acls, margin": lambda s, y: losses.acls(s, y, margin=1e3),
    "focal, gamma 0": lambda s, y: losses.focal(s, y, gamma=0.0),
    "flsd, gamma 0": lambda s, y: losses.flsd(s, y, gammas=(0.0, 0.0, 0.0)),
    "dual_focal, gamma 0": lambda s, y: losses.dual_focal(s, y, gamma=0.0),
    "cpc, weights 0": lambda s, y: losses.cpc(s, y, discrimination=0.0, exclusion=0.0),
    "mmce, weight 0": lambda s, y: losses.mmce(s, y, weight=0.0),
    "mixed, share 1": lambda s, y: losses.mixed_cross_entropy(s, y, y.flip(0), share=1.0),
    "mixed, own partner": lambda s, y: losses.mixed_cross_entropy(s, y, y, share=0.3),
    "mit_l, no mixing": lambda s, y: losses.mit_l(s, s, y, y, l1=1.0, l2=0.0),
    "torch": F.cross_entropy,
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limit_is_cross_entropy(limit):
    logits, labels, _ = draw()
    s = logits.requires_grad_()
    expected, actual = losses.cross_entropy(s, labels), LIMITS[limit](s, labels)
    assert torch.allclose(actual, expected, atol=1e-12)
    assert torch.allclose(
        torch.autograd.grad(actual, s)[0], torch.autograd.grad(expected, s)[0], atol=1e-12
    )


def test_other_limits():
    logits, labels, _ = draw()
    smoothed = F.cross_entropy(logits, labels, label_smoothing=0.07)
    assert torch.allclose(losses.label_smoothing(logits, labels, 0.07), smoothed)
    assert torch.allclose(
        losses.flsd(logits, labels, (2.0, 2.0, 2.0)), losses.focal(logits, labels, 2.0)
    )
    zeros = torch.zeros(4, 3)
    assert losses.standard_normal_kl(zeros, zeros) == 0
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(logits, 0.5), torch.distributions.Normal(0.0, 1.0)
    )
    variance = torch.full_like(logits, 0.25)
    assert torch.allclose(losses.standard_normal_kl(logits, variance.log()), kl.mean())


@each
def test_sum_is_mean_times_rows(case):
    batch = draw(rows=7)
    total, gradient = with_gradient(case, batch, reduction="sum")
    mean, slope = with_gradient(case, batch, reduction="mean")
    assert torch.allclose(total, 7 * mean)
    assert torch.allclose(gradient, 7 * slope)


@each
def test_adding_a_constant_to_a_row(case):
    logits, labels, partners = draw()
    moved = logits + torch.arange(1.0, 7.0, dtype=torch.float64)[:, None]
    same = torch.allclose(
        value(case, (logits, labels, partners)), value(case, (moved, labels, partners))
    )
    assert same == (CASES[case][0] not in NOT_SHIFT_INVARIANT)


@each
def test_order_of_rows(case):
    batch, order = draw(), torch.tensor([3, 0, 5, 1, 4, 2])
    before, gradient = with_gradient(case, batch)
    after, moved = with_gradient(case, tuple(part[order] for part in batch))
    assert torch.allclose(after, before)
    assert torch.allclose(moved, gradient[order])


@each
def test_names_of_classes(case):
    """Column k becomes column new[k]."""
    (logits, labels, partners), new = draw(), torch.tensor([2, 4, 1, 0, 3])
    before, gradient = with_gradient(case, (logits, labels, partners))
    after, moved = with_gradient(case, (logits[:, new.argsort()], new[labels], new[partners]))
    assert torch.allclose(after, before)
    assert torch.allclose(moved[:, new], gradient)


@each
def test_ties_share_the_gradient(case):
    """Classes that no number tells apart get the same gradient."""
    logits = torch.tensor([[1.0, 3.0, 3.0, 0.5], [2.0, 0.0, 0.0, 2.0]], dtype=torch.float64)
    labels = torch.tensor([3, 3])
    _, gradient = with_gradient(case, (logits, labels, labels))
    assert gradient[0, 1].item() == pytest.approx(gradient[0, 2].item(), abs=1e-12)
    assert gradient[1, 1].item() == pytest.approx(gradient[1, 2].item(), abs=1e-12)


# Sizes and extremes


def extremes(classes, dtype):
    """Sure and right, sure and wrong, all equal, half and half, random signs; and a tame row."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.zeros(8, classes)
    logits[0, 0], logits[1, 1], logits[2], logits[3] = 1e4, 1e4, 1e4, -1e4
    logits[4, : classes // 2] = 1e4
    logits[5:7] = 1e4 * torch.randint(-1, 2, (2, classes), generator=generator)
    logits[7] = torch.randn(classes, generator=generator)
    labels = torch.tensor([0, 0, 0, 0, 0, 0, classes - 1, 1])
    return logits.to(dtype), labels, labels.flip(0)


@each
@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_extreme_logits(case, classes, dtype):
    batch = extremes(max(classes, 3) if CASES[case][0] in THREE_CLASSES else classes, dtype)
    for rows in (slice(None), slice(0, 1), slice(1, 2), slice(2, 4)):
        result, gradient = with_gradient(case, tuple(part[rows] for part in batch))
        assert result.dtype == torch.float32
        assert gradient.dtype == dtype
        assert result.isfinite()
        assert gradient.isfinite().all()


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(case, dtype):
    logits, labels, partners = draw(dtype=torch.float32)
    half = logits.to(dtype)
    assert value(case, (half, labels, partners)) == value(case, (half.float(), labels, partners))


@each
@pytest.mark.parametrize(("rows", "classes"), [(1, 3), (1, 1000), (9, 2), (3, 1000)])
def test_twin_at_other_sizes(case, rows, classes):
    """Batches of one, two classes, a thousand; most classes are missing from the labels."""
    function, options = CASES[case]
    if function in THREE_CLASSES:
        classes = min(max(classes, 3), 60)  # its twin is slow
    batch = draw(rows, classes)
    twin = getattr(reference_losses, function.__name__)
    assert value(case, batch).item() == pytest.approx(
        twin(*(a.tolist() for a in arguments(function, batch)), **options), rel=1e-7
    )
    assert with_gradient(case, batch)[1].isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, 0.01, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("loss", [losses.focal, losses.dual_focal])
def test_certainty_costs_nothing(loss, gamma):
    s = torch.tensor([[200.0, 0.0, -5.0]], requires_grad=True)
    result = loss(s, torch.tensor([0]), gamma)
    result.backward()
    assert result == 0
    assert torch.equal(s.grad, torch.zeros(1, 3))


@pytest.mark.parametrize("form", ["weighted", "as coded"])
@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("right", [True, False])
def test_kernel_of_one_kind_of_rows(form, rows, right):
    logits = draw(rows)[0].requires_grad_()
    labels = (logits.argmax(1) + (not right)) % 5
    result = losses.kernel_calibration_error(logits, labels, form)
    result.backward()
    assert result == 0
    assert torch.equal(logits.grad, torch.zeros(rows, 5, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("right", [3, 28, 32, 55, 63])
def test_kernel_at_its_zero(dtype, right):
    """All rows at one half, some of them right.

    The square under the root is 0, in float32 a little above or below.
    """
    logits = torch.zeros(64, 2, dtype=dtype, requires_grad=True)
    result = losses.kernel_calibration_error(logits, (torch.arange(64) >= right).long())
    result.backward()
    assert result.item() == pytest.approx(1e-5, abs=1e-3 if dtype == torch.float32 else 1e-7)
    assert logits.grad.isfinite().all()


def test_kernel_of_one_row():
    logits = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    confidence = logits.softmax(1).max().item()
    for label, gap in ((1, 1 - confidence), (0, confidence)):
        result = losses.kernel_calibration_error(logits, torch.tensor([label]), "unweighted")
        assert result.item() == pytest.approx(gap**2)


@pytest.mark.parametrize("loss", [losses.cpc, losses.binary_exclusion])
@pytest.mark.parametrize("classes", [1, 2])
def test_cpc_needs_three_classes(loss, classes):
    with pytest.raises(
        ValueError, match=f"at least 3 classes, here are {classes}: it divides by K - 2"
    ):
        loss(torch.zeros(4, classes), torch.zeros(4, dtype=torch.int64))


@each_but(ANY_LABELS)
@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [0, 1, 2, 3, 0, 1, 2], [-100] * 6, [0, 1, 2, 3, 4, 5]]
)
def test_wrong_labels_raise(case, labels):
    """Too few, too many, the label that torch would skip, one class too many."""
    logits, _, partners = draw()
    with pytest.raises((ValueError, IndexError, RuntimeError)):
        value(case, (logits, torch.tensor(labels), partners))


@each
def test_unknown_options_raise(case):
    with pytest.raises(ValueError, match="no reduction 'median'; they are mean, sum, none"):
        value(case, draw(), reduction="median")


# Memory


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return result


def test_memory_of_cpc():
    """128 million pairs.

    No tensor larger than a block, and what waits for the backward pass is a few times the logits.
    """
    logits, labels, _ = draw(128, 1000, dtype=torch.float32)
    logits.requires_grad_()
    saved = []
    with (
        Largest() as largest,
        torch.autograd.graph.saved_tensors_hooks(
            lambda t: saved.append(t.numel()) or t, lambda t: t
        ),
    ):
        losses.cpc(logits, labels).backward()
    assert largest.numbers <= pairs.BLOCK
    assert sum(saved) < 20 * logits.numel()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("block", [1, 40, 100])
def test_blocks_change_nothing(monkeypatch, block):
    batch = draw()
    whole, gradient = with_gradient("cpc", batch)
    monkeypatch.setattr(pairs, "BLOCK", block)
    parts, same = with_gradient("cpc", batch)
    assert torch.allclose(parts, whole, atol=1e-14)
    assert torch.allclose(same, gradient, atol=1e-14)


# Mixes


@pytest.mark.parametrize(
    ("l1", "l2"), [(0.8, 0.3), (1.0, 0.0), (0.5, 0.49), (0.51, 0.0), (0.3, 0.9)]
)
@pytest.mark.parametrize("shape", [(7, 12), (7, 3, 4), (7, 3, 2, 2)])
def test_decoupling_an_affine_map(l1, l2, shape):
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    weight, bias = (
        torch.randn(shape[-1], 5, generator=generator, dtype=torch.float64),
        torch.randn(5, dtype=torch.float64),
    )
    o1, o2 = ((share * a + (1 - share) * b) @ weight + bias for share in (l1, l2))
    o_a, o_b = losses.decouple(o1, o2, l1, l2)
    assert torch.allclose(o_a, a @ weight + bias, rtol=0, atol=1e-10)
    assert torch.allclose(o_b, b @ weight + bias, rtol=0, atol=1e-10)


def test_decoupling_needs_two_mixes():
    with pytest.raises(ValueError, match=r"same share 0\.5"):
        losses.decouple(torch.zeros(2), torch.zeros(2), 0.5, 0.5)


def test_mixed_cross_entropy_is_soft_labels():
    logits, labels, partners = draw()
    soft = 0.3 * F.one_hot(labels, 5) + 0.7 * F.one_hot(partners, 5)
    assert torch.allclose(
        losses.mixed_cross_entropy(logits, labels, partners, 0.3),
        F.cross_entropy(logits, soft.double()),
    )
