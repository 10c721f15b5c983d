"""Compute the next items in threads while the present one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetched(work: Callable[[Item], Result], items: Iterable[Item], *, at_once: int = 1) -> Generator[Result, None, None]:
    """Yield work(item) for each item, in order, computed ahead in threads; the error of an item is raised at its turn.

    at_once: number of threads.
    """
    with ThreadPoolExecutor(at_once) as threads:
        under_way: deque[Future[Result]] = deque()
        for item in items:
            under_way.append(threads.submit(work, item))
            if len(under_way) > at_once:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
