"""Protocols of entry points of `robo_rl.learners`: settings that build a learner, or a whole training."""

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
    """Settings of a learner, a frozen dataclass that builds it; an entry point of `robo_rl.learners` names it."""

    @property
    def needs(self) -> Needs:
        """Loops that can train it, and actions and observations that it is made for."""

    @property
    def sampling(self) -> Sampling:
        """Requirements of its training loop."""

    def build(self, spec: EnvironmentSpec, seed: int) -> Learner:
        """Return a fresh learner for an environment, fully determined by the seed."""


class SelfTrainedConfig(Protocol):
    """Settings of a learner that brings its own training loop, such as Stable-Baselines3's or that of PPO.

    If the factory is a VectorFactory too, as that of a recipe is, the loop may ask it for many environments at once. It has no
    `sampling`, and may declare `needs` with loops of its own (`Loop.is_learners`); else its loop is `contract.OWN`.
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
        """Return a training at step 0 that learns from as many environments as it asks the factory for.

        With a `reward` the learner never sees that of the environment, which is only reported.
        """

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> Policy:
        """Return the policy of a saved training; needs no demonstrations, because nothing is learnt."""
