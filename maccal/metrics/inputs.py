"""The door of the metrics: arrays in, checked tensors out.

Every public metric takes numpy arrays or torch tensors, on any device, and passes through here
once. What is wrong raises ValueError naming the first offending row and the fix; nothing is
normalised, clipped or dropped. Behind the door the code trusts its arguments.

`top_label` is the hot path of the package: one trip through memory for N x K probabilities,
including all checks.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from maccal.metrics.arguments import Array as Array
from maccal.metrics.arguments import Labels as Labels
from maccal.metrics.arguments import Same as Same
from maccal.metrics.arguments import as_tensor as as_tensor
from maccal.metrics.frames import check_index

kernels: ModuleType | None
try:
    from maccal.metrics import _kernels as kernels
except ImportError:  # installed without a C compiler
    kernels = None

BLOCK = 1 << 20  # elements read at a time: 4 MB of float32, so that a second look finds it in cache
STRETCH = 32_000  # elements of a vector at a time: from 32,768 on torch uses its thread pool
ONE_SCORE = (
    "for a binary score s call binary_summary (maccal evaluate --task binary), "
    "or pass the two columns (1 - s, s)"
)
SUM_TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 2e-2}  # float32 and float64 rows: 1e-3
MANY = 10  # rows: so many logits do not all look like probabilities by chance
ROUNDED = 0.1  # a row whose sum is off by less was probably rounded

# What to do instead, where the mistake is a common one
NAMED = (
    "pass classes=[...], or --classes, with the names in the order of the columns,"
    " or class indices: [classes.index(label) for label in labels]"
)
NORMALISE = "divide each row by its sum, as normalise=True and --normalise do"


def like(result: Tensor, source: Array) -> Same:
    """The result in the caller's own kind of array."""
    return result if isinstance(source, Tensor) else result.numpy()


def blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows, of about BLOCK elements each."""
    step = max(1, BLOCK // max(1, columns))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def stretches(rows: int) -> Iterator[slice]:
    """Slices of a vector that torch works on without its thread pool.

    The idle workers of that pool would go on spinning beside the next scan.
    """
    return (slice(start, min(start + STRETCH, rows)) for start in range(0, rows, STRETCH))


def extremes(vector: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest element; NaN if there is one."""
    ends = [torch.aminmax(vector[part]) for part in stretches(len(vector))]
    low = torch.stack([low for low, _ in ends]).min()
    high = torch.stack([high for _, high in ends]).max()
    return low, high


def first(mask: Tensor) -> int:
    """The number of the first row that is true."""
    return int(mask.to(torch.uint8).argmax())


def matrix(values: Any, name: str) -> Tensor:
    """An N x K floating-point tensor with N >= 1 and K >= 2; the values are not looked at."""
    tensor = as_tensor(values, name)
    if tensor.ndim != 2:
        hint = f"; {ONE_SCORE}" if tensor.ndim == 1 else ""
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected (rows, classes){hint}")
    if tensor.shape[0] == 0:
        raise ValueError(f"{name} is empty: there are no rows to measure")
    if tensor.shape[1] < 2:
        raise ValueError(f"{name} has one column; expected one for each class; {ONE_SCORE}")
    if not tensor.is_floating_point():
        hint = (
            f"; for percentages and counts, {NORMALISE}" if name == "probs" else ": .astype(float)"
        )
        raise ValueError(f"{name} has dtype {tensor.dtype}; expected floating point{hint}")
    return tensor.contiguous()


def check_labels(labels: Any, predictions: Tensor) -> Tensor:
    """Class indices within 0 .. K - 1, one for each row of the N x K predictions.

    As int64, on the device of the predictions.
    """
    rows, classes = predictions.shape
    tensor = label_tensor(labels)
    check_label_shape(tensor, rows, classes)
    if tensor.is_floating_point():
        refuse_fractions(tensor)
    if tensor.is_floating_point() or tensor.dtype == torch.bool:
        expected = "expected integer class indices: labels.astype(int)"
        raise ValueError(f"labels have dtype {tensor.dtype}; {expected}")
    tensor = tensor.to(predictions.device, torch.int64).contiguous()
    low, high = (int(x) for x in extremes(tensor))
    if low < 0 or high >= classes:
        row = first((tensor < 0) | (tensor >= classes))
        from_one = low == 1 and high == classes
        hint = "; they seem to count from 1: pass labels - 1" if from_one else ""
        outside = f"label {int(tensor[row])} in row {row} is outside 0 .. {classes - 1}"
        raise ValueError(f"{outside}{hint}")
    return tensor


def refuse_fractions(labels: Tensor) -> None:
    """ValueError for a label that no whole number could stand for."""
    wrong = labels != labels.round()  # also where it is NaN
    if bool(wrong.any()):
        row = first(wrong)
        what = "NaN" if bool(labels[row].isnan()) else f"{float(labels[row]):g}"
        raise ValueError(f"the label of row {row} is {what}; expected integer class indices")


def label_tensor(labels: Array) -> Tensor:
    """The labels as numbers; of names, ValueError that says how to pass them."""
    try:
        return as_tensor(labels, "labels")
    except ValueError:
        name = first_name(labels)
        if name is None:
            raise
        raise ValueError(f"labels are names, such as {name!r}; {NAMED}") from None


def first_name(labels: Any) -> str | None:
    """The first label, if it is text."""
    try:
        label = next(iter(labels), None)
    except TypeError:
        return None
    return str(label) if isinstance(label, str) else None


def check_label_shape(labels: Tensor, rows: int, classes: int) -> None:
    shape = tuple(labels.shape)
    if shape == (rows, classes):
        if bool((labels.sum(1) != 1).any()):
            fix = "several labels per row are measured by multilabel_summary(probs, labels)"
            fix += " or maccal evaluate --task multilabel"
            raise ValueError(f"labels have shape {shape} and are not one-hot; {fix}")
        fix = "pass class indices: labels.argmax(1)"
        raise ValueError(f"labels have shape {shape}, as if one-hot; {fix}")
    if labels.ndim != 1:
        expected = "expected one class index per row: labels.reshape(-1)"
        raise ValueError(f"labels have shape {shape}; {expected}")
    if len(labels) != rows:
        found = f"{rows} rows of predictions but {len(labels)} labels"
        raise ValueError(f"{found}; they must match one to one")


def refuse_several(labels: Any, scores: Any) -> None:
    """ValueError for several labels per row, before their scores are found not to sum to 1."""
    shape = tuple(getattr(labels, "shape", ()))
    if len(shape) == 2 and shape == tuple(getattr(scores, "shape", ())):
        check_label_shape(label_tensor(labels), *shape)


def check_confidence(confidence: Array, correct: Array) -> tuple[Tensor, Tensor]:
    """Float64 confidences in [0, 1] and boolean outcomes, both of length N >= 1.

    Both on the device of the confidences.
    """
    check_index(confidence, correct)
    c = as_tensor(confidence, "confidence")
    hit = as_tensor(correct, "correct")
    if c.ndim != 1 or c.shape != hit.shape:
        shapes = f"confidence has shape {tuple(c.shape)} and correct {tuple(hit.shape)}"
        hint = "(from N x K probabilities: top_label(probs, labels))"
        raise ValueError(f"{shapes}; expected two vectors of one length {hint}")
    if c.shape[0] == 0:
        raise ValueError("confidence is empty: there are no rows to measure")
    if not c.is_floating_point():
        raise ValueError(f"confidence has dtype {c.dtype}; expected floating point")
    c = doubled(c)
    low, high = extremes(c)
    if not (low >= 0 and high <= 1):  # also when either is NaN
        row = first(~((c >= 0) & (c <= 1)))
        raise ValueError(f"confidence {float(c[row])!r} in row {row} is outside [0, 1]")
    return c, as_outcomes(hit).to(c.device).contiguous()


def as_outcomes(correct: Tensor) -> Tensor:
    """Booleans from booleans, or from zeros and ones of any type."""
    if correct.dtype == torch.bool:
        return correct
    wrong = (correct != 0) & (correct != 1)
    if bool(wrong.any()):
        row = first(wrong)
        raise ValueError(f"correct is {float(correct[row]):.6g} in row {row}; expected 0 or 1")
    return correct != 0


def doubled(vector: Tensor) -> Tensor:
    """The vector in contiguous float64."""
    if vector.dtype == torch.float64:
        return vector.contiguous()
    out = torch.empty(len(vector), dtype=torch.float64, device=vector.device)
    for part in stretches(len(vector)):
        out[part] = vector[part]
    return out


def check_scores(scores: Array, name: str) -> Tensor:
    """A vector of float64 scores without NaN; infinities are ordered like any other number."""
    tensor = as_tensor(scores, name)
    if tensor.ndim != 1 or tensor.shape[0] == 0:
        shape = tuple(tensor.shape)
        raise ValueError(f"{name} has shape {shape}; expected a vector of at least one score")
    tensor = tensor.to(torch.float64).contiguous()
    if bool(tensor.isnan().any()):
        raise ValueError(f"{name} is NaN in row {first(tensor.isnan())}")
    return tensor


def not_finite(name: str, row: Tensor, index: int) -> ValueError:
    value = float(row[~row.isfinite()][0])
    fix = "remove such rows or find where they come from"
    return ValueError(f"{name} row {index} holds {value}; {fix}")


def row_error(row: Tensor, index: int) -> ValueError:
    """What is wrong with this row of probabilities, in words."""
    if not bool(row.isfinite().all()):
        return not_finite("probs", row, index)
    low = float(row.min())
    high = float(row.max())
    total = float(row.sum(dtype=torch.float64))
    if low >= 0 and abs(total / 100 - 1) < most_by_rounding(row / 100):
        seen = f"probs row {index} sums to {total:.6g}: these look like percentages"
        return ValueError(f"{seen}; {NORMALISE}")
    if low < 0 or high > 1.5:
        seen = f"probs row {index} ranges from {low:.4g} to {high:.4g}"
        return ValueError(f"{seen}: these look like logits; pass logits=..., or softmax(logits)")
    fix = "pass softmax probabilities, or logits=... for logits"
    if abs(total - 1) < most_by_rounding(row):
        fix = f"if they were rounded, {NORMALISE}"
    return ValueError(f"probs row {index} sums to {total:.6g}, not 1; {fix}")


def most_by_rounding(row: Tensor) -> float:
    """How far the sum may be off 1 where it was rounded: ROUNDED, or more where many entries have
    one digit or two.
    """
    most = ROUNDED
    for digits in (1, 2):
        scaled = row.double() * 10**digits
        whole = bool((scaled - scaled.round()).abs().max() < 1e-3)
        if whole and not bool((row == row.round()).all()):
            most = max(most, len(row) * 0.501 / 10**digits)
            break
    return most


def check_rows(probs: Tensor, totals: Tensor, lowest: Tensor) -> None:
    """Raise for the first row with a value below 0, or whose sum is not 1.

    NaN and infinity show in the sum.
    """
    tolerance = SUM_TOLERANCE.get(probs.dtype, 1e-3)
    least, most = extremes(totals)
    # NaN makes all three comparisons false
    if bool(lowest >= 0) and bool(least >= 1 - tolerance) and bool(most <= 1 + tolerance):
        return
    bad = ~((totals - 1).abs() <= tolerance)
    for rows in blocks(*probs.shape):
        wrong = bad[rows] | ~(probs[rows] >= 0).all(1)
        if bool(wrong.any()):
            index = rows.start + first(wrong)
            raise row_error(probs[index], index)


def check_probs(probs: Any) -> Tensor:
    """Probabilities as an N x K tensor.

    Every value in [0, 1], every row summing to 1 within the precision of its type.
    """
    tensor = matrix(probs, "probs")
    totals = torch.cat([row_sums(tensor[rows]) for rows in blocks(*tensor.shape)])
    check_rows(tensor, totals, tensor.min())
    return tensor


def check_logits(logits: Any) -> Tensor:
    """Finite logits as an N x K tensor of float32 or float64; ValueError for probabilities."""
    tensor = finite_logits(logits)
    if len(tensor) >= MANY and are_probs(tensor) and not are_ones(tensor):
        seen = "all rows of logits lie in [0, 1] and sum to 1, so these are probabilities"
        raise ValueError(f"{seen}; pass them as probs")
    return tensor


def finite_logits(logits: Any) -> Tensor:
    """Finite numbers as an N x K tensor of float32 or float64."""
    tensor = matrix(logits, "logits")
    tensor = tensor if tensor.dtype == torch.float64 else tensor.float()
    if not bool(tensor.sum().isfinite()):  # one cheap pass; look closer only if it fails
        wrong = ~tensor.isfinite().all(1)
        if bool(wrong.any()):
            raise not_finite("logits", tensor[first(wrong)], first(wrong))
    return tensor


def are_probs(logits: Tensor) -> bool:
    """Whether every row could be a row of probabilities; the first row settles it as a rule."""
    tolerance = SUM_TOLERANCE.get(logits.dtype, 1e-3)
    for part in (logits[:1], logits):
        low, high = torch.aminmax(part)
        if low < 0 or high > 1 or bool(((row_sums(part) - 1).abs() > tolerance).any()):
            return False
    return True


def are_ones(logits: Tensor) -> bool:
    """Whether they are all 0 or 1, as logits may be that someone made up."""
    return bool(((logits == 0) | (logits == 1)).all())


def row_sums(block: Tensor) -> Tensor:
    return block.sum(1, dtype=torch.float64 if block.dtype == torch.float64 else torch.float32)


def softmax(logits: Array) -> Same:
    """Probabilities from logits, row by row.

    >>> import numpy as np
    >>> softmax(np.array([[0.0, 0.0], [0.0, np.log(3)]])).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    return like(torch.softmax(check_logits(logits), 1), logits)


def top_label(probs: Array, labels: Array) -> tuple[Same, Same]:
    """Confidence (the largest probability of each row) and whether that class is the label.

    Of classes that share the largest probability the first counts, as with argmax. A row sums to
    one within the rounding of its type; a largest probability that is above 1 by rounding counts
    as 1.

    >>> import numpy as np
    >>> confidence, correct = top_label(np.array([[0.8, 0.2], [0.5, 0.5]]), np.array([0, 1]))
    >>> confidence.tolist(), correct.tolist()
    ([0.8, 0.5], [True, False])
    """
    check_index(probs, labels)
    p = matrix(probs, "probs")
    y = check_labels(labels, p)
    confidence, correct, totals, lowest = scan(p, y)
    check_rows(p, totals, lowest)
    return like(confidence, probs), like(correct, probs)


def scan(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Largest value, hit and sum of every row, and the least value of all."""
    common = probs.device.type == "cpu" and probs.dtype in (torch.float32, torch.float64)
    if kernels and common:
        return scan_compiled(probs, labels)
    return scan_torch(probs, labels)


def scan_torch(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same in torch operations: several looks at a block while it is in cache.

    torch.max(dim=1) on the CPU is a scalar loop. amax and a gather are several times faster, but
    blind to ties. Two values tie for the maximum only at or below one half, so only hits down there
    are looked at again.
    """
    confidence = probs.new_empty(len(probs))
    correct = torch.empty(len(probs), dtype=torch.bool, device=probs.device)
    totals = []
    lowest = []
    for rows in blocks(*probs.shape):
        block = probs[rows]
        label = labels[rows]
        torch.amax(block, 1, out=confidence[rows])
        totals.append(row_sums(block))
        lowest.append(block.min())
        hit = block.gather(1, label[:, None]).squeeze(1) == confidence[rows]
        maybe_tied = (hit & (confidence[rows] <= 0.51)).nonzero().squeeze(1)
        if len(maybe_tied):
            hit[maybe_tied] = block[maybe_tied].argmax(1) == label[maybe_tied]
        correct[rows] = hit
    return confidence.clamp_(max=1), correct, torch.cat(totals), torch.stack(lowest).min()


def scan_compiled(probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same by _kernels.c: one look at every row, on as many threads as torch uses."""
    assert kernels is not None
    n, classes = probs.shape
    confidence = probs.new_empty(n)
    correct = torch.empty(n, dtype=torch.bool)
    totals = probs.new_empty(n)
    lowest = probs.new_empty(n)

    def part(start: int, stop: int) -> None:
        kernels.scan(
            probs.dtype == torch.float64,
            probs[start:].data_ptr(),
            labels[start:].data_ptr(),
            stop - start,
            classes,
            confidence[start:].data_ptr(),
            correct[start:].data_ptr(),
            totals[start:].data_ptr(),
            lowest[start:].data_ptr(),
        )

    threads = min(torch.get_num_threads(), 1 + probs.numel() // BLOCK)
    mine, *others = pairwise(n * i // threads for i in range(threads + 1))
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(part, *share) for share in others]
        part(*mine)  # the calling thread works too: it is already on a core
        for job in running:
            job.result()
    return confidence, correct, totals, extremes(lowest)[0]
