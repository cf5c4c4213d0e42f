"""The convex fits reach their optimum: the slope vanishes, and no other solver finds less."""

import numpy as np
import pytest
import torch
from made_up_predictions import made_up
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from maccal.calibration.posthoc import curvature, logistic, nearby
from maccal.calibration.posthoc.dirichlet import DirichletCalibration, log_shares, odir
from maccal.calibration.posthoc.structured import (
    StructuredMatrixScaling,
    StructuredVectorScaling,
    mixed_logs,
    penalties,
)
from maccal.calibration.posthoc.vector import VectorScaling
from maccal.metrics import nll

LOGITS, LABELS = made_up()


def objective(kind, x, labels, penalty):
    """The same value in plain operations, by autograd; theta as a flat array."""
    centre = nearby.identity(kind, x.shape[1])

    def value(flat):
        theta = torch.tensor(flat, requires_grad=True)
        full = theta.view_as(centre)
        out = x * full[0] + full[1] if kind == "vector" else x @ full[:, :-1].T + full[:, -1]
        loss = torch.nn.functional.cross_entropy(out, labels)
        loss = loss + (penalty * (full - centre) ** 2).sum()
        loss.backward()
        return float(loss.detach()), theta.grad.numpy()

    return value


def problems():
    x = torch.tensor(LOGITS).log_softmax(1)
    labels = torch.tensor(LABELS)
    for kind in ("vector", "matrix"):
        shape = nearby.identity(kind, 4)
        for cost in (0.0, 1e-3, 1.0):
            yield kind, x, labels, torch.full_like(shape, cost)


@pytest.mark.parametrize("problem", list(problems()))
def test_value_slope_and_optimum(problem):
    kind, x, labels, penalty = problem
    value = objective(*problem)
    centre = nearby.identity(kind, 4)
    ours = nearby.problem_of(kind, x, labels, centre, penalty)
    theta = centre + torch.randn(centre.shape, generator=torch.manual_seed(0), dtype=x.dtype)
    found, slope = nearby.value_and_slope(ours, theta)
    expected, expected_slope = value(theta.numpy().ravel())
    assert found == pytest.approx(expected, rel=1e-13)
    assert np.allclose(slope.numpy().ravel(), expected_slope, atol=1e-13)
    best = logistic.optimum(ours).numpy().ravel()
    least, flat = value(best)
    assert np.abs(flat).max() < 2e-9
    searched = minimize(value, best, jac=True, method="BFGS", options={"gtol": 1e-12})
    assert least <= searched.fun + 1e-14


@pytest.mark.parametrize("classes", [10, 30, 210])
def test_every_kind_of_second_derivatives(classes):
    """All of them (10 classes), class by class (30), in few directions (210): the same optimum."""
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (1000,), generator=rng)
    x = torch.randn(1000, classes, generator=rng, dtype=torch.float64)
    x[torch.arange(1000), labels] += 2
    x = x.log_softmax(1)
    centre = nearby.identity("matrix", classes)
    penalty = penalties("matrix", classes, 1000, 1.0)
    problem = nearby.problem_of("matrix", x, labels, centre, penalty)
    theta = logistic.optimum(problem)
    assert float(nearby.value_and_slope(problem, theta)[1].abs().max()) < 1e-9
    assert np.abs(objective("matrix", x, labels, penalty)(theta.numpy().ravel())[1]).max() < 2e-9


def large(rows=1500, classes=30, seed=0):
    """A matrix problem that is solved by differences."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (rows,), generator=rng)
    x = 2 * torch.randn(rows, classes, generator=rng, dtype=torch.float64)
    x[torch.arange(rows), labels] += 3
    centre = nearby.identity("matrix", classes)
    penalty = penalties("matrix", classes, rows, 1.0)
    return nearby.problem_of("matrix", x.log_softmax(1), labels, centre, penalty)


def scores_of(problem):
    return [x.float() for x, _ in problem.parts]


@pytest.mark.parametrize("far", [1e-6, 1e-3, 0.1])
def test_differences_are_as_good_as_they_are_small(far):
    """Value and slope near a theta: off by a millionth of how far they have changed."""
    problem = large()
    rng = torch.Generator().manual_seed(1)
    start = problem.centre + 0.01 * torch.randn(problem.centre.shape, generator=rng)
    theta = start + far * torch.randn(start.shape, generator=rng, dtype=torch.float64)
    here = nearby.nearby(problem, start, scores_of(problem))
    value, slope = here.look(theta)
    expected, expected_slope = nearby.value_and_slope(problem, theta)
    change = expected_slope - here.slope
    assert float((slope - expected_slope).abs().max()) < 1e-6 * float(change.abs().max())
    assert value == pytest.approx(expected, abs=1e-6 * abs(expected - here.value) + 1e-14)


def test_too_far_is_infinitely_bad():
    """A step beyond what float32 can follow is refused, and the search makes a shorter one."""
    problem = large()
    here = nearby.nearby(problem, problem.centre, scores_of(problem))
    assert here.look(problem.centre - 1e3)[0] == np.inf
    assert here.look(problem.centre - 1e-3)[0] < np.inf


@pytest.mark.parametrize("classes", [30, 210])
def test_second_derivatives_of_large_matrices(classes):
    """They divide a slope into a step that nearly ends the search, unlike the slope itself."""
    problem = large(2 * classes, classes)
    theta = logistic.optimum(problem)
    rng = torch.Generator().manual_seed(1)
    away = 1e-4 * torch.randn(theta.shape, generator=rng, dtype=torch.float64)
    _, slope = nearby.value_and_slope(problem, theta + away)
    x = torch.cat(scores_of(problem), 1)
    step = curvature.curvature("matrix", theta, x, problem.penalty)(slope)
    left = (away - step).norm() / away.norm()
    assert float(left) < 0.7


@pytest.mark.parametrize("kind", ["vector", "matrix"])
def test_second_derivatives(kind):
    """Against the slope, numerically."""
    x = torch.tensor(LOGITS[:50]).log_softmax(1).T.contiguous()
    centre = nearby.identity(kind, 4)
    nothing = torch.zeros_like(centre)
    problem = nearby.Problem(kind, [(x, torch.tensor(LABELS[:50]))], 50, centre, nothing)
    p, _ = nearby.probabilities(nearby.mapped(kind, centre, x))
    known = curvature.vector_curvature if kind == "vector" else curvature.matrix_curvature
    second = known(p, x) / 50
    for index in range(centre.numel()):
        nudge = torch.zeros(centre.numel(), dtype=torch.float64)
        nudge[index] = 1e-5
        nudge = nudge.view_as(centre)
        up = nearby.value_and_slope(problem, centre + nudge)[1]
        down = nearby.value_and_slope(problem, centre - nudge)[1]
        assert torch.allclose(second[index], (up - down).flatten() / 2e-5, atol=1e-8)


def test_the_sample_does_not_matter(monkeypatch):
    x, y = (torch.tensor(part) for part in made_up(9000, 3))
    centre = nearby.identity("matrix", 3)
    problem = nearby.problem_of("matrix", x, y, centre, torch.full_like(centre, 1e-4))
    found = logistic.optimum(problem)
    monkeypatch.setattr(logistic, "SAMPLE", 100_000)
    assert torch.allclose(found, logistic.optimum(problem), atol=1e-7)


def test_dirichlet_without_regularisation_is_logistic_regression():
    model = DirichletCalibration(off_diagonal=0.0, intercept=0.0).fit(LOGITS, LABELS)
    logs = log_shares(torch.tensor(LOGITS), "logits").numpy()
    free = LogisticRegression(C=np.inf, tol=1e-12, max_iter=10_000).fit(logs, LABELS)
    assert np.allclose(model.predict_proba(LOGITS), free.predict_proba(logs), atol=1e-5)


def test_dirichlet_strengths():
    """The formula: off-diagonal and intercept have means, the diagonal is free."""
    held = odir(4, 12.0, 8.0)
    assert held[0].tolist() == [0.0, 1.0, 1.0, 1.0, 2.0]
    model = DirichletCalibration(off_diagonal=1e9).fit(LOGITS, LABELS)
    assert np.abs(model.weight_ - np.diag(np.diag(model.weight_))).max() < 1e-6
    assert np.abs(model.bias_).max() < 1e-6
    chosen = DirichletCalibration().fit(LOGITS, LABELS)
    assert chosen.off_diagonal_ / 12 == pytest.approx(chosen.intercept_ / 4)
    with pytest.raises(ValueError, match="off_diagonal is -1"):
        DirichletCalibration(off_diagonal=-1.0).fit(LOGITS, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0, 1e4])
@pytest.mark.parametrize("row", [StructuredMatrixScaling, DirichletCalibration])
def test_large_matrices_of_odd_sizes_of_logits(row, size):
    """Almost flat, or so sure that most probabilities are 0 in float32; a class that never is."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(300) % 30)
    logits = rng.normal(size=(300, 30)) + 3 * np.eye(30)[labels]
    logits[:, 29] -= 5
    model = row() if row is StructuredMatrixScaling else row(off_diagonal=30 * 29.0)
    found = model.fit(size * logits, labels).predict_proba(size * logits)
    assert np.isfinite(found).all()
    assert np.allclose(found.sum(1), 1)


@pytest.mark.slow
def test_dirichlet_with_more_numbers_than_rows():
    """Weak holds would tell the rows apart; the path from the hardest hold on stops before."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(1600) % 50)
    logits = 2 * rng.normal(size=(1600, 50)) + 3 * np.eye(50)[labels]
    model = DirichletCalibration().fit(logits[:800], labels[:800])
    assert model.off_diagonal_ >= 0.01 * 50 * 49
    held_out = model.predict_proba(logits[800:])[np.arange(800), labels[800:]]
    plain = torch.tensor(logits[800:]).softmax(1).numpy()[np.arange(800), labels[800:]]
    assert -np.log(held_out).mean() < -np.log(plain).mean()


@pytest.mark.parametrize("row", [StructuredVectorScaling, StructuredMatrixScaling])
def test_structured_limits(row):
    """Held hard: the temperature, but for the share of a uniform guess. Held weakly: free."""
    hard = row(strength=1e9).fit(LOGITS, LABELS)
    scaled = mixed_logs(torch.tensor(LOGITS), hard.temperature_, len(LOGITS)).exp().numpy()
    assert np.allclose(hard.predict_proba(LOGITS), scaled, atol=1e-6)
    losses = []
    for strength in (1e3, 1.0, 1e-3):
        p = row(strength=strength).fit(LOGITS, LABELS).predict_proba(LOGITS)
        losses.append(-np.log(p[np.arange(len(p)), LABELS]).mean())
    assert losses[0] > losses[1] > losses[2]
    with pytest.raises(ValueError, match="strength is 0"):
        row(strength=0).fit(LOGITS, LABELS)


def test_structured_penalties():
    """K / N for diagonal and bias, K (K - 1) / N beside the diagonal."""
    assert penalties("matrix", 4, 100, 1.0)[0].tolist() == [0.04, 0.12, 0.12, 0.12, 0.04]
    assert penalties("vector", 4, 100, 0.5).tolist() == [[0.02] * 4] * 2


def test_no_best_vector():
    with pytest.raises(ValueError, match="no row has the label 3"):
        VectorScaling().fit(LOGITS[LABELS < 3], LABELS[LABELS < 3])
    with pytest.raises(ValueError, match="every label has the largest logit"):
        VectorScaling().fit(LOGITS, LOGITS.argmax(1))
    with pytest.raises(ValueError, match="no row has a mistake"):
        VectorScaling().fit(LOGITS + 100 * np.eye(4)[LABELS], LABELS)
    with pytest.raises(ValueError, match="all labels are 1; fit on rows of several classes"):
        VectorScaling().fit(LOGITS, np.ones(len(LOGITS), int))


def test_a_vector_where_no_temperature_helps():
    """Reversed, far from 0 or hidden behind a bias: the same fit, although T runs away."""
    best = value_of_vector(LOGITS, LABELS)
    assert value_of_vector(-LOGITS, LABELS) == pytest.approx(best, abs=1e-9)
    assert value_of_vector(LOGITS + 1e6, LABELS) == pytest.approx(best, abs=1e-9)
    assert value_of_vector(LOGITS + 60 * np.eye(4)[0], LABELS) == pytest.approx(best, abs=1e-9)
    # scores that tell nothing leave the shares of the classes
    shares = np.bincount(LABELS) / len(LABELS)
    assert value_of_vector(np.zeros_like(LOGITS), LABELS) == pytest.approx(
        -(shares * np.log(shares)).sum(), abs=1e-9
    )


def value_of_vector(logits, labels):
    return nll(VectorScaling().fit(logits, labels).predict_proba(logits), labels)


def test_reversed_logits_without_a_mistake_have_no_best_vector():
    with pytest.raises(ValueError, match="no best"):
        VectorScaling().fit(LOGITS, LOGITS.argmin(1))


def test_a_class_told_apart_has_no_best_vector():
    logits = LOGITS.copy()
    logits[:, 2] = np.where(LABELS == 2, 3.0, -3.0) + 0.1 * logits[:, 2].clip(-5, 5)
    with pytest.raises(ValueError, match="class 2 is told from the others without a mistake"):
        VectorScaling().fit(logits, LABELS)
    # held, it has one, and so it has where a single row is on the wrong side
    assert StructuredVectorScaling().fit(logits, LABELS).scale_[2] < 10
    logits[np.flatnonzero(LABELS == 2)[0], 2] = -3.0
    assert VectorScaling().fit(logits, LABELS).scale_[2] < 10


def test_a_column_of_one_value_is_not_told_apart():
    two = np.stack([np.zeros(len(LOGITS)), LOGITS[:, 1] - LOGITS[:, 0]], 1)
    model = VectorScaling().fit(two, (LABELS == 1).astype(int))
    assert np.isfinite(model.scale_).all()


def test_no_best_dirichlet_map_without_a_mistake():
    right = LOGITS.argmax(1)
    with pytest.raises(ValueError, match="no row has a mistake"):
        DirichletCalibration().fit(LOGITS, right)
    # right once each class has its own factor: seen only in the fit
    logs = np.log(np.random.default_rng(0).dirichlet(np.ones(4), 500))
    factors = np.array([1.0, 2.0, 3.0, 4.0])
    with pytest.raises(ValueError, match="no best map"):
        DirichletCalibration(off_diagonal=1.0).fit(logs, (logs * factors).argmax(1))
    few = right.copy()
    few[:20] = LABELS[:20]
    assert (few != right).any()
    assert np.isfinite(DirichletCalibration().fit(LOGITS, few).weight_).all()


def test_scale_of_logits_is_free():
    small = VectorScaling().fit(LOGITS, LABELS).predict_proba(LOGITS)
    large = VectorScaling().fit(1e6 * LOGITS, LABELS).predict_proba(1e6 * LOGITS)
    assert np.allclose(small, large, atol=1e-7)


def test_labels_that_come_in_turn():
    """Every so many rows would have some of the classes only; those drawn have all."""
    turn = np.arange(20_000) % 10
    problem = nearby.problem_of(
        "vector", torch.zeros(20_000, 10), torch.tensor(turn), *[nearby.identity("vector", 10)] * 2
    )
    _, labels = logistic.drawn(problem, 4)
    assert len(labels) == 5000
    assert labels.unique().tolist() == list(range(10))
