"""Threads of PyTorch and of NumPy's linear algebra in this process; both are imported only if something computes.

Kernels of learners multiply matrices with NumPy, whose OpenBLAS has threads of its own. They are set in the process, without
environment variables.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def use_threads(count: int) -> None:
    """Set the number of threads of PyTorch and NumPy."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(count)
    threadpool_limits(limits=count, user_api="blas")


def threads_in_use() -> int:
    """Return the number of threads of PyTorch."""
    import torch

    return int(torch.get_num_threads())


@contextmanager
def tensor_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the block, and with as many as before after it."""
    import torch
    from threadpoolctl import threadpool_limits

    before = threads_in_use()
    with threadpool_limits(limits=count, user_api="blas"):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)
