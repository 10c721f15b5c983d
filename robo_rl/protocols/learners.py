"""Interfaces of entry points of `robo_rl.learners`: settings that build a learner, or a whole training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import gymnasium

from robo_rl.protocols.components import Learner, Policy, Training
from robo_rl.protocols.contract import Needs
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, StateDict


class LearnerConfig(Protocol):
    """Interface of a learner's settings, a frozen dataclass that builds the learner; an entry point names the class.

    The entry points are those of `robo_rl.learners`.
    """

    @property
    def needs(self) -> Needs:
        """Training loops that can train the learner, and the actions and observations that it supports."""

    @property
    def sampling(self) -> Sampling:
        """Settings of the training loop: replay memory, batches, updates per step."""

    def build(self, spec: EnvironmentSpec, seed: int) -> Learner:
        """Build an untrained learner for environments of this spec; spec and seed determine it completely."""


class SelfTrainedConfig(Protocol):
    """Interface of settings of a learner that brings its own training loop, such as PPO's or Stable-Baselines3's.

    There is no `sampling`. The settings may declare `needs` with loops of their own (`Loop.is_learners`); otherwise the loop is
    `contract.OWN`. If the environment factory is also a VectorFactory, as that of a recipe is, the loop may make a vector
    environment.
    """

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        reward: OnlineRewards | None = None,
    ) -> Training:
        """Make the training loop with an untrained learner, at step 0.

        Args:
            environment_factory: Makes the environments; the loop calls it as often as it needs one.
            steps: Environment steps of the whole training.
            seed: Seed of everything random.
            demonstrations: Recorded episodes, for learners that use them.
            reward: Reward model. With it the learner never sees the environment's own reward, which is only reported.
        """

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> Policy:
        """Return the policy of a saved training; demonstrations are not needed, because nothing is learned.

        Args:
            environment_factory: Makes environments, from which the policy takes its spec.
            seed: Seed of the policy's random generator.
            state: State of the training, as saved in a checkpoint.
        """
