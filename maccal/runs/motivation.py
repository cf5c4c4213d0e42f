"""What the paper's first two figures show of a run."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from maccal.data import load
from maccal.data.pixels import PIXELS
from maccal.evaluation.masks import (
    REGROWTH,
    calibration_curve,
    logit_map,
    masked_inference,
    masked_retraining,
    prototype_angles,
)
from maccal.features import extract
from maccal.runs.folder import load_run, predictions_of, read_config
from maccal.runs.second import Batches

RATIOS = tuple(ratio / 10 for ratio in range(10))  # of weights masked, in Fig. 1


def motivation_run(
    folder: Path | str, root: Path | str | None = None, *, rows: int = 1000
) -> dict[str, Any]:
    """Map, angles and curve of its logits and, of a linear head as trained, what masks do to it."""
    config = read_config(folder)
    said = predictions_of(folder)
    logits = torch.from_numpy(said.scores)
    curve = calibration_curve(logits, said.labels)
    spots = logit_map(logits, said.labels, rows=rows)
    spots |= {"place": spots["place"].round(2), "entropy": spots["entropy"].round(4)}
    found = {
        "map": spots,
        "angles": prototype_angles(logits, said.labels),
        "curve": {key: np.nan_to_num(values) for key, values in curve.items()},
    }
    if config.stage2 is not None:
        return found
    data = load(config.data, root, limit=config.limit)
    assert data.train is not None
    pixels = PIXELS[config.data]
    network = load_run(folder, len(data.classes))
    train = extract(
        network, Batches(data.train, pixels), head="head", cache=Path(folder) / "features"
    )
    test = extract(network, Batches(data.test, pixels), head="head")
    head = network.head
    start = (head.weight.detach(), head.bias.detach())
    return found | {
        "inference": masked_inference(*start, *test, RATIOS),
        "retraining": masked_retraining(train, test, RATIOS),
        "regrowth": masked_retraining(train, test, RATIOS, config=REGROWTH, start=start),
    }
