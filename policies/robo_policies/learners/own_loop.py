"""Base class of settings of learners that bring their own training loop over one environment.

The training loop calls them by the interface `robo_rl.protocols.learners.SelfTrainedConfig`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy, Training
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Episode, StateDict

Environment = gymnasium.Env[Any, Any]


class OwnLoop(ABC):
    """Base class of settings of a learner that brings its own training loop; `loop` returns the class of the loop.

    List it last among the base classes of the settings.
    """

    takes_demonstrations = False
    """True if the training loop also learns from recorded episodes."""

    @abstractmethod
    def build(self, spec: EnvironmentSpec, seed: int) -> Any:
        """Build an untrained learner for the spec of an environment; its networks are initialised from `seed`."""

    @abstractmethod
    def loop(self) -> Callable[..., Training]:
        """Return the class of the training loop.

        It is called with an environment, these settings, `steps`, `seed` and, if `takes_demonstrations`, `demonstrations`.
        """

    def training(
        self,
        environment_factory: Callable[[], Environment],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        reward: OnlineRewards | None = None,
    ) -> Training:
        """Make the environment and return a training loop over it, at step 0.

        Args:
            environment_factory: Makes the training environment.
            steps: Environment steps of the training.
            seed: Seed of the training.
            demonstrations: Recorded episodes to learn from as well.
            reward: Must be None: these learners take the environment's reward.

        Raises:
            InvalidSetting: A reward model is given, or demonstrations that the loop cannot use.
        """
        recorded = {"demonstrations": demonstrations} if self.takes_demonstrations else {}
        given = {"a reward": reward is not None, "demonstrations": bool(demonstrations) and not self.takes_demonstrations}
        if refused := [name for name, is_given in given.items() if is_given]:
            learner = type(self).__name__.removesuffix("Config")
            raise InvalidSetting(f"{learner} learns from its environment.", got=" and ".join(refused), fix="leave them out")
        return self.loop()(environment_factory(), self, steps=steps, seed=seed, **recorded)

    def restored_policy(self, environment_factory: Callable[[], Environment], *, seed: int, state: StateDict) -> Policy:
        """Return the policy of a saved training; an environment is made and closed only to read its spec."""
        environment = environment_factory()
        spec = specification(environment)
        environment.close()
        return self.policy_of(spec, seed, state)

    def policy_of(self, spec: EnvironmentSpec, seed: int, state: StateDict) -> Policy:
        """Return the policy of a saved training, given the spec of the environment and the state that the training saved."""
        learner = self.build(spec, seed)
        learner.load_state_dict(state["learner"])
        policy: Policy = learner.policy
        return policy
