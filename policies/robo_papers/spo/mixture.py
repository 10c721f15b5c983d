"""A mixture of policies: one policy, drawn at the start of an episode, acts in the whole episode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.planning import replan
from robo_rl.spec.environment import Observation
from robo_rl.types import Array


class MixturePolicy:
    """Policy that draws one of several policies, with equal probability, for each episode.

    Some guarantees of self-play, such as those of SPO, hold for this average of the policies of a run.
    """

    def __init__(self, policies: Sequence[Policy], seed: int = 0) -> None:
        """Raise InvalidSetting without policies, SpecMismatch if their specs differ."""
        if not policies:
            raise InvalidSetting("A mixture has no policies.", got=0, allowed="1 or more")
        self.environment_spec = policies[0].environment_spec
        for policy in policies[1:]:
            policy.environment_spec.require_interface(self.environment_spec, what="Policies of a mixture")
        self._policies, self._generator = policies, np.random.default_rng(seed)
        self._chosen = policies[0]

    def reset(self) -> None:
        """Draw the policy of the next episode, and reset it."""
        self._chosen = self._policies[int(self._generator.integers(len(self._policies)))]
        self._chosen.reset()

    def replan(self) -> None:
        """Discard the actions that the drawn policy has planned."""
        replan(self._chosen)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the action of the drawn policy."""
        return self._chosen.act(observation, deterministic=deterministic)
