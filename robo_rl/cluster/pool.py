"""Workers that share tasks: each has one task at a time, lost ones are done again, and no more is begun than is asked for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self

from robo_rl.cluster.connection import Cluster
from robo_rl.cluster.worker import LOGS, USUAL, Patience, Worker, WorkerLost
from robo_rl.errors import WorkerFailed

MOMENT = 0.2
"""[s] between two looks at what is late."""


class Pool:
    """So many workers of one kind, whose method `work` takes a task and returns its result; to be used in a `with` block."""

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        setups: Sequence[bytes],
        *,
        cores: float = 1.0,
        patience: Patience = USUAL,
        say: Callable[[str], None] = print,
    ) -> None:
        """kind: "module:Class", made of each of the setups by Class(setup)."""
        self._ray, self._losses = cluster.ray, patience.losses
        self.workers = [
            Worker(cluster, kind, setup, name=f"worker {number}", cores=cores, patience=patience, say=say)
            for number, setup in enumerate(setups)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for worker in self.workers:
            worker.end()

    def results(self, tasks: Iterable[bytes], *, ahead: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yields the number of each task with its result, as they come in; a task is drawn when a worker is free for it.

        A worker gets its next task when the result was taken and the next one is asked for: what a caller has stored until
        then is all that a worker's answer can depend on. ahead: so many tasks may be drawn beyond the oldest one without a
        result, and results come in the order of the tasks; 0 for any order.
        Raises what a worker raised, and WorkerFailed for a task that costs worker after worker.
        """
        numbered, again = enumerate(tasks), deque[tuple[int, bytes]]()
        held: dict[Worker, tuple[int, bytes]] = {}
        losses, waiting = Counter[int](), dict[int, bytes]()
        drawn = given = 0
        while True:
            for worker in (each for each in self.workers if each.is_ready):
                if ahead and not again and drawn - given >= ahead:
                    break
                task = again.popleft() if again else next(numbered, None)
                if task is None:
                    if not held:
                        return
                    break
                drawn = max(drawn, task[0] + 1)
                held[worker] = task
                worker.ask("work", task[1])
            self._ray.wait([each.reference for each in self.workers if each.reference is not None], timeout=MOMENT)
            for worker in self.workers:
                try:
                    result = worker.answer()
                except WorkerLost as lost:
                    if (task := held.pop(worker, None)) is not None:
                        losses[task[0]] += 1
                        if losses[task[0]] >= self._losses:
                            raise _failure(task[0], losses[task[0]], lost) from None
                        again.append(task)
                    continue
                if result is None:
                    continue
                number, _ = held.pop(worker)
                waiting[number] = result
                while waiting and (not ahead or given in waiting):
                    number = given if ahead else next(iter(waiting))
                    given += 1
                    yield number, waiting.pop(number)


def _failure(number: int, losses: int, lost: WorkerLost) -> WorkerFailed:
    return WorkerFailed(
        f"Task {number} cost {losses} workers in a row.",
        got=str(lost),
        fix=LOGS,
    )
