"""What torch's cross-entropy takes, every loss takes or refuses: reduction="none", class weights,
ignore_index, and more than two dimensions.
"""

import pytest
import torch
import torch.nn.functional as F
from test_losses import CASES, THREE_CLASSES, arguments, draw, value

from maccal.methods.registry import losses

OF_A_BATCH = {losses.mmce, losses.kernel_calibration_error}
WITHOUT_LABELS = {losses.standard_normal_kl}
OF_ROWS = [case for case, (loss, _) in CASES.items() if loss not in {*OF_A_BATCH, *WITHOUT_LABELS}]
of_rows = pytest.mark.parametrize("case", OF_ROWS)
of_a_batch = pytest.mark.parametrize(
    "case", [case for case, (loss, _) in CASES.items() if loss in OF_A_BATCH]
)
# more than one class of a row is weighted, as in torch
SEVERAL_CLASSES = ("label_smoothing", "mixed_cross_entropy", "mit_l")
WEIGHTS = torch.tensor([1.0, 0.5, 2.0, 3.0, 0.25], dtype=torch.float64)

# settings with which a loss is cross-entropy
LIMITS = {
    "cross_entropy": (losses.cross_entropy, {}),
    "label_smoothing": (losses.label_smoothing, {"alpha": 0.0}),
    "mbls": (losses.mbls, {"alpha": 0.0}),
    "acls": (losses.acls, {"alpha": 0.0}),
    "focal": (losses.focal, {"gamma": 0.0}),
    "flsd": (losses.flsd, {"gammas": (0.0, 0.0, 0.0)}),
    "dual_focal": (losses.dual_focal, {"gamma": 0.0}),
    "cpc": (losses.cpc, {"discrimination": 0.0, "exclusion": 0.0}),
}


def pixels(seed=0):
    """Logits of 2 x 5 classes x 3 x 4 places, labels and partners."""
    logits, labels, partners = draw(24, 5, seed)
    images = logits.view(2, 3, 4, 5).movedim(-1, 1)
    return images, labels.view(2, 3, 4), partners.view(2, 3, 4)


# Against torch


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, -100, 2])
@pytest.mark.parametrize("limit", LIMITS)
def test_cross_entropy_of_torch_where_a_loss_is_one(limit, reduction, weighted, ignored):
    function, settings = LIMITS[limit]
    weights = WEIGHTS if weighted else None
    for logits, labels, _ in (draw(), pixels()):
        labels = labels.clone()
        labels.view(-1)[1] = labels.view(-1)[1] if ignored is None else ignored
        logits = logits.clone().requires_grad_()
        options = {"reduction": reduction, "class_weights": weights, "ignore_index": ignored}
        ours = function(logits, labels, **settings, **options)
        theirs = F.cross_entropy(
            logits,
            labels,
            weight=weights,
            reduction=reduction,
            ignore_index=-100 if ignored is None else ignored,
        )
        torch.testing.assert_close(ours, theirs)
        slopes = [torch.autograd.grad(loss.sum(), logits)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_label_smoothing_of_torch(reduction, ignored):
    for logits, labels, _ in (draw(), pixels()):
        ours = losses.label_smoothing(
            logits, labels, 0.3, reduction, class_weights=WEIGHTS, ignore_index=ignored
        )
        theirs = F.cross_entropy(
            logits,
            labels,
            weight=WEIGHTS,
            reduction=reduction,
            ignore_index=ignored,
            label_smoothing=0.3,
        )
        torch.testing.assert_close(ours, theirs)


def test_mixed_labels_of_torch():
    """torch divides soft labels by the number of rows, so the sums are compared."""
    logits, labels, partners = draw()
    soft = 0.3 * F.one_hot(labels, 5) + 0.7 * F.one_hot(partners, 5)
    ours = losses.mixed_cross_entropy(
        logits, labels, partners, 0.3, reduction="sum", class_weights=WEIGHTS
    )
    theirs = F.cross_entropy(logits, soft.double(), weight=WEIGHTS, reduction="sum")
    torch.testing.assert_close(ours, theirs)


def test_nothing_mixed_is_the_weighted_mean():
    logits, labels, partners = draw()
    options = {"class_weights": WEIGHTS, "ignore_index": 2}
    ours = losses.mixed_cross_entropy(logits, labels, partners, 1.0, **options)
    torch.testing.assert_close(ours, losses.cross_entropy(logits, labels, **options))


# Of every loss of rows


@of_rows
def test_one_loss_per_row(case):
    batch = draw()
    rows = value(case, batch, reduction="none")
    assert rows.shape == (6,)
    torch.testing.assert_close(rows.mean(), value(case, batch))
    for i in range(6):
        alone = tuple(part[i : i + 1] for part in batch)
        torch.testing.assert_close(rows[i], value(case, alone))


@of_rows
@pytest.mark.parametrize("weighted", [False, True])
def test_places_are_rows(case, weighted):
    """The same numbers as for the N x K of all places."""
    images = pixels()
    flat = (images[0].movedim(1, -1).flatten(0, -2), images[1].flatten(), images[2].flatten())
    options = {"class_weights": WEIGHTS if weighted else None, "ignore_index": 3}
    rows = value(case, images, reduction="none", **options)
    assert rows.shape == (2, 3, 4)
    torch.testing.assert_close(rows.flatten(), value(case, flat, reduction="none", **options))
    for reduction in ("mean", "sum"):
        torch.testing.assert_close(
            value(case, images, reduction=reduction, **options),
            value(case, flat, reduction=reduction, **options),
        )


@of_rows
def test_ignored_rows_are_as_if_absent(case):
    logits, labels, _ = draw()
    partners = labels.clone()
    labels[1] = partners[1] = labels[4] = partners[4] = 7
    seen = labels != 7
    kept = (logits[seen], labels[seen], partners[seen])
    for reduction in ("mean", "sum"):
        torch.testing.assert_close(
            value(case, (logits, labels, partners), reduction=reduction, ignore_index=7),
            value(case, kept, reduction=reduction),
        )
    rows = value(case, (logits, labels, partners), reduction="none", ignore_index=7)
    assert torch.equal(rows[~seen], torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize("case", [case for case in OF_ROWS if case not in SEVERAL_CLASSES])
def test_a_weight_of_two_is_a_row_twice(case):
    logits, labels, partners = draw()
    weights = torch.ones(5, dtype=torch.float64)
    weights[labels[0]] = 2.0
    twice = torch.cat([torch.arange(6), torch.nonzero(labels == labels[0])[:, 0]])
    again = (logits[twice], labels[twice], partners[twice])
    for reduction in ("mean", "sum"):
        torch.testing.assert_close(
            value(case, (logits, labels, partners), reduction=reduction, class_weights=weights),
            value(case, again, reduction=reduction),
        )


@of_rows
def test_half_precision_with_all_options(case):
    logits, labels, partners = draw(dtype=torch.float32)
    options = {"class_weights": WEIGHTS, "ignore_index": 3, "reduction": "none"}
    rows = value(case, (logits.bfloat16(), labels, partners), **options)
    assert rows.dtype == torch.float32
    assert rows.isfinite().all()


@of_rows
def test_shapes_that_do_not_fit_are_refused(case):
    logits, labels, partners = draw()
    with pytest.raises(ValueError, match=r"class_weights have the shape \(3,\); .* 5 classes"):
        value(case, (logits, labels, partners), class_weights=torch.ones(3))
    with pytest.raises(ValueError, match=r"expected one class index per row, \(6,\)"):
        value(case, (logits, F.one_hot(labels, 5), partners))
    with pytest.raises(ValueError, match="expected class indices, int64"):
        value(case, (logits, labels.double(), partners))
    with pytest.raises(ValueError, match="expected N x K, or"):
        value(case, (logits[0], labels[0], partners[0]))


def test_all_ignored_is_nan_as_in_torch():
    logits, labels, _ = draw()
    ignored = torch.full_like(labels, -1)
    assert losses.focal(logits, ignored, ignore_index=-1).isnan()
    assert F.cross_entropy(logits, ignored, ignore_index=-1).isnan()
    assert losses.focal(logits, ignored, reduction="sum", ignore_index=-1) == 0


def test_an_infinite_loss_of_an_ignored_row_is_not_seen():
    logits = torch.tensor([[0.0, -torch.inf], [1.0, 0.0]])
    labels = torch.tensor([1, 0])
    found = losses.cross_entropy(logits, torch.tensor([9, 0]), ignore_index=9)
    assert losses.cross_entropy(logits, labels).isinf()
    torch.testing.assert_close(found, losses.cross_entropy(logits[1:], labels[1:]))


def test_shares_of_their_own_for_every_image():
    """One share per image, not per place."""
    images, labels, partners = pixels()
    shares = torch.tensor([0.2, 0.9], dtype=torch.float64)
    for i, share in enumerate(shares.tolist()):
        whole = losses.mixed_cross_entropy(images, labels, partners, shares, "none")[i]
        alone = losses.mixed_cross_entropy(
            images[i : i + 1], labels[i : i + 1], partners[i : i + 1], share
        )
        torch.testing.assert_close(whole.mean(), alone)


# Of a batch


@of_a_batch
def test_a_batch_has_no_value_per_row(case):
    batch = draw()
    with pytest.raises(ValueError, match="no value per row; pass reduction='mean'"):
        value(case, batch, reduction="none")
    with pytest.raises(ValueError, match="no class weights"):
        value(case, batch, class_weights=WEIGHTS)
    with pytest.raises(ValueError, match=r"logits have the shape \(2, 5, 3, 4\)"):
        value(case, pixels())
    with pytest.raises(ValueError, match="one class index per row"):
        value(case, (batch[0], batch[1][:3], batch[2]))


@of_a_batch
def test_a_batch_without_its_ignored_rows(case):
    logits, labels, _ = draw()
    labels[1] = 7
    seen = labels != 7
    found = value(case, (logits, labels, labels), ignore_index=7)
    torch.testing.assert_close(found, value(case, (logits[seen], labels[seen], labels[seen])))


def test_latent_rows_one_by_one():
    mean, log_variance = arguments(losses.standard_normal_kl, draw())
    rows = losses.standard_normal_kl(mean, log_variance, reduction="none")
    assert rows.shape == (6,)
    torch.testing.assert_close(rows.mean(), losses.standard_normal_kl(mean, log_variance))


def test_three_classes_are_still_asked_for():
    assert losses.cpc in THREE_CLASSES
    with pytest.raises(ValueError, match="at least 3 classes"):
        losses.cpc(torch.zeros(4, 2, 3), torch.zeros(4, 3, dtype=torch.int64), reduction="none")


def test_class_weights_may_be_a_list_or_an_array():
    logits, labels, _ = draw()
    expected = losses.focal(logits, labels, class_weights=WEIGHTS)
    for weights in (WEIGHTS.tolist(), WEIGHTS.numpy()):
        assert losses.focal(logits, labels, class_weights=weights) == expected


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int32, torch.float32])
@pytest.mark.parametrize("loss", [losses.focal, losses.mmce, losses.kernel_calibration_error])
def test_labels_of_another_type_are_refused(loss, dtype):
    logits, labels, _ = draw()
    with pytest.raises(ValueError, match="expected class indices, int64"):
        loss(logits, labels.to(dtype))


@pytest.mark.parametrize("label", [-100, 5])
def test_mmce_does_not_count_a_label_that_is_no_class_as_wrong(label):
    logits, labels, _ = draw()
    labels = labels.clone()
    labels[0] = label
    with pytest.raises(IndexError, match="out of bounds"):
        losses.kernel_calibration_error(logits, labels)


NONSENSE = {
    "label_smoothing alpha": (losses.label_smoothing, {"alpha": 1.5}, "alpha is 1.5; .* 0 to 1"),
    "label_smoothing nan": (losses.label_smoothing, {"alpha": float("nan")}, "alpha is nan"),
    "mbls alpha": (losses.mbls, {"alpha": -1}, "alpha is -1; expected a number from 0"),
    "mbls margin": (losses.mbls, {"margin": "none"}, "margin is 'none'; expected a number"),
    "acls rest": (losses.acls, {"rest": -0.1}, "rest is -0.1"),
    "focal gamma": (losses.focal, {"gamma": -1}, "gamma is -1"),
    "flsd gammas": (losses.flsd, {"gammas": (5, 3)}, "expected three numbers"),
    "flsd nan": (losses.flsd, {"gammas": (5, 3, float("nan"))}, "each of gammas is nan"),
    "dual_focal gamma": (losses.dual_focal, {"gamma": None}, "gamma is None"),
    "cpc exclusion": (losses.cpc, {"exclusion": -2}, "exclusion is -2"),
    "mmce weight": (losses.mmce, {"weight": float("inf")}, "weight is inf"),
    "mmce form": (losses.mmce, {"form": "root"}, "form is 'root'; choose one of weighted"),
    "class weights": (losses.focal, {"class_weights": [1, 1, -1, 1, 1]}, "class 2 is -1"),
    "weights of nan": (
        losses.cross_entropy,
        {"class_weights": torch.full((5,), torch.nan)},
        "the class weight of class 0 is nan",
    ),
}


@pytest.mark.parametrize(("loss", "settings", "message"), NONSENSE.values(), ids=NONSENSE)
def test_settings_that_mean_nothing_are_refused(loss, settings, message):
    logits, labels, _ = draw()
    with pytest.raises(ValueError, match=message):
        loss(logits, labels, **settings)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half"])
def test_a_share_is_from_0_to_1(share):
    logits, labels, partners = draw()
    with pytest.raises(ValueError, match=r"a share is .*; expected a number from 0 to 1"):
        losses.mixed_cross_entropy(logits, labels, partners, share)


@pytest.mark.parametrize("loss", [losses.cross_entropy, losses.focal, losses.mmce])
def test_logits_that_are_whole_numbers_are_refused(loss):
    logits, labels, _ = draw()
    with pytest.raises(ValueError, match="expected floating point"):
        loss(logits.long(), labels)
