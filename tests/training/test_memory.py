"""Freed memory is kept: in a process of its own, for it is a setting of the whole process."""

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import resource
import numpy as np
from maccal.training.memory import keep_memory
changed = {keep}
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    blocks = [np.ones(1_000_000) for _ in range(4)]  # 8 MB each
    del blocks
print(changed, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""


def faults(keep):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(keep=keep)], capture_output=True, text=True, check=True
    )
    changed, count = done.stdout.split()
    return changed, int(count)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told to")
def test_memory_is_kept():
    """Fifty times 32 MB are 400,000 pages if they are taken anew each time, and 8,000 if they are
    kept.
    """
    (changed, kept), (_, anew) = faults("keep_memory()"), faults("False")
    assert changed == "True"
    assert kept < 30_000
    assert kept < anew / 3


def test_where_there_is_no_glibc(monkeypatch):
    from maccal.training import memory

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert memory.keep_memory() is False
