"""The policy that PPO trains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, StateDict

if TYPE_CHECKING:
    from robo_policies.ppo import PPO


class PPOPolicy:
    """Acts with the networks that PPO goes on training, and with a random generator of its own."""

    def __init__(self, spec: EnvironmentSpec, learner: PPO, generator: np.random.Generator) -> None:
        self.environment_spec = spec
        self._learner, self._generator = learner, generator

    def reset(self) -> None:
        """Does nothing: the policy remembers no earlier step."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action (A,) float32 in [-1, 1], or an int64 scalar."""
        learner = self._learner
        outputs = learner.networks.act(learner.senses.visible_inputs(observation))
        head, parameters = learner.head, learner.head_parameters
        drawn = head.mode(outputs) if deterministic else head.draw(outputs, parameters, self._generator)
        action: Array = head.executed(drawn)[0]
        return action

    def state_dict(self) -> StateDict:
        """Returns the state of the generator; the networks belong to the learner."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generator."""
        self._generator.bit_generator.state = state["generator"]
