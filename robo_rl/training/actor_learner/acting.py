"""Acting process of a training: keeps the control rate, logs every step, acts with the newest parameters of the learner."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import gymnasium
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.extras import step_columns
from robo_rl.protocols.components import (
    EpisodeRecorder,
    Learner,
    Stateful,
    TrainingObserver,
    TrainingSupervisor,
    TransferablePolicy,
)
from robo_rl.protocols.sampling import Sampling
from robo_rl.rollout.episode import Rollout
from robo_rl.rollout.step_log import StepLog
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.actor_learner.process import LearnerProcess
from robo_rl.training.delayed_rewards import EpisodeUnderWay
from robo_rl.training.off_policy import StepLoop
from robo_rl.training.step_sources import EnvironmentSteps, Explorer
from robo_rl.types import Metrics, StateDict, Transition, VectorTransition

MOST_AHEAD = 100
"""Largest number of steps by which the learner may lag behind the acting process: 5 s at 20 Hz."""


@dataclass(frozen=True)
class LearnerConnection:
    """Connection of the acting process to the learner in another process: its handle, and the log of steps."""

    log: StepLog
    process: LearnerProcess
    most_ahead: int = MOST_AHEAD


class RemoteLearner:
    """Stands in the acting process for the learner in another process: sends steps through a log, receives parameters."""

    def __init__(self, learner: Learner, sampling: Sampling, apart: LearnerConnection) -> None:
        """Use `learner`, a copy of the other process's learner, for acting only; it is never updated here."""
        self.learner, self.policy, self.process = learner, transferable(learner), apart.process
        self._spec, self._extras = learner.policy.environment_spec, sampling.extras
        self.log, self._most_ahead = apart.log, apart.most_ahead
        self.version = -1
        """steps that were learnt from for the parameters that act"""
        self.holds, self.held = 0, 0.0
        """times that it was held for the learner, and for how long [s] in all, the start not counted"""

    @property
    def metrics(self) -> Metrics:
        """Empty, because the metrics of the learner come with its updates."""
        return {}

    def begin(self, episode: EpisodeUnderWay) -> None:
        """Write the start of an episode to the log."""
        assert isinstance(episode, Rollout)
        self.log.begin(episode.observation, seed=episode.seed, instruction=episode.instruction)

    def break_off(self) -> None:
        """Do nothing: the log marks the start of the next episode."""

    def add(self, step: Transition | VectorTransition) -> None:
        """Write a step to the log, from which the learning process reads it."""
        assert isinstance(step, Transition)
        self.log.step(replace(step, columns=step_columns(self._spec, self._extras, step)))

    def update(self, step: int) -> Metrics:
        """Return the learner's metrics since the last call and its lag behind `step`; empty if there are none."""
        found = self.process.metrics()
        return {} if not found else found | self._account(step)

    def may_act(self, step: int, *, ahead: float = 1.0) -> bool:
        """Read messages of the learner; return True if it runs and its lag is small enough.

        ahead: share of the allowed lag.
        """
        self.process.poll()
        return self._is_near(step, ahead)

    def wait(self, step: int) -> None:
        """Wait until the learner runs and lags by at most half of the allowed lag."""
        has_begun, start = self.process.is_ready or self.process.restarts > 0, time.monotonic()
        self.process.wait_until(partial(self._is_near, step, 0.5))
        if has_begun:
            self.holds += 1
            self.held += time.monotonic() - start

    def renew(self) -> None:
        """Load newer parameters into the policy, if the learner has sent any."""
        if (found := self.process.parameters()) is not None:
            self.version, parameters = found
            self.policy.load_parameters(parameters)

    def _is_near(self, step: int, ahead: float) -> bool:
        return self.process.is_ready and step - self.process.step <= int(self._most_ahead * ahead)

    def _account(self, step: int) -> Metrics:
        return {
            "learner/version": float(self.version),
            "learner/staleness": float(step - self.version),
            "learner/behind": float(step - self.process.step),
            "learner/restarts": float(self.process.restarts),
            "learner/holds": float(self.holds),
            "learner/held_s": self.held,
        }


class ActingTraining(StepLoop[EnvironmentSteps, RemoteLearner]):
    """Training loop of the acting process; the learner is in another process (robo_rl.training.actor_learner.learning).

    While there is no learner, or it lags too much, nothing moves. An environment in real time, which has a method `hold`, holds
    still, and its episode is cut; other environments simply wait for the next step.
    """

    def __init__(self, source: EnvironmentSteps, step_learner: RemoteLearner, *, steps: int, stopwatch: Stopwatch) -> None:
        super().__init__(source, step_learner, steps=steps, stopwatch=stopwatch)
        self.process = step_learner.process
        if self.step:
            self.resumed = "warm"
            self._count_again(0)

    @property
    def learner(self) -> Learner:
        """Copy of the other process's learner, whose policy acts."""
        return self.step_learner.learner

    @property
    def is_in_real_time(self) -> bool:
        """True if the environment runs in real time."""
        return self.source.is_in_real_time

    def may_begin(self) -> bool:
        """Read messages of the learner; return True if an episode may begin without waiting for the learner."""
        return self.step_learner.may_act(self.step)

    @override
    def prepare(self, observer: TrainingObserver) -> None:
        may_finish = self.is_in_real_time and self.source.episode is not None
        if not self.step_learner.may_act(self.step, ahead=2.0 if may_finish else 1.0):
            self.source.cut("learner_behind" if self.process.is_ready else "learner_lost", observer)
            self.step_learner.wait(self.step)
        self.step_learner.renew()

    @override
    def run(self, observer: TrainingObserver) -> None:
        try:
            super().run(observer)
        finally:
            self.source.hold()

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Request a checkpoint from the learner when it reaches step `step`, and return at once.

        Raises OSError if the checkpoint before could not be written.
        """
        problem, self.process.problem = self.process.problem, ""
        if problem:
            raise OSError(problem)
        self.process.ask(save=step, parts=parts)

    def close(self) -> None:
        """Wait until the learner has learned from every step and saved, then end it; raises RunError if it cannot."""
        self.step_learner.log.close()
        self.process.finish(self.step)
        self.step_learner.renew()

    def kill(self) -> None:
        """End the learner at once; the log keeps the steps after its last checkpoint."""
        self.step_learner.log.close()
        self.process.kill()

    @override
    def state_dict(self) -> StateDict:
        policy = self.policy
        own = {"policy": policy.state_dict() if isinstance(policy, Stateful) else {}, "seconds": self.stopwatch.state_dict()}
        return {"acting": {"step": self.step, **self.source.state_dict(), **own, "rollout": None}}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.resumed = "warm"
        if "acting" not in state:  # it was interrupted before the acting half was saved
            return
        acting = state["acting"]
        behind = {"step": self.step, "episodes": max(acting["episodes"], self.source.episodes)}
        self.source.load_state_dict(acting | behind, self.step_learner)
        self.stopwatch.load_state_dict(acting["seconds"])
        if isinstance(self.policy, Stateful):
            self.policy.load_state_dict(acting["policy"])
        self._count_again(acting["step"])
        self.process.ask(parts=self.state_dict())  # a checkpoint that the learner writes by itself has this count, too

    def _count_again(self, step: int) -> None:
        """Add the steps of an earlier process after step `step` to the supervisor's statistics."""
        if (supervisor := self.source.supervisor) is None:
            return
        for record in self.step_learner.log.since(step):
            if isinstance(record, Transition):
                supervisor.count(record.source)
            else:
                supervisor.begin()


def acting_training(  # noqa: PLR0913
    environment: gymnasium.Env[Any, Any],
    learner: Learner,
    sampling: Sampling,
    apart: LearnerConnection,
    *,
    steps: int,
    seed: int,
    supervisor: TrainingSupervisor | None = None,
    recorder: EpisodeRecorder | None = None,
    acts_at_once: bool = False,
) -> ActingTraining:
    """Return the training loop of the acting process, which continues after the last step of its log.

    learner: copy of the other process's learner, see RemoteLearner.
    """
    log, stopwatch, random_steps = apart.log, Stopwatch(), 0 if acts_at_once else sampling.learning_starts
    explorer = Explorer(learner.policy, seed=seed, random_steps=random_steps, stopwatch=stopwatch, taken=log.steps)
    source = EnvironmentSteps(environment, explorer, seed=seed, supervisor=supervisor, recorder=recorder, episodes=log.episodes)
    return ActingTraining(source, RemoteLearner(learner, sampling, apart), steps=steps, stopwatch=stopwatch)


def transferable(learner: Learner, *, fix: str = "set learner_process to off") -> TransferablePolicy:
    """Return the policy of a learner; raises InvalidSetting if its parameters cannot be sent to another process."""
    if isinstance(learner.policy, TransferablePolicy):
        return learner.policy
    raise InvalidSetting(
        f"The policy of {type(learner).__name__} cannot be sent to another process.",
        got=type(learner.policy).__name__,
        allowed="a policy with parameters and load_parameters, such as those of sac, rlpd and hil-serl",
        fix=fix,
    )
