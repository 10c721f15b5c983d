"""The policy that PPO trains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, StateDict

if TYPE_CHECKING:
    from robo_policies.learners.ppo_learner import PPO

BLOCK = 16
"""Rows of one product of matrices where others act for the learner: a product of another shape rounds otherwise."""


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

    def draw(self, observations: Mapping[str, Array], generators: Sequence[np.random.Generator], first: int) -> Array:
        """Returns actions (n, ...) of environments from number `first` on, each with a generator of its own.

        Every row has a fixed place in a block of BLOCK rows: no bit of it depends on how the environments are shared out.
        """
        learner, count = self._learner, len(generators)
        inputs, start = learner.senses.inputs(observations), first % BLOCK
        rows = np.zeros((-(-(start + count) // BLOCK) * BLOCK, inputs.shape[1]), np.float32)
        rows[start : start + count] = inputs
        outputs = np.concatenate([learner.networks.act(rows[block : block + BLOCK]) for block in range(0, len(rows), BLOCK)])
        drawn = [
            learner.head.draw(outputs[row : row + 1], learner.head_parameters, generator)
            for row, generator in enumerate(generators, start)
        ]
        return np.concatenate(drawn)

    def executed(self, actions: Array) -> Array:
        """Returns drawn actions as environments accept them."""
        return self._learner.head.executed(actions)

    def parameters(self) -> StateDict:
        """Returns copies of networks and moments."""
        learner = self._learner
        return {"networks": learner.networks.parameters.copy(), "observations": learner.senses.state_dict()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts with those from now on; the learner whose policy this is has them, too."""
        self._learner.networks.parameters[:] = parameters["networks"]
        self._learner.senses.load_state_dict(parameters["observations"])

    def state_dict(self) -> StateDict:
        """Returns the state of the generator; the networks belong to the learner."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generator."""
        self._generator.bit_generator.state = state["generator"]
