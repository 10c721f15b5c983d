"""Settings of a learner with a training loop of its own over one environment (robo_rl.protocols.learners.SelfTrainedConfig)."""

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
    """Base class of settings of a learner with its own training loop, which `loop` names.

    List it last among the base classes of the settings.
    """

    takes_demonstrations = False
    """True if the loop also learns from recorded episodes."""

    @abstractmethod
    def build(self, spec: EnvironmentSpec, seed: int) -> Any:
        """Return a fresh learner."""

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
        """Return a training at step 0; raises InvalidSetting for a reward model, or demonstrations that the loop cannot use."""
        recorded = {"demonstrations": demonstrations} if self.takes_demonstrations else {}
        given = {"a reward": reward is not None, "demonstrations": bool(demonstrations) and not self.takes_demonstrations}
        if refused := [name for name, is_given in given.items() if is_given]:
            learner = type(self).__name__.removesuffix("Config")
            raise InvalidSetting(f"{learner} learns from its environment.", got=" and ".join(refused), fix="leave them out")
        return self.loop()(environment_factory(), self, steps=steps, seed=seed, **recorded)

    def restored_policy(self, environment_factory: Callable[[], Environment], *, seed: int, state: StateDict) -> Policy:
        """Return the policy of a saved training; the environment is made only for its spec."""
        environment = environment_factory()
        spec = specification(environment)
        environment.close()
        return self.policy_of(spec, seed, state)

    def policy_of(self, spec: EnvironmentSpec, seed: int, state: StateDict) -> Policy:
        """Return the policy of a saved training for an environment with the given spec."""
        learner = self.build(spec, seed)
        learner.load_state_dict(state["learner"])
        policy: Policy = learner.policy
        return policy
