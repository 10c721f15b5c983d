"""Learning process of a training: reads the steps of the acting process from a log, in order."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import ClassVar, NoReturn

from robo_rl.errors import RoboRLError
from robo_rl.protocols.components import TrainingObserver
from robo_rl.rollout.step_log import StepReader
from robo_rl.runs.checkpoints import has_checkpoint, load_checkpoint
from robo_rl.training.actor_learner.server import EVERY, Finished, LearnerServer
from robo_rl.training.off_policy import OnlineTraining
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.training.step_sources import StepSink
from robo_rl.types import Metrics, StateDict, Transition

OWN = ("learner", "replay", "offline", "training")
"""Parts of a checkpoint that belong to the learning process."""
IDLE = 0.005  # [s] between two looks at a log without news


class LogSteps:
    """Source of steps that reads them from the log of the acting process, and waits for more at the end of the log."""

    replays, stride = True, 1
    metrics: ClassVar[Metrics] = {}

    def __init__(self) -> None:
        self.taken = 0
        self.episode: StepReader | None = None
        """The log, opened behind the step that was restored."""
        self._wait: Callable[[], None] | None = None

    def open(self, steps: StepReader, wait: Callable[[], None]) -> None:
        """Read from `steps`; `wait` is called while the log has no new record."""
        self.episode, self._wait = steps, wait

    def step(self, sink: StepSink) -> Transition:
        """Return the next step; calls `sink.begin` for episodes that begin before it."""
        assert self.episode is not None and self._wait is not None
        while not isinstance(found := self.episode.following(), Transition):
            if found is None:
                self._wait()
            else:
                sink.begin(self.episode)
        self.taken += 1
        return found

    def report(self, observer: TrainingObserver) -> bool:
        """Report nothing and return False, because the acting process reports the episodes."""
        return False

    def state_dict(self) -> StateDict:
        """Return an empty state: the log is on disk."""
        return {}

    def load_state_dict(self, state: StateDict, sink: StepSink) -> str:
        """Continue after the saved step of the log."""
        self.taken = state["step"]
        return "exact"


class LearningTraining(OnlineTraining[LogSteps]):
    """Training loop of the learning process: reads steps from the log, updates the learner.

    Bit-identical to a training in one process from the same steps, also after a kill.
    """

    def __init__(self, step_learner: ReplayLearner, *, steps: int) -> None:
        super().__init__(LogSteps(), step_learner, steps=steps)
        self.acting_parts: dict[str, StateDict] = {}
        """Parts of a checkpoint that are the acting process's, as it last sent them."""

    def learn_from(self, steps: StepReader, server: LearnerServer) -> NoReturn:
        """Learn from the log; raises Finished once the acting process needs no more updates, or has ended."""
        self.source.open(steps, lambda: server.serve(self.step, self, IDLE))
        server.publish(self.step, self.policy)
        server.serve(self.step, self)  # requests from before the first step
        self.run(server)  # type: ignore[arg-type]
        while True:
            server.serve(self.step, self, IDLE)

    def load_from(self, parts: dict[str, StateDict], steps: StepReader) -> None:
        """Restore a checkpoint exactly; `steps` is the log, opened after the last step of the checkpoint."""
        self.source.episode = steps
        self.acting_parts = {name: part for name, part in parts.items() if name not in OWN}
        self.load_state_dict({name: parts[name] for name in OWN})


def learn(
    training: LearningTraining,
    connection: Connection,
    checkpoints: Path,
    steps_from: Callable[[int], StepReader],
    *,
    every: int = EVERY,
) -> int:
    """Resume from the newest checkpoint, learn from the log to its end, and return the exit status of the process.

    Args:
        training: Training at step 0.
        connection: Socket to the acting process.
        checkpoints: Folder of the checkpoints.
        steps_from: Opens the log after a given step.
        every: Steps between two sendings of parameters.
    """
    checkpoint = load_checkpoint(checkpoints) if has_checkpoint(checkpoints) else None
    steps = steps_from(0 if checkpoint is None else checkpoint.step)
    server = LearnerServer(connection, checkpoints, steps.forget, every=every)
    try:
        if checkpoint is not None:
            training.load_from(checkpoint.parts, steps)
        training.learn_from(steps, server)
    except Finished:
        return 0
    except RoboRLError as error:
        server.fail(error)
        return 1
    return 0
