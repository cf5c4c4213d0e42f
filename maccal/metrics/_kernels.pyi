# All arrays are passed by address.
def scan(
    wide: bool,
    probs: int,
    labels: int,
    rows: int,
    classes: int,
    confidence: int,
    correct: int,
    totals: int,
    lowest: int,
) -> None: ...
def collect(
    index: int, confidence: int, correct: int, rows: int, bins: int, tick: float, sums: int
) -> None: ...
def collect_equal(
    confidence: int, correct: int, rows: int, bins: int, edges: int, tick: float, sums: int
) -> None: ...
def collect_classes(
    wide: bool,
    probs: int,
    labels: int,
    rows: int,
    classes: int,
    bins: int,
    edges: int,
    tick: float,
    sums: int,
    first: int,
) -> None: ...
def scores(
    wide: bool,
    scores: int,
    most: int,
    labels: int,
    rows: int,
    classes: int,
    scale: float,
    nll: int,
    brier: int,
) -> None: ...
def slopes(
    fine: bool,
    wide: bool,
    scores: int,
    most: int,
    labels: int,
    rows: int,
    classes: int,
    nll_scale: float,
    brier_scale: float,
    sums: int,
) -> None: ...
def stream(
    wide: bool,
    probs: int,
    logits: int,
    labels: int,
    rows: int,
    classes: int,
    tolerance: float,
    edges: int,
    bins: int,
    first: int,
    cells: int,
    tick: float,
    sums: int,
    scores: int,
) -> int: ...
def stream_logits(
    logits: int,
    labels: int,
    rows: int,
    classes: int,
    edges: int,
    bins: int,
    first: int,
    cells: int,
    tick: float,
    sums: int,
    scores: int,
) -> int: ...
