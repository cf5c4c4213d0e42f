"""bf16 or float32: what the processor can do, and what a recipe's precision means there.

Cost: where a processor announces AMX, one probe per process, about two seconds.
"""

import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from maccal.training.recipe import Recipe

PROBE = """
import torch
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.Flatten(), nn.Linear(1152, 64))
with torch.autocast("cpu", torch.bfloat16):
    loss = model(torch.ones(32, 16, 8, 8)).float().sum()
loss.backward()
"""


def precise(recipe: Recipe, device: torch.device) -> Recipe:
    """The recipe with precision "auto" settled for this device.

    ValueError where bf16 is asked for and would kill the process.
    """
    if recipe.precision == "auto":
        return replace(recipe, precision="bf16" if has_bf16(device) else "fp32")
    if recipe.precision == "bf16" and device.type == "cpu" and only_announces_bf16():
        raise ValueError(
            "this processor announces bf16 matrices (AMX) but cannot run them; pass precision fp32,"
            " or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before the start"
        )
    return recipe


def autocast(recipe: Recipe, device: torch.device) -> AbstractContextManager[None]:
    """Where a settled recipe's passes run."""
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16")


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 is faster than float32 on this device, and runs at all."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    known = capabilities()
    if known.get("amx_bf16"):
        return bf16_runs()
    return bool(known.get("avx512_bf16") or known.get("bf16"))


def only_announces_bf16() -> bool:
    """Whether the processor says that it has bf16 matrices, and then dies of them."""
    return bool(capabilities().get("amx_bf16")) and not bf16_runs()


def capabilities() -> dict[str, Any]:
    """What the processor announces; nothing in older versions of torch, which do not tell."""
    return getattr(torch.cpu, "get_capabilities", dict)()


@cache
def bf16_runs() -> bool:
    """Whether a layer in bf16 survives here.

    Some virtual machines announce AMX and then refuse its instructions, which kills the process.
    So it is tried in another process, once.
    """
    tried = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, check=False)
    return tried.returncode == 0
