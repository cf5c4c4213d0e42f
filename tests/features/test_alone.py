"""A classifier whose weights make its own features is refused: new ones would meet others."""

import pytest
import torch
import torch.nn.functional as F
from extraction import K, X, Y, batches, same, state
from torch import nn

from maccal.calibration import calibrate
from maccal.features.alone import check_alone


class Model(nn.Module):
    """A body, a classifier and a forward pass of the test's own."""

    def __init__(self, forward):
        super().__init__()
        self.body = nn.Linear(6, K)
        self.head = nn.Linear(K, K)
        self.dropout = nn.Dropout(0.5)
        self.way = forward

    def forward(self, x):
        return self.way(self, x)


NOT_ALONE = {
    "a layer that runs three times": lambda m, x: m.head(m.head(m.head(m.body(x)).relu()).relu()),
    "its weight on the features": lambda m, x: m.head(m.body(x) @ m.head.weight),
    "its bias in the features": lambda m, x: m.head(m.body(x) + m.head.bias),
}
ALONE = {
    "a plain model": lambda m, x: m.head(m.body(x).relu()),
    "dropout that never sleeps": lambda m, x: m.head(F.dropout(m.body(x), 0.5, training=True)),
}


@pytest.mark.parametrize("which", NOT_ALONE)
def test_a_classifier_that_makes_its_own_features_is_refused(which):
    model = Model(NOT_ALONE[which]).eval()
    before = state(model)
    with pytest.raises(ValueError, match="a layer of its own"):
        check_alone(model, (X, Y), "head")
    assert same(state(model), before)


@pytest.mark.parametrize("which", ALONE)
def test_a_classifier_of_its_own_passes_and_is_left_as_it_was(which):
    model = Model(ALONE[which]).train()
    before = state(model)
    check_alone(model, (X, Y), "head")
    assert same(state(model), before)


def test_calibrate_refuses_it_and_leaves_the_model_as_it_was():
    model = Model(NOT_ALONE["its weight on the features"]).eval()
    before = state(model)
    with pytest.raises(ValueError, match="'head' is used for more than the logits"):
        calibrate(
            model, batches(), val=batches(torch.flip(X, [0]), torch.flip(Y, [0])), head="head"
        )
    assert same(state(model), before)
