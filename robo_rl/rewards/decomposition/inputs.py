"""What a decoder sees of a step: state and action, or factors of a latent reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array

Floats = npt.NDArray[np.float32]


class StepInputs(Protocol):
    """Makes numbers of the steps of an episode."""

    @property
    def size(self) -> int:
        """How many numbers: D."""

    @property
    def entries(self) -> Sequence[str]:
        """Entries of the observation that they are made of."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What they follow from."""

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Returns (T, D) for the steps of an episode; what is not known of a step is NaN.

        observations: name -> (T + 1, ...). actions: (T, ...).
        """


class StatesAndActions:
    """[s, a, s - s'] of the float observations that a policy sees, as in the code of Ren et al. 2022."""

    identity: Mapping[str, str | float] = {"inputs": "states and actions"}

    def __init__(self, spec: EnvironmentSpec) -> None:
        arrays = spec.observation.items()
        self.entries = [name for name, array in arrays if np.dtype(array.dtype).kind == "f" and array.role != "privileged"]
        if not self.entries:
            raise InvalidSetting(
                f"Nothing that {spec.name} observes is a vector of floats.",
                got=sorted(spec.observation),
                fix="decompose returns by factors of a program (reward.name: lare), or choose an environment with such states",
            )
        self._choices = spec.action.size if spec.action.is_discrete else 0
        states = sum(spec.observation[name].size for name in self.entries)
        self.size = 2 * states + spec.action.size

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Returns (T, D); an action that is a choice is one of as many columns."""
        states = np.concatenate([_flat(observations[name]) for name in self.entries], axis=1)
        acted = np.eye(self._choices, dtype=np.float32)[actions] if self._choices else _flat(actions)
        return np.concatenate((states[:-1], acted, states[:-1] - states[1:]), axis=1, dtype=np.float32)


def _flat(values: Array) -> Floats:
    return np.asarray(values, np.float32).reshape(len(values), -1)
