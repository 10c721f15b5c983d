"""The acting half of a training: keeps the rate, writes every step to a log, acts with the newest parameters there are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import gymnasium

from robo_rl.actor_learner.learning import Beginning
from robo_rl.actor_learner.process import LearnerProcess
from robo_rl.errors import InvalidSetting
from robo_rl.extras import recorded
from robo_rl.protocols import Learner, Stateful, TrainingObserver, TrainingSupervisor, TransferablePolicy
from robo_rl.rollout import RandomPolicy, Rollout
from robo_rl.sampling import Sampling
from robo_rl.spec import Observation
from robo_rl.training import OnlineTraining
from robo_rl.types import Metrics, StateDict, Transition

MOST_AHEAD = 100
"""steps that the learner may be behind: 5 s at 20 Hz"""


class StepWriter(Protocol):
    """The log of steps."""

    steps: int
    episodes: int

    def begin(self, observation: Observation, *, seed: int | None, instruction: str | None) -> None:
        """An episode begins."""
        ...

    def step(self, transition: Transition) -> None:
        """Writes a step; what has returned from here is never lost."""
        ...

    def since(self, step: int) -> Iterator[Beginning | Transition]:
        """Yields what was written from a step on."""
        ...

    def close(self) -> None:
        """Ends writing."""
        ...


@dataclass(frozen=True)
class Apart:
    """What connects the acting half to a learner in another process."""

    log: StepWriter
    process: LearnerProcess
    most_ahead: int = MOST_AHEAD


class ActingTraining(OnlineTraining):
    """Acts; a learner in another process learns from what was done (robo_rl.actor_learner.learning).

    While there is no learner, or it is behind, nothing moves: an environment whose time goes on, which has a method `hold`, is
    told to hold, and the episode ends there; others wait for the next step anyway.
    """

    def __init__(
        self,
        environment: gymnasium.Env[Any, Any],
        learner: Learner,
        sampling: Sampling,
        apart: Apart,
        *,
        steps: int,
        seed: int,
        supervisor: TrainingSupervisor | None = None,
    ) -> None:
        """learner: one like that of the other process, whose policy acts; it learns nothing here."""
        acting = replace(
            sampling,
            replay_capacity=2,
            replay_folder=None,
            offline_fraction=0.0,
            keeps_corrections=False,
        )
        super().__init__(environment, learner, acting, steps=steps, seed=seed, supervisor=supervisor)
        self.log, self.process, self._most_ahead = apart.log, apart.process, apart.most_ahead
        self.step, self.episodes = apart.log.steps, apart.log.episodes
        if self.step:
            self.resumed = "warm"
            self.random = RandomPolicy(learner.policy.environment_spec, seed + self.step)
            self._count_again(0)
        self._hold = environment.get_wrapper_attr("hold") if environment.has_wrapper_attr("hold") else None
        self.version = -1
        """steps that were learnt from for the parameters that act"""
        self.holds, self.held = 0, 0.0
        """times that it was held for the learner, and for how long [s] in all, the start not counted"""
        self._acting_policy = transferable(learner)

    @property
    def is_in_real_time(self) -> bool:
        """Whether the environment's time goes on between two steps."""
        return self._hold is not None

    def may_begin(self) -> bool:
        """Listens to the learner; returns whether an episode that begins now need not wait for it."""
        self.process.poll()
        return self._may_act(self._most_ahead)

    def run(self, observer: TrainingObserver) -> None:
        """Acts to the last step; whatever ends it, what goes on by itself is held then."""
        try:
            super().run(observer)
        finally:
            if self._hold is not None:
                self._hold()

    def save(self, step: int, parts: dict[str, StateDict]) -> None:
        """Has the learner write a checkpoint, when it gets to that step; the loop does not wait for it."""
        problem, self.process.problem = self.process.problem, ""
        if problem:
            raise OSError(problem)
        self.process.ask(save=step, parts=parts)

    def close(self) -> None:
        """Ends the learner once it has learnt from every step and saved; raises RunError where it cannot."""
        self.log.close()
        self.process.finish(self.step)
        self._renew()

    def kill(self) -> None:
        """Ends the learner at once; what it has not saved lies in the log."""
        self.log.close()
        self.process.kill()

    def state_dict(self) -> StateDict:
        """Returns what the acting half needs of a checkpoint; the learner adds its own."""
        policy = self.policy
        return {
            "acting": {
                "step": self.step,
                "episodes": self.episodes,
                "diverged": self.diverged,
                "random": self.random.state_dict(),
                "policy": policy.state_dict() if isinstance(policy, Stateful) else {},
                "supervisor": {} if self.supervisor is None else self.supervisor.state_dict(),
                "seconds": self.stopwatch.state_dict(),
            }
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Goes on behind the last step of the log, with the rest as the checkpoint has it: warm."""
        self.resumed = "warm"
        if "acting" not in state:  # it was interrupted before the acting half was saved
            return
        acting = state["acting"]
        self.episodes, self.diverged = max(acting["episodes"], self.episodes), acting["diverged"]
        self.random.load_state_dict(acting["random"])
        self.stopwatch.load_state_dict(acting["seconds"])
        if isinstance(self.policy, Stateful):
            self.policy.load_state_dict(acting["policy"])
        if self.supervisor is not None:
            self.supervisor.load_state_dict(acting["supervisor"])
        self._count_again(acting["step"])
        self.process.ask(parts=self.state_dict())  # a checkpoint that the learner writes by itself has this count, too

    def _count_again(self, step: int) -> None:
        """Has the supervisor count what an earlier process did behind a step."""
        if self.supervisor is None:
            return
        for told in self.log.since(step):
            if isinstance(told, Transition):
                self.supervisor.count(told.source)
            else:
                self.supervisor.begin()

    def _make_ready(self, observer: TrainingObserver) -> None:
        """Listens to the learner; holds while there is none, or while it is too far behind."""
        self.process.poll()
        if self._may_act(self._most_ahead * (1 if self._rollout is None or self._hold is None else 2)):
            self._renew()
            return
        has_begun, start = self.process.is_ready or self.process.restarts > 0, time.monotonic()
        self._be_still(observer)
        self.process.wait_until(lambda: self._may_act(self._most_ahead // 2))
        self._renew()
        if has_begun:
            self.holds += 1
            self.held += time.monotonic() - start

    def _may_act(self, ahead: int) -> bool:
        return self.process.is_ready and self.step - self.process.step <= ahead

    def _be_still(self, observer: TrainingObserver) -> None:
        if self._hold is None:
            return
        if isinstance(self._rollout, Rollout):
            self._rollout.cut("learner_behind" if self.process.is_ready else "learner_lost")
            self._finish(self._rollout, observer)
        self._hold()

    def _renew(self) -> None:
        """Takes newer parameters over, where there are any."""
        if (found := self.process.parameters()) is not None:
            self.version, parameters = found
            self._acting_policy.load_parameters(parameters)

    def _begun(self) -> Rollout:
        rollout = super()._begun()
        self.log.begin(rollout.observation, seed=rollout.seed, instruction=rollout.instruction)
        return rollout

    def _remember(self, transition: Transition) -> None:
        columns = recorded(self.policy.environment_spec, self.sampling.extras, transition)
        self.log.step(replace(transition, columns=columns))

    def _learn(self) -> Metrics:
        found = self.process.metrics()
        return {} if not found else found | self._account

    @property
    def _account(self) -> Metrics:
        return {
            "learner/version": float(self.version),
            "learner/staleness": float(self.step - self.version),
            "learner/behind": float(self.step - self.process.step),
            "learner/restarts": float(self.process.restarts),
            "learner/holds": float(self.holds),
            "learner/held_s": self.held,
        }


def transferable(learner: Learner, *, fix: str = "set learner_process to off") -> TransferablePolicy:
    """Returns a learner's policy, whose parameters can be sent; raises InvalidSetting where they cannot."""
    if isinstance(learner.policy, TransferablePolicy):
        return learner.policy
    raise InvalidSetting(
        f"The policy of {type(learner).__name__} cannot be sent to another process.",
        got=type(learner.policy).__name__,
        allowed="a policy with parameters and load_parameters, such as those of sac, rlpd and hil-serl",
        fix=fix,
    )
