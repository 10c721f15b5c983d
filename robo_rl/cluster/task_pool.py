"""Pool of workers on a cluster: each has one task at a time, lost tasks are repeated, tasks are drawn lazily."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext

from robo_rl.cluster.connection import Cluster
from robo_rl.cluster.over_ray import RayEngine
from robo_rl.cluster.workers import USUAL, Kind, Timeouts, Workers
from robo_rl.errors import WorkerFailed

TICK = 0.2
"""[s] between two checks for workers that are late."""


class TaskPool(Workers):
    """Workers on a cluster whose method `work` takes a task and returns its result; call `close` at the end."""

    def __init__(
        self,
        cluster: Cluster,
        kind: str,
        setups: Sequence[bytes],
        *,
        cores: float = 1.0,
        timeouts: Timeouts = USUAL,
        say: Callable[[str], None] = print,
    ) -> None:
        """Start the workers.

        Args:
            cluster: The cluster.
            kind: Class of the workers' objects, "module:Class".
            setups: Argument of the class, one for each worker.
            cores: Cores of each worker.
            timeouts: Limits for silence and losses.
            say: Called with messages for the user.
        """
        engine, names = RayEngine(lambda: nullcontext(cluster), kind, cores=cores), range(len(setups))
        super().__init__(engine, setups.__getitem__, [f"worker {name}" for name in names], say, timeouts=timeouts)
        self._most_losses = timeouts.losses
        for index in names:
            self.ask(index)

    def results(self, tasks: Iterable[bytes], *, ahead: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield (number, result) of each task as the results arrive; a task is drawn from `tasks` when a worker is free.

        A worker gets its next task when the caller requests the next result, so that an answer depends only on what the caller
        has stored until then.

        Args:
            tasks: The tasks, packed as bytes.
            ahead: Number of tasks that may be drawn beyond the oldest one without a result; results then come in the order of
                the tasks. 0 for any order.

        Raises:
            WorkerFailed: Several workers in a row were lost with one task.
            RoboRLError: The object of a worker raised this error.
        """
        numbered, again = enumerate(tasks), deque[tuple[int, bytes]]()
        held: dict[int, tuple[int, bytes]] = {}
        losses, waiting = Counter[int](), dict[int, bytes]()
        drawn = given = 0
        while True:
            for index in self.idle:
                if ahead and not again and drawn - given >= ahead:
                    break
                task = again.popleft() if again else next(numbered, None)
                if task is None:
                    if not held:
                        return
                    break
                drawn = max(drawn, task[0] + 1)
                held[index] = task
                self.ask(index, "work", task[1])
            if (reply := self.next(TICK)) is None:
                continue
            task = held.pop(reply.place, None)
            if reply.raw is None:  # the one that takes its place is made first: it may have to wait for room
                self.ask(reply.place)
                if task is not None:
                    losses[task[0]] += 1
                    if losses[task[0]] >= self._most_losses:
                        what = f"Task {task[0]} cost {losses[task[0]]} workers in a row."
                        raise WorkerFailed(what, got=f"{reply.name} was the last", fix=Kind().fix)
                    again.append(task)
                continue
            content = reply.content  # raises the worker's error, also one of its constructor
            if task is not None:
                waiting[task[0]] = content
            while waiting and (not ahead or given in waiting):
                number = given if ahead else next(iter(waiting))
                given += 1
                yield number, waiting.pop(number)
