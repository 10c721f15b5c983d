"""A scripted person for `check_training`, who takes over in the same steps of every episode."""

from __future__ import annotations

import numpy as np

from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, Array, StateDict

CORRECTED = 2, 3
"""Steps of an episode, from 1, that the person commands."""
COMMAND = 0.5
"""Value of each element of a command."""


class Corrector(Stateful):
    """Scripted person (robo_rl.rollout.intervention.Human): takes over with a constant action in two steps of each episode."""

    source = ActionSource.HUMAN

    def __init__(self) -> None:
        self._step = 0

    def reset(self) -> None:
        """Prepare for a new episode."""
        self._step = 0

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Return a constant command (A,) in the steps that are corrected, None in the others, where the policy acts."""
        self._step += 1
        return np.full_like(proposed, COMMAND) if self._step in CORRECTED else None

    def state_dict(self) -> StateDict:
        """Return the number of the present step of the episode."""
        return {"step": self._step}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the number of the present step of the episode."""
        self._step = int(state["step"])
