"""Memory of freed arrays stays with a process that computes."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
import torch

from robo_cli.rewards.reward import FITS
from robo_cli.train import fit_encoder
from robo_rl.system.threads import fitting, tensor_threads, threads_in_use

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


@pytest.mark.parametrize(("variable", "threads"), [(None, 1), ("3", 3), ("", 1), ("0", 1), ("many", 1)])
def test_a_fit_has_one_thread_unless_the_user_says_otherwise(variable, threads, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    with tensor_threads(2):
        assert fitting(lambda order: order + threads_in_use())(10) == 10 + threads
        assert torch.get_num_threads() == 2, "others keep theirs"


@pytest.mark.parametrize("name", FITS)
def test_every_fit_of_a_reward_is_such_a_command(name):
    function = FITS[name].loaded()[1]
    assert function.__wrapped__.__module__ == f"robo_cli.rewards.fit_{name}"


def test_the_fit_of_an_encoder_is_one():
    assert fit_encoder.run.__wrapped__.__name__ == "run"
