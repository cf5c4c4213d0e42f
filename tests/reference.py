"""Slow, obvious twins of the clever code.

Plain loops over Python floats, written from the definitions.
"""

import math
from fractions import Fraction


def bin_of(value, edges):
    """[lo, hi), the last bin closed."""
    for place in range(len(edges) - 1):
        if edges[place] <= value < edges[place + 1]:
            return place
    return len(edges) - 2


def bin_sums(confidence, correct, edges):
    """For every bin: count, number right, and the sum of confidences as an exact fraction."""
    sums = [[0, 0, Fraction(0)] for _ in edges[1:]]
    for c, hit in zip(confidence, correct, strict=True):
        entry = sums[bin_of(c, edges)]
        entry[0] += 1
        entry[1] += int(hit)
        entry[2] += Fraction(c)
    return sums


def equal_width(bins):
    return [i / bins for i in range(bins + 1)]


def equal_mass(confidence, bins):
    ordered = sorted(confidence)
    return [0.0, *sorted({ordered[i * len(ordered) // bins] for i in range(1, bins)}), 1.0]


def error(confidence, correct, edges):
    return float(
        sum(abs(total - right) for _, right, total in bin_sums(confidence, correct, edges))
        / len(confidence)
    )


def worst_gap(confidence, correct, edges, min_count=1):
    gaps = [
        abs(total - right) / n
        for n, right, total in bin_sums(confidence, correct, edges)
        if n >= min_count
    ]
    return float(max(gaps)) if gaps else math.nan


def debiased(confidence, correct, edges):
    total_error = Fraction(0)
    for n, right, total in bin_sums(confidence, correct, edges):
        if n > 1:
            gap, accuracy = (total - right) / n, Fraction(right, n)
            total_error += n * (gap**2 - accuracy * (1 - accuracy) / (n - 1))
    return float(total_error / len(confidence))


def classwise(probs, labels, bins):
    """The mean over classes of the error of p_k against (label == k)."""
    classes = len(probs[0])
    errors = [
        error([row[k] for row in probs], [y == k for y in labels], equal_width(bins))
        for k in range(classes)
    ]
    return sum(errors) / classes


def ks(confidence, correct):
    """The largest cumulative gap, looked at after all rows of one confidence."""
    largest = 0.0
    for threshold in sorted(set(confidence)):
        upto = [c - hit for c, hit in zip(confidence, correct, strict=True) if c <= threshold]
        largest = max(largest, abs(math.fsum(upto)))
    return largest / len(confidence)


def smooth(confidence, correct, width, points=4000, images=3):
    """Integral of |sum of residuals under a Gaussian reflected at 0 and 1| / N, by direct
    summation.
    """
    n, total = len(confidence), 0.0
    for step in range(points):
        t = (step + 0.5) / points
        value = 0.0
        for c, hit in zip(confidence, correct, strict=True):
            for image in range(-images, images + 1):
                for mirrored in (2 * image + c, 2 * image - c):
                    value += (c - hit) * math.exp(-0.5 * ((t - mirrored) / width) ** 2)
        total += abs(value) / (width * math.sqrt(2 * math.pi)) / points
    return total / n


def top_label(probs, labels):
    confidence = [max(row) for row in probs]
    return confidence, [
        row.index(top) == y for row, top, y in zip(probs, confidence, labels, strict=True)
    ]


def nll(probs, labels):
    return -math.fsum(math.log(row[y]) for row, y in zip(probs, labels, strict=True)) / len(labels)


def brier(probs, labels):
    return math.fsum(
        (p - (k == y)) ** 2 for row, y in zip(probs, labels, strict=True) for k, p in enumerate(row)
    ) / len(labels)


def aurc(confidence, correct):
    """Mean over k of the error rate of the k surest.

    Rows of equal confidence share their errors evenly.
    """
    wrong = []
    for level in sorted(set(confidence), reverse=True):
        tied = [not hit for c, hit in zip(confidence, correct, strict=True) if c == level]
        wrong += [sum(tied) / len(tied)] * len(tied)
    return sum(math.fsum(wrong[: k + 1]) / (k + 1) for k in range(len(wrong))) / len(wrong)


def auroc(inside, outside):
    wins = sum((a > b) + 0.5 * (a == b) for a in inside for b in outside)
    return wins / (len(inside) * len(outside))
