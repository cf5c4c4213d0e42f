"""Slow, obvious twins of the losses: loops over Python floats, written from the formulas.

Each takes what its namesake takes.
"""

import math


def softmax(row):
    top = max(row)
    e = [math.exp(s - top) for s in row]
    return [x / sum(e) for x in e]


def nll(row, y):
    top = max(row)
    return top + math.log(sum(math.exp(s - top) for s in row)) - row[y]


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def cross_entropy(logits, labels):
    return mean(nll(row, y) for row, y in zip(logits, labels, strict=True))


def label_smoothing(logits, labels, alpha=0.05):
    def target(k, y, classes):
        return (1 - alpha) * (k == y) + alpha / classes

    return mean(
        sum(target(k, y, len(row)) * nll(row, k) for k in range(len(row)))
        for row, y in zip(logits, labels, strict=True)
    )


def mbls(logits, labels, margin=10.0, alpha=0.1):
    penalty = mean(max(0.0, max(row) - s - margin) for row in logits for s in row)
    return cross_entropy(logits, labels) + alpha * penalty


def acls(logits, labels, margin=10.0, alpha=0.1, top=1.0, rest=0.1, frozen=None):
    """`frozen` are the maxima that the second part sees: the constants of its gradient."""
    total = 0.0
    for row, fixed in zip(logits, frozen or [max(row) for row in logits], strict=True):
        for s in row:
            if s == max(row):
                total += top * max(0.0, s - margin) ** 2
            else:
                total += rest * max(0.0, fixed - s - margin) ** 2 / (len(row) - 1)
    return cross_entropy(logits, labels) + alpha * total / len(logits)


def focal(logits, labels, gamma=3.0):
    return mean(
        (1 - softmax(row)[y]) ** gamma * nll(row, y) for row, y in zip(logits, labels, strict=True)
    )


def flsd(logits, labels, gammas=(5.0, 3.0, 3.0)):
    def exponent(p):
        return gammas[0] if p < 0.2 else gammas[1] if p < 0.5 else gammas[2]

    return mean(
        focal([row], [y], exponent(softmax(row)[y])) for row, y in zip(logits, labels, strict=True)
    )


def dual_focal(logits, labels, gamma=5.0):
    total = []
    for row, y in zip(logits, labels, strict=True):
        p = softmax(row)
        second = max([p[k] for k in range(len(row)) if row[k] < row[y]], default=0.0)
        total.append((1 - p[y] + second) ** gamma * nll(row, y))
    return mean(total)


def binary_discrimination(logits, labels):
    return mean(
        softplus(s - row[y])
        for row, y in zip(logits, labels, strict=True)
        for k, s in enumerate(row)
        if k != y
    )


def binary_exclusion(logits, labels):
    total, classes = 0.0, len(logits[0])
    for row, y in zip(logits, labels, strict=True):
        for j in range(classes):
            for k in range(classes):
                if y not in (j, k):
                    total += softplus(-(row[j] - row[k] + 1e-10)) / 2
    return total / (len(logits) * (classes - 1) * (classes - 2))


def cpc(logits, labels, discrimination=0.1, exclusion=1.0):
    pairs = discrimination * binary_discrimination(logits, labels) + exclusion * binary_exclusion(
        logits, labels
    )
    return cross_entropy(logits, labels) + pairs


def kernel_calibration_error(logits, labels, form="weighted"):
    rows = [
        (max(softmax(row)), row.index(max(row)) == y) for row, y in zip(logits, labels, strict=True)
    ]
    right, wrong = [r for r, hit in rows if hit], [r for r, hit in rows if not hit]
    if form == "unweighted":
        return mean(
            (c - r) * (d - q) * math.exp(-abs(r - q) / 0.4) for r, c in rows for q, d in rows
        )
    if not right or not wrong:
        return 0.0

    def part(first, second, gap, other):
        again = len(first) * len(second) + 1e-5 if form == "as coded" else 1.0
        return (
            mean(gap(r) * other(q) * math.exp(-abs(r - q) / 0.4) for r in first for q in second)
            / again
        )

    def doubt(r):
        return 1 - r

    def sure(r):
        return r

    square = (
        part(right, right, doubt, doubt)
        + part(wrong, wrong, sure, sure)
        - 2 * part(right, wrong, doubt, sure)
    )
    return math.sqrt(max(square, 0.0) + 1e-10)


def mmce(logits, labels, weight=2.0, form="as coded"):
    return cross_entropy(logits, labels) + weight * kernel_calibration_error(logits, labels, form)


def mixed_cross_entropy(logits, labels, partners, share):
    return share * cross_entropy(logits, labels) + (1 - share) * cross_entropy(logits, partners)


def mit_l(o1, o2, labels, partners, l1, l2):
    """The formulas with c1 and c2, as published."""
    c1, c2 = (1 - l1) / (1 - l2), l2 / l1
    pairs = [list(zip(*rows, strict=True)) for rows in zip(o1, o2, strict=True)]
    a = [[(x - c1 * y) / (l1 - l2 * c1) for x, y in row] for row in pairs]
    b = [[(y - c2 * x) / (1 - l2 - (1 - l1) * c2) for x, y in row] for row in pairs]
    return cross_entropy(a, labels) / 2 + cross_entropy(b, partners) / 2


def standard_normal_kl(means, log_variances):
    pairs = [
        pair for rows in zip(means, log_variances, strict=True) for pair in zip(*rows, strict=True)
    ]
    return mean(-0.5 * (1 + v - m * m - math.exp(v)) for m, v in pairs)
