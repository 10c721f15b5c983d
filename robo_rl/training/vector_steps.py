"""Steps of a vector environment, as a source of steps for an off-policy training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gymnasium
from gymnasium.vector import AutoresetMode

from robo_rl.environments.lasting import environment_metrics, lasting_state, load_lasting_state
from robo_rl.environments.repeatable import repeatable
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import TrainingObserver, TrainingSupervisor, VectorFactory
from robo_rl.rollout.vector import Environments, VectorRollout
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.episode_reports import EpisodeReports
from robo_rl.training.step_sources import Explorer, episode_seed
from robo_rl.types import Array, Metrics, StateDict, VectorTransition

FEWEST = 2  # steps of a training: a rollout of one row has no deviation to normalise by


def require_steps(steps: int, environments: int) -> None:
    """Raise InvalidSetting if a training of `steps` steps is shorter than one step of all environments."""
    if 0 < steps < max(environments, FEWEST):
        raise InvalidSetting(
            "The training is shorter than one step of all environments.",
            got=f"{steps} steps, {environments} environments",
            allowed=f"{max(environments, FEWEST)} steps or more",
            fix="more --steps, or fewer --environments (on-policy: with a --learner.batch-size that divides their rollout)",
        )


def make_vector(factory: Callable[[], gymnasium.Env[Any, Any]], num_envs: int) -> tuple[Environments, EnvironmentSpec]:
    """Make a vector environment of `num_envs` environments, and return it with its spec.

    factory: makes the vector environment if it is a VectorFactory; otherwise single environments, which are stepped one by one.
    """
    if not isinstance(factory, VectorFactory):
        sequential = SequentialEnvironments(factory, num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        return sequential, sequential.environment_spec
    environments = factory.make_vector(num_envs)
    spec = environments.environment_spec  # type: ignore[attr-defined]  # not one of Gymnasium's attributes
    return environments, spec


class VectorSink(Protocol):
    """Interface of what receives the starts of episodes from a vector environment."""

    def begin_all(self, observations: Mapping[str, Array], infos: Mapping[str, Any]) -> None:
        """Begin an episode in each environment; running episodes are first cut at their last steps."""

    def break_off(self) -> None:
        """Cut all running episodes at their last steps, because a resumed training does not continue them."""

    @property
    def gets_rewards(self) -> bool:
        """True if steps wait for the rewards of a reward model."""


class VectorSteps:
    """Source of steps that acts in N environments at once; a supervisor may override the actions of environment 0.

    A resume is exact if the environments can be saved, or repeat themselves with the same actions. Otherwise, and with rewards
    of a model, for which steps may wait, every environment begins a new episode.
    """

    episode = None

    def __init__(
        self,
        environments: Environments,
        explorer: Explorer,
        *,
        seed: int,
        supervisor: TrainingSupervisor | None = None,
    ) -> None:
        self.environments, self.supervisor = repeatable(environments, episode_seed), supervisor
        self.reports = EpisodeReports()
        self._rollout = VectorRollout(self.environments, supervisor)
        self._explorer, self._seed = explorer, seed

    @property
    def stride(self) -> int:
        """Number of environments, which all step at once."""
        return len(self._rollout)

    @property
    def taken(self) -> int:
        """Steps so far, over all environments."""
        return self._explorer.taken

    @property
    def replays(self) -> bool:
        """True, because a vector environment is never a robot."""
        return True

    @property
    def metrics(self) -> Metrics:
        """Empty: everything is reported at the end of an episode."""
        return {}

    def step(self, sink: VectorSink) -> VectorTransition:
        """Take a step in each environment; raises InvalidAction, InvalidEpisode, EnvironmentFailed."""
        rollout = self._rollout
        if not rollout.is_under_way:
            # the step stands for the episodes before it, so that those of a warm resume are new ones
            rollout.begin([episode_seed(self._seed, self.taken + place) for place in range(self.stride)])
            sink.begin_all(rollout.observations, rollout.infos)
        steps = rollout.step(self._explorer.act_all(rollout.observations))
        self._explorer.taken += self.stride
        return steps

    def report(self, observer: TrainingObserver) -> bool:
        """Report the episodes that ended with the newest step; raises SimulationFailed if too many diverged."""
        for ended in self._rollout.ended:
            self.reports.report_ended(observer, self.taken, ended, self.stride)
            if self.supervisor is not None and ended.place == 0:
                observer.on_metrics(self.taken, self.supervisor.metrics)
        if not self._rollout.ended:
            return False
        if metrics := environment_metrics(self.environments):
            observer.on_metrics(self.taken, metrics)
        return True

    def state_dict(self) -> StateDict:
        """Return the running episodes, random generators and counters."""
        return {
            "reports": self.reports.state_dict(),
            "random": self._explorer.random.state_dict(),
            "rollout": self._rollout.state_dict(),
            "supervisor": {} if self.supervisor is None else self.supervisor.state_dict(),
            "lasting": lasting_state(self.environments),
        }

    def load_state_dict(self, state: StateDict, sink: VectorSink) -> str:
        """Restore the counters and the running episodes; return the kind of resume, "exact" or "warm"."""
        self._explorer.taken = state["step"]
        self.reports.load_state_dict(state["reports"])
        self._explorer.random.load_state_dict(state["random"])
        load_lasting_state(self.environments, state["lasting"])
        self._rollout.load_state_dict(state["rollout"])
        if self.supervisor is not None:
            self.supervisor.load_state_dict(state["supervisor"])
        if sink.gets_rewards:
            self._rollout.abandon()
        if self._rollout.is_under_way or not self.taken:
            return "exact"
        sink.break_off()
        return "warm"
