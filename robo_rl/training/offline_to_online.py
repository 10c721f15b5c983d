"""Learn from recorded episodes first, then in the environment, with recorded and own steps mixed in every batch.

This is one training with one count of steps: first updates without an environment, then environment steps. Protocol: Luo et al.
2024, "D5RL" (arXiv:2408.08441), which logs offline and online steps alike.
"""

from __future__ import annotations

from typing import Any

from robo_rl.protocols.components import Learner, Policy, Training, TrainingObserver
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.off_policy import OfflineTraining, OnlineTraining
from robo_rl.training.step_sources import StepSource
from robo_rl.types import Metrics, StateDict


class OfflineThenOnline:
    """Training loop in two phases of the same learner: updates from recorded episodes, then steps in the environment.

    The state of a run without the second phase can be restored, too; the second phase then follows.
    """

    def __init__(self, offline: OfflineTraining, online: OnlineTraining[StepSource[Any]]) -> None:
        """Combine the phases, which must share one stopwatch."""
        self.offline, self.online = offline, online

    @property
    def learner(self) -> Learner:
        """The learner of both phases."""
        return self.offline.learner

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.offline.policy

    @property
    def step(self) -> int:
        """Updates of the first phase plus environment steps of the second."""
        return self.offline.step + self.online.step

    @property
    def resumed(self) -> str | None:
        """Kind of resume of the restored phase, "exact" or "warm"; None without a resume."""
        return self.online.resumed or self.offline.resumed

    @property
    def stopwatch(self) -> Stopwatch:
        """Clock of both phases."""
        return self.offline.stopwatch

    def run(self, observer: TrainingObserver) -> None:
        """Take the remaining updates, then the remaining environment steps."""
        self.offline.run(_Whole(observer, self, 0))
        self.online.run(_Whole(observer, self, self.offline.steps))

    def state_dict(self) -> StateDict:
        """Return the state of the learner and data once, and the progress of each phase."""
        state = self.offline.state_dict()
        if self.online.step == 0:
            return state
        online = {name: part for name, part in self.online.state_dict().items() if name != "learner"}
        return state | {"online": online}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a training; the state may be that of an OfflineTraining."""
        self.offline.load_state_dict(state)
        if "online" in state:
            self.online.load_state_dict(state["online"] | {"learner": state["learner"]})


class _Whole:
    """Observer of one phase that reports its progress as that of the whole training."""

    def __init__(self, observer: TrainingObserver, training: OfflineThenOnline, before: int) -> None:
        self._observer, self._training, self._before = observer, training, before

    def on_episode(self, step: int, **outcome: Any) -> None:
        self._observer.on_episode(self._before + step, **outcome)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        self._observer.on_metrics(self._before + step, metrics)

    def on_step(self, step: int, training: Training) -> None:
        del training  # of one phase; the whole is saved
        self._observer.on_step(self._before + step, self._training)
