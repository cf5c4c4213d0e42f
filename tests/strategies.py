"""Inputs for the property tests, with the awkward values on purpose: ties, bin edges, 0 and 1."""

import numpy as np
from hypothesis import strategies as st

awkward = st.sampled_from(
    [
        0.0,
        1.0,
        0.5,
        1 / 3,
        0.1,
        0.2,
        0.3,
        0.6,
        0.7,
        0.29,
        0.95,
        1 / 15,
        14 / 15,
        np.nextafter(0.2, 0),
        np.nextafter(1, 0),
    ]
)
confidences = st.floats(0, 1) | awkward | st.floats(0, 1, width=32).map(float)


@st.composite
def outcomes(draw, most=40):
    """Confidences and whether each was right."""
    n = draw(st.integers(1, most))
    confidence = draw(st.lists(confidences, min_size=n, max_size=n))
    correct = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return np.array(confidence), np.array(correct)


@st.composite
def predictions(draw, most=20):
    """Probabilities with ties between classes, and labels."""
    n, classes = draw(st.integers(1, most)), draw(st.integers(2, 6))
    weights = draw(
        st.lists(
            st.lists(st.integers(1, 8), min_size=classes, max_size=classes), min_size=n, max_size=n
        )
    )
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    weights = np.array(weights, dtype=np.float64)
    return weights / weights.sum(1, keepdims=True), np.array(labels)
