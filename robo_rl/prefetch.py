"""Do the next piece of work in a thread while this one is used: a disk or a picture's preparation need not be waited for."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(work: Callable[[Item], Result], items: Iterable[Item]) -> Generator[Result, None, None]:
    """Yields the result of each item in their order, always one ahead; what an item raises is raised when it is its turn."""
    with ThreadPoolExecutor(1) as thread:
        following = None
        for item in items:
            current, following = following, thread.submit(work, item)
            if current is not None:
                yield current.result()
        if following is not None:
            yield following.result()
