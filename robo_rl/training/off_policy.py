"""Off-policy training loops: act and learn step by step, or learn from recorded episodes only.

Both can be saved: restored in a fresh process they continue bit for bit, because the seed and the actions of an episode
determine it, and every random generator is part of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import gymnasium
from gymnasium.vector import VectorEnv
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import EpisodeRecorder, Learner, Policy, Stateful, TrainingObserver, TrainingSupervisor
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.protocols.sampling import Sampler, Sampling
from robo_rl.replay.mixing import WithImagined
from robo_rl.rollout.vector import Environments
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.replay_learning import ReplayLearner, branches_of, recorded_replay
from robo_rl.training.step_sources import EnvironmentSteps, Explorer, StepSource, batched
from robo_rl.training.vector_steps import VectorSteps, require_steps
from robo_rl.types import Episode, Metrics, StateDict, Transition, VectorTransition


class StepLearner(Protocol):
    """Interface of the part of a training loop that receives steps and learns from them."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    @property
    def metrics(self) -> Metrics:
        """Scalars to report at the end of each episode."""

    def add(self, step: Transition | VectorTransition) -> None:
        """Receive a step of one environment, or one step of each of N environments."""

    def update(self, step: int) -> Metrics:
        """Learn after environment step `step`; return metrics for the log, empty if none are due."""


Source_co = TypeVar("Source_co", bound=StepSource[Any], covariant=True)
StepLearner_co = TypeVar("StepLearner_co", bound=StepLearner, covariant=True)


class StepLoop(ABC, Generic[Source_co, StepLearner_co]):
    """Training loop that takes steps from a source and passes them to a learner.

    The source takes `StepSource.stride` steps at once, one in each of its environments. The loop ends after `steps` steps, or
    when fewer than `stride` of them are left.
    """

    def __init__(self, source: Source_co, step_learner: StepLearner_co, *, steps: int, stopwatch: Stopwatch) -> None:
        self.source, self.step_learner = source, step_learner
        self.steps, self.stopwatch = steps, stopwatch
        self.resumed: str | None = None
        """"exact" or "warm" after `load_state_dict`."""

    @property
    def policy(self) -> Policy:
        """The policy being trained, that of the learner part."""
        return self.step_learner.policy

    @property
    def step(self) -> int:
        """Number of environment steps so far."""
        return self.source.taken

    @property
    def replays(self) -> bool:
        """True if the same actions lead the environment through the same states."""
        return self.source.replays

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last step."""
        time = self.stopwatch.time
        self.stopwatch.start()
        while self.step + self.source.stride <= self.steps:
            self.prepare(observer)
            taken = time("simulate", partial(self.source.step, self.step_learner))
            self.step_learner.add(taken)
            reached = self.step
            for step in range(reached - self.source.stride + 1, reached + 1):
                metrics = time("update", partial(self.step_learner.update, step))
                if metrics:
                    time("log", partial(observer.on_metrics, step, metrics | self.source.metrics))
            if self.source.report(observer) and (metrics := self.step_learner.metrics):
                observer.on_metrics(reached, metrics)
            time("log", partial(observer.on_step, reached, self))

    def prepare(self, observer: TrainingObserver) -> None:
        """Wait for whatever the next step needs, such as another process; the base class does nothing."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return everything that a resumed training needs."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restore a saved training, and set `resumed` to the kind of resume."""


class OnlineTraining(StepLoop[Source_co, ReplayLearner]):
    """Off-policy training loop: one environment step, then updates from the replay memory, and so on."""

    def __init__(self, source: Source_co, step_learner: ReplayLearner, *, steps: int) -> None:
        super().__init__(source, step_learner, steps=steps, stopwatch=step_learner.stopwatch)

    @property
    def learner(self) -> Learner:
        """The learner that receives the batches."""
        return self.step_learner.learner

    @override
    def state_dict(self) -> StateDict:
        training = {
            "step": self.step,
            **self.source.state_dict(),
            "waiting": self.step_learner.waiting_state(),
            "has_learnt": self.step_learner.has_learnt,
            "seconds": self.stopwatch.state_dict(),
        }
        return self.step_learner.state_dict() | {"training": training}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        training = state["training"]
        self.step_learner.load_state_dict(state)
        self.step_learner.has_learnt = bool(training["has_learnt"])
        self.stopwatch.load_state_dict(training["seconds"])
        self.resumed = self.source.load_state_dict(training, self.step_learner)
        if not self.step_learner.load_waiting_state(training["waiting"], self.source.episode):
            self.resumed = "warm"


def online_training(  # noqa: PLR0913
    environment: gymnasium.Env[Any, Any] | Environments,
    learner: Learner,
    sampling: Sampling,
    *,
    steps: int,
    seed: int,
    demonstrations: Sequence[Episode] = (),
    supervisor: TrainingSupervisor | None = None,
    rewards: DelayedRewards | None = None,
    recorder: EpisodeRecorder | None = None,
    acts_at_once: bool = False,
    stopwatch: Stopwatch | None = None,
) -> OnlineTraining[EnvironmentSteps | VectorSteps]:
    """Return an off-policy training in one environment of this process, or in a vector environment.

    Args:
        environment: An environment, or a vector environment.
        learner: Learner that receives the batches; its policy acts.
        sampling: Settings of the replay memory and batches.
        steps: Environment steps of the whole training, over all environments.
        seed: Seed of everything random.
        demonstrations: Recorded episodes to learn from.
        supervisor: May override actions, in a vector environment only those of environment 0.
        rewards: Rewards of a model in place of the environment's.
        recorder: Records the episodes; only for a single environment.
        acts_at_once: True if the policy acts from the first step on, without random actions.
        stopwatch: Clock of the training.

    Raises:
        InvalidSetting: For a vector environment, the policy has a memory, or the training is shorter than one step of all
            environments.
    """
    clock, count = Stopwatch() if stopwatch is None else stopwatch, 1
    if isinstance(environment, VectorEnv):
        count = environment.num_envs
        require_steps(steps, count)
        batched(learner.policy)
    step_learner = ReplayLearner(
        learner,
        sampling,
        seed=seed,
        stopwatch=clock,
        demonstrations=demonstrations,
        is_corrected=supervisor is not None,
        rewards=rewards,
        environments=count,
    )
    explorer = Explorer(
        learner.policy, seed=seed, random_steps=0 if acts_at_once else sampling.learning_starts, stopwatch=clock
    )
    source: EnvironmentSteps | VectorSteps
    if isinstance(environment, VectorEnv):
        source = VectorSteps(environment, explorer, seed=seed, supervisor=supervisor)
    else:
        source = EnvironmentSteps(environment, explorer, seed=seed, supervisor=supervisor, recorder=recorder)
    return OnlineTraining(source, step_learner, steps=steps)


class OfflineTraining(Stateful):
    """Training from recorded episodes only: `steps` updates without an environment. Raises InvalidSetting without episodes.

    With `sampling.worlds` a world is learned from them first, and a share of each batch is imagined in it.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        learner: Learner,
        sampling: Sampling,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode],
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.learner, self.sampling, self.steps = learner, sampling, steps
        if not demonstrations:
            raise InvalidSetting(
                "Offline learning needs recorded episodes.", got="none", fix="set demonstrations.episodes in the recipe"
            )
        self.replay = recorded_replay(spec, demonstrations, sampling, seed)
        self.sampler: Sampler = self.replay
        self.branches = branches_of(learner, sampling, seed + 4)
        if self.branches is not None:
            self.sampler = WithImagined(self.replay, self.branches.memory, sampling.worlds.share)
        self.stopwatch = Stopwatch() if stopwatch is None else stopwatch
        self.step = 0
        self.resumed: str | None = None

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Take the remaining updates, without any environment."""
        time = self.stopwatch.time
        self.stopwatch.start()
        while self.step < self.steps:
            self.step += 1
            metrics = time("update", self._learn)
            if metrics:
                time("log", partial(observer.on_metrics, self.step, metrics))
            time("log", partial(observer.on_step, self.step, self))

    def _learn(self) -> Metrics:
        sampling, imagined = self.sampling, {}
        if self.branches is not None:
            self.stopwatch.time("imagine", partial(self.branches.renew, self.step, [self.replay]))
            imagined = self.branches.metrics
        metrics = self.learner.update(self.sampler.sample(sampling.batch_size, sampling.n_step, sampling.discount))
        return metrics and {**metrics, **imagined}

    @override
    def state_dict(self) -> StateDict:
        training = {"step": self.step, "seconds": self.stopwatch.state_dict()}
        branches = {} if self.branches is None else {"branches": self.branches.state_dict()}
        return {"learner": self.learner.state_dict(), "replay": self.replay.state_dict(), "training": training, **branches}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        if self.branches is not None:
            self.branches.load_state_dict(state["branches"])
        self.step = state["training"]["step"]
        self.stopwatch.load_state_dict(state["training"]["seconds"])
        self.resumed = "exact"
