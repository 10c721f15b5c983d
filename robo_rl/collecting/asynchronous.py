"""Off-policy training whose steps come from other processes: each acts on its own, the learner learns from what has come.

Segments are learnt from step by step in the order in which they came, with as many updates for each as in one process.
They are on disk before that, so that the learner's state follows from its checkpoint and the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robo_rl.actor_learner.acting import transferable
from robo_rl.actor_learner.learning import AbsentEnvironment
from robo_rl.checkpoints import Checkpoint, checkpoint_steps, save_checkpoint
from robo_rl.collecting.crew import Crew
from robo_rl.collecting.segment_log import SegmentLog
from robo_rl.collecting.segments import Segment
from robo_rl.errors import require_allowed
from robo_rl.protocols import Learner, TrainingObserver
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec
from robo_rl.training import OnlineTraining
from robo_rl.types import Episode, Metrics, StateDict, Transition

TICK = 0.5  # [s] between two looks for collectors that hang


@dataclass(frozen=True)
class Pace:
    """How far collectors may run ahead of the learner."""

    segment: int = 32
    """Most steps that are sent at once."""
    requests: int = 2
    """Open requests to a collector, so that it need not wait for the next one."""
    every: int = 10
    """Steps that are learnt from between two versions of the parameters, as between two processes at a robot."""
    most_stale: int = 0
    """Steps that may be learnt from between the parameters that chose an action, and learning from it, beside `every`; 0 for
    two segments for each request that may be open."""

    def __post_init__(self) -> None:
        positive = ("segment", "requests", "every")
        require_allowed(self, {name: (getattr(self, name) >= 1, "1 or more") for name in positive})
        least = 2 * self.segment
        require_allowed(self, {"most_stale": (self.most_stale == 0 or self.most_stale >= least, f"{least} or more, or 0")})

    def ahead(self, collectors: int) -> int:
        """Returns how many steps may be asked for and not learnt from yet, and how old the oldest open request may be."""
        return (self.most_stale or 2 * self.segment * self.requests * collectors) // 2


class AsynchronousTraining(OnlineTraining):
    """Remembers and learns what `OnlineTraining` would from the same steps; collectors act with parameters of bounded age.

    A request says with which parameters a segment is to be acted. None is sent while `Pace.ahead` steps are not learnt from,
    nor while an open one is older than that: the fast wait for the slow (Ho et al. 2013, "More Effective Distributed ML via a
    Stale Synchronous Parallel Parameter Server"). Hence parameters are never older than Pace.most_stale + Pace.every.
    """

    def __init__(  # noqa: PLR0913
        self,
        spec: EnvironmentSpec,
        learner: Learner,
        sampling: Sampling,
        crew: Crew,
        log: SegmentLog,
        checkpoints: Path,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        pace: Pace = Pace(),
    ) -> None:
        absent = AbsentEnvironment(spec)
        super().__init__(absent, learner, sampling, steps=steps, seed=seed, demonstrations=demonstrations)
        self.crew, self._log, self._checkpoints, self._pace = crew, log, checkpoints, pace
        self._parameters = transferable(learner, fix="leave --collectors out")
        self._asked = [deque[int]() for _ in range(crew.count)]  # steps of each open request
        self._waiting: deque[Segment] = deque()
        self._steps: deque[Transition] = deque()  # of the segment that is being learnt from
        self._segment: Segment | None = None
        self._running = -1  # birth of the collector whose episode is being learnt from
        self.stalest = 0
        """Most steps so far that parameters were old when what they chose was learnt from."""

    def run(self, observer: TrainingObserver) -> None:
        """Trains from the present step to the last."""
        try:
            super().run(observer)
        finally:
            self._log.close()

    def _make_ready(self, observer: TrainingObserver) -> None:
        """Takes in what has come, asks for more where it may, and waits for it where there is nothing to learn from."""
        self._observer = observer
        self._hear(0.0)
        self._ask()
        while not self._steps:
            if self._waiting:
                self._open(self._waiting.popleft())
            else:
                self.stopwatch.time("simulate", partial(self._hear, TICK))
                self._ask()

    def _act(self) -> Transition:
        return self._steps.popleft()

    def _remember(self, transition: Transition) -> None:
        assert self._segment is not None
        self.stalest = max(self.stalest, self._staleness)
        super()._remember(transition)
        if not self._steps and (end := self._segment.end) is not None:
            self.episodes += 1
            self._observer.on_episode(self.step, **{name: value for name, value in end.items() if name != "terminated"})

    def _learn(self) -> Metrics:
        found = super()._learn()
        return found | self._account if found else {}

    @property
    def _staleness(self) -> int:
        return 0 if self._segment is None else self.step - 1 - self._segment.version

    @property
    def _account(self) -> Metrics:
        return {
            "collect/collectors": float(self.crew.count),
            "collect/staleness": float(self._staleness),
            "collect/stalest": float(self.stalest),
            "collect/waiting": float(len(self._steps) + sum(map(len, self._waiting))),
            "collect/lost": float(self.crew.losses),
        }

    def _hear(self, timeout: float) -> None:
        """Writes what has come to the log; waits at most so long [s] for the first."""
        while (reply := self.crew.next(timeout)) is not None:
            timeout = 0.0
            if reply.content is None:
                self._asked[reply.place].clear()
                continue
            segment = Segment(reply.content)
            self._log.add(reply.raw, len(segment))
            self._asked[reply.place].popleft()
            self._waiting.append(segment)

    @property
    def _ahead(self) -> int:
        """Steps that were asked for and are not learnt from yet."""
        return sum(map(sum, self._asked)) + len(self._steps) + sum(map(len, self._waiting))

    def _ask(self) -> None:
        """Asks those that have the fewest open requests, as long as that is allowed."""
        crew, limit = self.crew, self._pace.ahead(self.crew.count)
        while crew.oldest is None or self.step - crew.oldest <= limit:
            index, ahead = min(range(crew.count), key=crew.open), self._ahead
            steps = min(self._pace.segment, self.steps - self.step - ahead)
            if crew.open(index) >= self._pace.requests or steps < 1 or ahead + steps > limit:
                return
            self._publish()
            is_random = self.step + ahead < self.sampling.learning_starts
            crew.ask(index, {"steps": steps, "is_random": is_random})
            self._asked[index].append(steps)

    def _publish(self) -> None:
        if self.crew.version < 0 or self.step - self.crew.version >= self._pace.every:
            self.crew.publish(self.step, self._parameters.parameters())

    def _open(self, segment: Segment) -> None:
        """Begins to learn from a segment."""
        if segment.begins or segment.birth != self._running:
            self.memory.begin(segment.observation)
        self._segment, self._running = segment, segment.birth
        self._steps.extend(segment.transitions())

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Writes a checkpoint, and removes what the log has from before the oldest that is kept."""
        save_checkpoint(self._checkpoints, Checkpoint(step, parts))
        self._log.forget(min(checkpoint_steps(self._checkpoints)))

    def state_dict(self) -> StateDict:
        """Returns learner, replay, generators and counters; what is not learnt from yet lies in the log."""
        own = {"births": self.crew.births, "running": self._running, "stalest": self.stalest}
        return super().state_dict() | {"collecting": own}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores a training; `go_on` follows."""
        own = dict(state)
        collecting = own.pop("collecting")
        super().load_state_dict(own)
        self._running, self.stalest = int(collecting["running"]), int(collecting["stalest"])
        self.crew.births = int(collecting["births"])

    def go_on(self, state: StateDict | None) -> None:
        """Restores what a checkpoint holds, where there is one, and takes in what the log has behind it.

        Collectors begin new episodes: warm, where there is anything to go on from.
        """
        if state is not None:
            self.load_state_dict(state)
        for before, segment in self._log.since(self.step):
            self.crew.births = max(self.crew.births, segment.birth + 1)
            if before < self.step:
                self._segment = segment
                self._steps.extend([*segment.transitions()][self.step - before :])
            else:
                self._waiting.append(segment)
        self.resumed = "warm" if self.step or self._waiting else None
