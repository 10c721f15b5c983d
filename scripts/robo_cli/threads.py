"""Threads of tensor operations; torch is imported when something computes, so that lists and help need not wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def use_threads(count: int) -> None:
    """Has torch compute with so many threads in this process."""
    import torch

    torch.set_num_threads(count)


def threads_in_use() -> int:
    """Returns with how many threads torch computes in this process."""
    import torch

    return int(torch.get_num_threads())


@contextmanager
def tensor_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads inside the block, and with as many as before after it."""
    before = threads_in_use()
    use_threads(count)
    try:
        yield
    finally:
        use_threads(before)
