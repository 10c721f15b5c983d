"""Memory of freed arrays stays with a process that computes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import sys
import numpy as np
from robo_rl.system.threads import use_threads
if sys.argv[1] == "kept":
    use_threads(1)
def work():
    for _ in range(20):
        arrays = [np.ones(1 << 18) for _ in range(8)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(memory: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, memory], check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about the allocator of glibc")
def test_use_threads_keeps_freed_memory():
    assert page_faults("kept") < 100
    assert page_faults("returned") > 1_000  # else the allocator does it of its own accord, and the function may go
