"""Plan of a training: everything from which `TrainingPlan.training` builds the training loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector import AutoresetMode

from robo_rl.environments.frame_stack import stacked_episode
from robo_rl.environments.vector import SequentialEnvironments
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import EpisodeRecorder, Learner, Training, TrainingSupervisor, VectorFactory
from robo_rl.protocols.contract import OFFLINE, OFFLINE_THEN_CORRECTED, OFFLINE_THEN_ONLINE, ONLINE_IN_MANY, Loop
from robo_rl.protocols.learners import SelfTrainedConfig
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.protocols.sampling import Sampling
from robo_rl.rollout.vector import Environments
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.off_policy import OfflineTraining, OnlineTraining, online_training
from robo_rl.training.offline_to_online import OfflineThenOnline
from robo_rl.training.step_sources import EnvironmentSteps
from robo_rl.training.vector_steps import VectorSteps, make_vector
from robo_rl.types import Episode, StateDict

Environment = gymnasium.Env[Any, Any]
Accompany = Callable[[Environment], tuple[Environment, TrainingSupervisor]]
"""Function that puts an environment under supervision: returns the supervised environment, and the supervisor."""


@dataclass(frozen=True)
class OnlinePhase:
    """Settings of the environment steps that follow after learning from recorded episodes (online phase)."""

    steps: int = 0
    """Environment steps of the phase; 0 for no online phase."""
    offline_fraction: float = 0.5
    """Share of each batch that comes from recorded episodes, 0 to 1."""
    replay_capacity: int = 1_000_000
    """Rows of the replay memory of own steps."""

    def sampling(self, sampling: Sampling) -> Sampling:
        """Return the sampling settings of this phase, given those of the phase before."""
        return replace(
            sampling,
            learning_starts=1,
            offline_fraction=1.0 if sampling.keeps_corrections else self.offline_fraction,  # corrections alone are learnt from
            capacity=self.replay_capacity,
        )


@dataclass(frozen=True)
class Initial:
    """Learned state of another run, with which a training begins instead of random networks."""

    name: str
    """Name of the run whose state is taken."""
    state: StateDict
    """State of that run's learner."""
    reading: EnvironmentSpec
    """Spec of that run's policy: the observations that it reads, and its actions."""


class Acting(NamedTuple):
    """Parts of a training that act in the environment: environment, learner whose policy acts, and supervisor."""

    environment: Environment
    learner: Learner
    person: TrainingSupervisor | None


@dataclass(frozen=True)
class TrainingPlan:
    """Description of a training that has not started: learner, loop, environments, data, seed.

    Environments are made when they are first needed.
    """

    config: Any
    """Settings of the learner (robo_rl.protocols.learners)."""
    loop: Loop
    """Training loop that `robo_rl.training.compatibility.require_loop` chose."""
    spec: EnvironmentSpec
    """Spec of the environments, including the entries that only the reward reads."""
    environments: VectorFactory
    """Makes the training environments."""
    steps: int
    """Environment steps of the training, or updates if there is no environment."""
    seed: int
    """Seed of everything random."""
    reward: OnlineRewards | None = None
    """Reward model; None for the environment's own reward."""
    demonstrations: Sequence[Episode] = ()
    """Recorded episodes to learn from."""
    online: OnlinePhase = OnlinePhase()
    """Settings of the environment steps after learning from recorded episodes."""
    person: Accompany | None = None
    """Puts the environment under the supervision of a person; None without a person."""
    initial: Initial | None = None
    """Learned state with which the learner begins; None for a fresh learner."""
    recorder: EpisodeRecorder | None = None
    """Records training episodes; None to record none."""
    reads: Sequence[str] = ()
    """Names of the observation entries that the learner reads, those of its initial run; empty for all."""
    acts_at_once: bool = False
    """True if the policy acts from the first step on, without random actions."""
    count: int = 1
    """Number of environments in which an off-policy learner acts at once (ONLINE_IN_MANY)."""

    @property
    def visible(self) -> EnvironmentSpec:
        """Spec with the entries that the policy reads."""
        spec = self.spec if self.reward is None else self.reward.visible(self.spec)
        return spec.restricted(self.reads) if self.reads else spec

    def learner(self) -> Learner:
        """Build the learner, untrained or with the state of `initial`.

        Raises:
            SpecMismatch: The policy of `initial` cannot act in the environment.
            InvalidSetting: The learner of `initial` is another one than the recipe's.
        """
        learner: Learner = self.config.build(self.visible, self.seed)
        if (initial := self.initial) is None:
            return learner
        what = f"The policy of {initial.name} was trained for another robot"
        initial.reading.require_interface(learner.policy.environment_spec, what=what, exactly=True)
        try:
            learner.load_state_dict(initial.state)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise InvalidSetting(
                f"The learner of {initial.name} differs from that of the recipe.",
                got=f"{type(error).__name__}: {error}",
                allowed="the algorithm and networks of that run",
                fix="robo-rl refine makes a recipe that fits",
            ) from error
        return learner

    def acting(self) -> Acting:
        """Make the environment, the learner whose policy acts in it, and the supervisor, if any."""
        learner, environment = self.learner(), self.environments()
        return Acting(environment, learner, None) if self.person is None else _accompany(self.person, environment, learner)

    def training(self) -> Training:
        """Make the training loop at step 0, ready to run or to be restored.

        It acts and learns in this process. If the learner has a process of its own, the robot's process takes `acting` instead.
        """
        if self.loop.is_learners:
            model: dict[str, Any] = {} if self.reward is None else {"reward": self.reward}
            episodes = [stacked_episode(self.spec, each) for each in self.demonstrations]  # it keeps them in its own memory
            brought: SelfTrainedConfig = self.config
            return brought.training(self.environments, steps=self.steps, seed=self.seed, demonstrations=episodes, **model)
        if self.loop is OFFLINE:
            return self._offline(self.learner(), Stopwatch())
        stopwatch = Stopwatch()
        if self.loop is ONLINE_IN_MANY:
            environments, person = self._many()
            return self._online(environments, self.learner(), person, self.config.sampling, self.steps, stopwatch)
        acting = self.acting()
        if self.loop in (OFFLINE_THEN_ONLINE, OFFLINE_THEN_CORRECTED):
            online = self._online(*acting, self.online.sampling(self.config.sampling), self.online.steps, stopwatch)
            return OfflineThenOnline(self._offline(acting.learner, stopwatch), online)
        return self._online(*acting, self.config.sampling, self.steps, stopwatch)

    def _offline(self, learner: Learner, stopwatch: Stopwatch) -> OfflineTraining:
        return OfflineTraining(
            self.visible,
            learner,
            self.config.sampling,
            steps=self.steps,
            seed=self.seed,
            demonstrations=self.demonstrations,
            stopwatch=stopwatch,
        )

    def _online(
        self,
        environment: Environment | Environments,
        learner: Learner,
        person: TrainingSupervisor | None,
        sampling: Sampling,
        steps: int,
        stopwatch: Stopwatch,
    ) -> OnlineTraining[EnvironmentSteps | VectorSteps]:
        return online_training(
            environment,
            learner,
            sampling,
            steps=steps,
            seed=self.seed,
            demonstrations=self.demonstrations,
            supervisor=person,
            rewards=None if self.reward is None else self.reward.running(getattr(environment, "num_envs", 1)),
            recorder=self.recorder,
            acts_at_once=self.acts_at_once,
            stopwatch=stopwatch,
        )

    def _many(self) -> tuple[Environments, TrainingSupervisor | None]:
        """Return a vector environment, and the supervisor of its first environment, if any; with one, they step one by one."""
        if self.person is None:
            return make_vector(self.environments, self.count)[0], None
        first, person = self.person(self.environments())
        made = chain([first], (self.environments() for _ in range(self.count - 1)))
        return SequentialEnvironments(lambda: next(made), self.count, autoreset_mode=AutoresetMode.SAME_STEP), person


def _accompany(person: Accompany, environment: Environment, learner: Learner) -> Acting:
    accompanied, supervisor = person(environment)
    return Acting(accompanied, learner, supervisor)
