"""Mirror image of an environment: what was to the left is to the right.

After the morphological symmetry of GR-RL (ByteDance Seed 2025, arXiv:2512.01801), which doubles the recorded episodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, StateDict

WORDS = {"left": "right", "right": "left"}
_WORD = re.compile(r"\b(left|right)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Reflection:
    """Reflection of a vector, signs * values + offsets in physical units, which exchanges left and right."""

    signs: tuple[int, ...]
    """1 or -1 for each element."""
    offsets: tuple[float, ...] = ()
    """Offset of each element; empty for zeros."""

    def of(self, values: Array) -> npt.NDArray[np.float64]:
        """Return the mirror image of vectors (..., D)."""
        return np.asarray(values, np.float64) * self.signs + (self.offsets or 0.0)


@dataclass(frozen=True)
class Mirror:
    """Exchanges left and right in observations, actions and words of one environment; twice gives the original."""

    spec: EnvironmentSpec
    """Spec of the environment whose observations and actions are mirrored."""
    action: Reflection
    """Mirror image of actions in physical units."""
    observations: Mapping[str, Reflection] = field(default_factory=dict)
    """Entry of the observation -> its reflection, for every entry but pictures, which are flipped left to right."""

    def __post_init__(self) -> None:
        arrays = self.spec.observation.items()
        known = {name for name, array in arrays if array.role == "image"} | self.observations.keys()
        if missing := sorted(set(self.spec.observation) - known):
            raise InvalidSetting(
                f"It is not known what {self.spec.name} looks like in a mirror.",
                got=f"no reflection of {', '.join(missing)}",
                allowed="entries whose reflections its mirror names",
            )

    def observation(self, values: Mapping[str, Array]) -> StateDict:
        """Return the mirror image of observations, name -> (..., D), or (..., H, W, C) for pictures."""
        found = {}
        for name, each in values.items():
            if name in self.observations:
                found[name] = self.observations[name].of(each).astype(each.dtype)
            else:
                found[name] = np.ascontiguousarray(np.asarray(each)[..., ::-1, :])
        return found

    def acted(self, actions: Array) -> npt.NDArray[np.float32]:
        """Return the mirror image of actions (..., A) in [-1, 1]."""
        low, high = np.asarray(self.spec.action.low), np.asarray(self.spec.action.high)
        physical = low + (np.asarray(actions, np.float64) + 1.0) / 2.0 * (high - low)
        image = 2.0 * (self.action.of(physical) - low) / (high - low) - 1.0
        return np.asarray(np.clip(image, -1.0, 1.0), np.float32)

    def episode(self, episode: Episode) -> Episode:
        """Return the mirror image of a recorded episode; raises InvalidSetting for an episode of another environment.

        It has no seed, because no reset leads to it.
        """
        if episode.spec_fingerprint != self.spec.fingerprint:
            got = f"an episode with the fingerprint {episode.spec_fingerprint}"
            raise InvalidSetting(f"The mirror is of {self.spec.name}, {self.spec.fingerprint}.", got=got)
        return replace(
            episode,
            observations=self.observation(episode.observations),
            actions=self.acted(episode.actions),
            policy_actions=self.acted(episode.policy_actions),
            instruction=None if episode.instruction is None else mirrored_words(episode.instruction),
            seed=None,
            metadata={**episode.metadata, "mirrored": not episode.metadata.get("mirrored", False)},
        )


def mirrored_words(text: str) -> str:
    """Return a text with "left" and "right" exchanged; upper and lower case are kept."""

    def other(found: re.Match[str]) -> str:
        word = found[0]
        swapped = WORDS[word.lower()]
        return swapped.upper() if word.isupper() and len(word) > 1 else swapped.capitalize() if word[0].isupper() else swapped

    return _WORD.sub(other, text)
