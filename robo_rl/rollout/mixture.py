"""A mixture of policies: one of them, drawn at the beginning of an episode, acts in all of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import Observation
from robo_rl.types import Array


class MixturePolicy:
    """Policies with equal chances: the average of a run's policies, which self-play makes promises for (SPO)."""

    def __init__(self, policies: Sequence[Policy], seed: int = 0) -> None:
        """Raise InvalidSetting without policies, SpecMismatch if they are of different environments."""
        if not policies:
            raise InvalidSetting("A mixture has no policies.", got=0, allowed="1 or more")
        self.environment_spec = policies[0].environment_spec
        for policy in policies[1:]:
            policy.environment_spec.require_interface(self.environment_spec, what="Policies of a mixture")
        self._policies, self._generator = policies, np.random.default_rng(seed)
        self._chosen = policies[0]

    def reset(self) -> None:
        """Draw the policy of an episode."""
        self._chosen = self._policies[int(self._generator.integers(len(self._policies)))]
        self._chosen.reset()

    def replan(self) -> None:
        """Let it forget the actions that it planned."""
        replan(self._chosen)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return its action."""
        return self._chosen.act(observation, deterministic=deterministic)
