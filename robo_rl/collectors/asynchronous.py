"""Off-policy training with asynchronous collectors: they act without waiting; the learner learns from arrived segments.

The learner takes the steps of segments in the order of arrival, with as many updates per step as in one process. Segments are
written to disk first, so that the state of the learner follows from its checkpoint and the log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.collectors.segments import Segment
from robo_rl.errors import require_allowed
from robo_rl.protocols.components import TrainingObserver, TransferablePolicy
from robo_rl.runs.checkpoints import Checkpoint, checkpoint_steps, save_checkpoint
from robo_rl.training.actor_learner.acting import transferable
from robo_rl.training.off_policy import OnlineTraining
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.training.step_sources import StepSink
from robo_rl.types import Metrics, StateDict, Transition

TICK = 0.5  # [s] between two looks for collectors that hang


@dataclass(frozen=True)
class Pace:
    """Limits on how far collector processes may run ahead of the learner, so that parameters do not become too old."""

    segment: int = 32
    """Largest number of steps that a collector sends at once, 1 or more."""
    requests: int = 2
    """Open requests per collector, so that a collector need not wait for the next one; 1 or more."""
    every: int = 10
    """Steps learned from between two versions of the parameters, 1 or more."""
    most_stale: int = 0
    """Largest number of steps that may be learned from between the choice of an action and learning from it, without counting
    `every`; at least 2 * segment. 0 for two segments per request that may be open."""

    def __post_init__(self) -> None:
        positive = ("segment", "requests", "every")
        require_allowed(self, {name: (getattr(self, name) >= 1, "1 or more") for name in positive})
        least = 2 * self.segment
        require_allowed(self, {"most_stale": (self.most_stale == 0 or self.most_stale >= least, f"{least} or more, or 0")})

    def ahead(self, collectors: int) -> int:
        """Return the limit [steps] that keeps parameters from becoming too old.

        It applies to the number of requested steps that are not yet learned from, and to the age of an open request.
        """
        return (self.most_stale or 2 * self.segment * self.requests * collectors) // 2


class CollectedSteps:
    """Source of steps for off-policy training: takes the segments that collectors send, in the order of arrival.

    A segment is a part of an episode. A request names the parameters with which the collector shall act. No request is sent
    while `Pace.ahead` requested steps are not yet learned from, or while an open request is older than that: fast collectors
    wait for slow ones (Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server").
    Hence parameters are never older than Pace.most_stale + Pace.every steps.
    """

    replays, stride = True, 1
    episode = None

    def __init__(
        self, policy: TransferablePolicy, pool: CollectorPool, log: SegmentLog, *, steps: int, learning_starts: int, pace: Pace
    ) -> None:
        self.pool = pool
        self.taken, self.episodes = 0, 0
        self._policy, self._log, self._pace = policy, log, pace
        self._total, self._random_until = steps, learning_starts
        self._requested = [deque[int]() for _ in range(pool.count)]  # steps of each open request
        self._waiting: deque[Segment] = deque()
        self._steps: deque[Transition] = deque()  # of the segment that is being learnt from
        self._segment: Segment | None = None
        self._running = -1  # birth of the collector of the present episode
        self.stalest = 0
        """Largest age so far, in steps, of the parameters behind a step when it was learnt from."""

    def step(self, sink: StepSink) -> Transition:
        """Store arrived segments, send requests within the limits, and return the next step, waiting if there is none."""
        self._receive(0.0)
        self._send_requests()
        while not self._steps:
            if self._waiting:
                self._open(self._waiting.popleft(), sink)
            else:
                self._receive(TICK)
                self._send_requests()
        self.taken += 1
        self.stalest = max(self.stalest, self._staleness)
        return self._steps.popleft()

    def report(self, observer: TrainingObserver) -> bool:
        """Report the episode that ended with the newest step, as its collector summarised it."""
        if self._steps or self._segment is None or (end := self._segment.end) is None:
            return False
        self.episodes += 1
        facts = {name: value for name, value in end.items() if name != "terminated"}
        observer.on_episode(self.taken, **facts, place=(self._segment.birth, self.pool.count))
        return True

    @property
    def metrics(self) -> Metrics:
        """Metrics for the log: number of collectors, age of the parameters, steps that wait in the queue, lost collectors."""
        return {
            "collect/collectors": float(self.pool.count),
            "collect/staleness": float(self._staleness),
            "collect/stalest": float(self.stalest),
            "collect/waiting": float(len(self._steps) + sum(map(len, self._waiting))),
            "collect/lost": float(self.pool.losses),
        }

    @property
    def _staleness(self) -> int:
        return 0 if self._segment is None else self.taken - 1 - self._segment.version

    def _receive(self, timeout: float) -> None:
        """Write arrived segments to the log; wait at most `timeout` [s] for the first."""
        while (reply := self.pool.next(timeout)) is not None:
            timeout = 0.0
            if reply.content is None:
                self._requested[reply.place].clear()
                continue
            segment = Segment(reply.content)
            self._log.add(reply.raw, len(segment))
            self._requested[reply.place].popleft()
            self._waiting.append(segment)

    @property
    def _ahead(self) -> int:
        """Requested steps without an update yet."""
        return sum(map(sum, self._requested)) + len(self._steps) + sum(map(len, self._waiting))

    def _send_requests(self) -> None:
        """Send requests to the collectors with the fewest open requests, as long as the limits allow."""
        pool, limit = self.pool, self._pace.ahead(self.pool.count)
        while pool.oldest is None or self.taken - pool.oldest <= limit:
            index, ahead = min(range(pool.count), key=pool.open), self._ahead
            steps = min(self._pace.segment, self._total - self.taken - ahead)
            if pool.open(index) >= self._pace.requests or steps < 1 or ahead + steps > limit:
                return
            self._publish()
            pool.ask(index, {"steps": steps, "is_random": self.taken + ahead < self._random_until})
            self._requested[index].append(steps)

    def _publish(self) -> None:
        if self.pool.version < 0 or self.taken - self.pool.version >= self._pace.every:
            self.pool.publish(self.taken, self._policy.parameters())

    def _open(self, segment: Segment, sink: StepSink) -> None:
        """Begin to learn from a segment."""
        if segment.begins or segment.birth != self._running:
            sink.begin(segment)  # type: ignore[arg-type]  # rewards of models, which ask for more, do not go with collectors
        self._segment, self._running = segment, segment.birth
        self._steps.extend(segment.transitions())

    def state_dict(self) -> StateDict:
        """Return the counters; steps that are not yet learned from are in the log."""
        return {"episodes": self.episodes, "births": self.pool.births, "running": self._running, "stalest": self.stalest}

    def load_state_dict(self, state: StateDict, sink: StepSink) -> str:
        """Restore the counters; call `go_on` afterwards."""
        self.taken, self.episodes = int(state["step"]), int(state["episodes"])
        self._running, self.stalest, self.pool.births = int(state["running"]), int(state["stalest"]), int(state["births"])
        return "warm"

    def go_on(self) -> bool:
        """Read the segments in the log that come after the present step, to continue a stopped training.

        Returns:
            False if neither the training nor the log has any step.
        """
        for before, segment in self._log.since(self.taken):
            self.pool.births = max(self.pool.births, segment.birth + 1)
            if before < self.taken:
                self._segment = segment
                self._steps.extend([*segment.transitions()][self.taken - before :])
            else:
                self._waiting.append(segment)
        return bool(self.taken or self._waiting)


class AsynchronousTraining(OnlineTraining[CollectedSteps]):
    """Off-policy training whose steps come from collector processes; it learns as one process would from the same steps."""

    def __init__(
        self,
        step_learner: ReplayLearner,
        pool: CollectorPool,
        log: SegmentLog,
        checkpoints: Path,
        *,
        steps: int,
        pace: Pace = Pace(),
    ) -> None:
        policy, starts = transferable(step_learner.learner, fix="leave --collectors out"), step_learner.sampling.learning_starts
        source = CollectedSteps(policy, pool, log, steps=steps, learning_starts=starts, pace=pace)
        super().__init__(source, step_learner, steps=steps)
        self.pool, self._log, self._checkpoints = pool, log, checkpoints

    @override
    def run(self, observer: TrainingObserver) -> None:
        try:
            super().run(observer)
        finally:
            self._log.close()

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Write a checkpoint of `parts` at `step`.

        Then delete those files of the segment log that are older than the oldest kept checkpoint, as no resume needs them.
        """
        save_checkpoint(self._checkpoints, Checkpoint(step, parts))
        self._log.forget(min(checkpoint_steps(self._checkpoints)))

    def go_on(self, state: StateDict | None) -> None:
        """Restore a checkpoint, if there is one, and the log after it.

        Collectors begin new episodes, so that the resume is "warm" if there was any step.
        """
        if state is not None:
            self.load_state_dict(state)
        self.resumed = "warm" if self.source.go_on() else None
