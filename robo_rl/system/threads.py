"""Threads of PyTorch and of NumPy's linear algebra in this process; both are imported only when they are needed.

Learners also multiply matrices with NumPy, whose OpenBLAS has its own threads. The numbers are set in the process, without
environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import TypeVar

Order = TypeVar("Order")

LARGEST_ARRAY = 31 << 20  # [byte] glibc always maps arrays above 32 MiB


def use_threads(count: int) -> None:
    """Set the number of threads of one PyTorch or NumPy operation, and let this process keep the memory of freed arrays."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(count)
    threadpool_limits(limits=count, user_api="blas")
    keep_freed_memory()


def keep_freed_memory() -> None:
    """Let glibc keep up to 62 MiB of freed memory instead of returning and requesting it in every update.

    Memory that was returned costs a page fault per 4 KiB, in all a quarter of an update of SAC by autograd. glibc raises its
    thresholds with the largest array that was freed (mallopt(3), M_MMAP_THRESHOLD): freeing one, untouched, is enough.
    """
    import numpy as np

    np.empty(LARGEST_ARRAY, np.uint8)


def threads_in_use() -> int:
    """Return the number of threads that one operation of PyTorch uses on the CPU."""
    import torch

    return int(torch.get_num_threads())


@contextmanager
def tensor_threads(count: int) -> Iterator[None]:
    """Limit PyTorch and BLAS to `count` CPU threads in a `with` block; the numbers from before are restored at its end."""
    import torch
    from threadpoolctl import threadpool_limits

    before = threads_in_use()
    with threadpool_limits(limits=count, user_api="blas"):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def threads_of_a_fit() -> int:
    """Return 1, or the number in the variable OMP_NUM_THREADS.

    One thread is the default of trainings, too: with two, small networks wait for each other's threads, even more so beside
    other processes.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) else 1


def fitting(function: Callable[[Order], int]) -> Callable[[Order], int]:
    """Decorate a command that fits a model, so that it runs with the number of CPU threads that suits a fit."""

    @wraps(function)
    def fitted(order: Order) -> int:
        with tensor_threads(threads_of_a_fit()):
            return function(order)

    return fitted


@contextmanager
def ordinary_scheduling() -> Iterator[None]:
    """Undo real-time scheduling that a library sets within this context, for this thread and for threads started there.

    As root, the encoder SVT-AV1 gives the calling thread and its own threads the highest real-time priority, so that other
    processes, and the control loop of a robot, would have to wait for them.
    """
    if not hasattr(os, "sched_setscheduler"):  # not Linux
        yield
        return
    policy, parameter, before = os.sched_getscheduler(0), os.sched_getparam(0), set(os.listdir("/proc/self/task"))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)
        for thread in map(int, set(os.listdir("/proc/self/task")) - before):
            with suppress(ProcessLookupError):  # it has ended meanwhile
                if os.sched_getscheduler(thread) == os.SCHED_FIFO:  # not a control loop, whose class is SCHED_RR
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
