"""The inputs behind the goldens.

Closed formulas, in float32 like the public implementations that gave the numbers.
"""

import torch


def model() -> tuple[torch.Tensor, torch.Tensor]:
    """200 x 10 logits, and labels that differ from the arg-max in every third row."""
    i, k = torch.arange(200, dtype=torch.float32)[:, None], torch.arange(10, dtype=torch.float32)
    logits = 3 * torch.sin(1.3 * i + 0.7 * k) + 2 * torch.cos(0.37 * i * (k + 1))
    top = logits.argmax(1)
    return logits, torch.where(torch.arange(200) % 3 == 0, (top + 1) % 10, top)


def outside() -> torch.Tensor:
    """150 x 10 logits of out-of-distribution rows."""
    i, k = torch.arange(150, dtype=torch.float32)[:, None], torch.arange(10, dtype=torch.float32)
    return 2 * torch.sin(0.9 * i + 0.5 * k)
