"""What must hold for a success to count, whatever a classifier says: an observation within a range."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.types import Array

FORM = re.compile(r"(?P<name>\w+)(\[(?P<index>\d+)\])?=(?P<low>[^:]*):(?P<high>[^:]*)")


@dataclass(frozen=True)
class Guard:
    """An element of an observation, and where it must lie."""

    observation: str
    index: int
    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Guard:
        """Returns what NAME=LOW:HIGH or NAME[INDEX]=LOW:HIGH says, an empty bound for none; raises InvalidSetting."""
        found = FORM.fullmatch(text.replace(" ", ""))
        allowed = "NAME=LOW:HIGH or NAME[INDEX]=LOW:HIGH, such as gripper_opening=0.02:0.06 or object_position[2]=0.1:"
        try:
            if found is None:
                raise ValueError(text)
            low, high = float(found["low"] or "-inf"), float(found["high"] or "inf")
        except ValueError:
            raise InvalidSetting("A guard cannot be read.", got=repr(text), allowed=allowed) from None
        if not low < high:
            raise InvalidSetting("A guard has an empty range.", got=text, allowed="a lower bound below the upper one")
        return cls(found["name"], int(found["index"] or 0), low, high)

    def holds(self, observations: Mapping[str, Array]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Returns where it holds (N,), and where the observation is known (N,).

        Raises UnknownName where there is none of that name, InvalidSetting where it has no such element.
        """
        if self.observation not in observations:
            raise UnknownName("observation", self.observation, observations)
        found = observations[self.observation]
        found = found.reshape(len(found), -1)
        if self.index >= found.shape[1]:
            allowed = f"0 to {found.shape[1] - 1}"
            raise InvalidSetting(f"{self.observation} has no element {self.index}.", got=self.index, allowed=allowed)
        values = found[:, self.index].astype(np.float64)
        known = np.isfinite(values)
        return known & (np.where(known, values, 0) >= self.low) & (np.where(known, values, 0) <= self.high), known
