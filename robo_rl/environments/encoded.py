"""encoded:NAME, any environment whose pictures a frozen encoder turns into features before anyone sees them.

Replay memories, recorded episodes and learners then hold features in place of pictures: an update costs what one of vectors
costs, and the encoder runs once for each observation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification


class FrozenEncoder(Protocol):
    """Turns pictures of named cameras into features; the same picture always gives the same features."""

    digest: str
    """Distinguishes encoders with other weights: hex digits."""

    def sizes(self, pictures: Mapping[str, ArraySpec]) -> dict[str, int]:
        """Return name -> number of features of each picture; raises InvalidSetting if the encoder cannot read one."""

    def encode(self, name: str, pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Return features (B, F) of pictures (B, H, W, C) that are called `name` in the observation."""


class EncodedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Observes `<name>_features` in place of each picture `<name>`."""

    def __init__(self, environment: gymnasium.Env[Any, Any], encoder: FrozenEncoder) -> None:
        """Raise InvalidSetting if there is no picture, or one that the encoder cannot read."""
        super().__init__(environment)
        spec = specification(environment)
        self._pictures = spec.observation.subset("image")
        if not self._pictures:
            raise InvalidSetting(
                f"{spec.name!r} has no pictures to encode.",
                got=list(spec.observation),
                allowed="an environment with cameras",
                fix="add them by an argument of the environment, such as sees=both or cameras=[front]",
            )
        self._encoder = encoder
        features = tuple(
            ArraySpec(
                f"{name}_features",
                (size,),
                frame=f"encoder {encoder.digest}",
                role="object",
                meaning=f"features of {name} by a frozen encoder",
            )
            for name, size in encoder.sizes(self._pictures).items()
        )
        kept = spec.without_pictures().observation.arrays
        self.environment_spec: EnvironmentSpec = replace(spec, observation=ObservationSpec((*kept, *features)))
        self.observation_space = self.environment_spec.observation.space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self.encoded(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self.encoded(observation), reward, terminated, truncated, info

    def encoded(self, observation: Observation) -> dict[str, npt.NDArray[Any]]:
        """Return an observation with features in place of pictures."""
        kept = {name: values for name, values in observation.items() if name not in self._pictures}
        return kept | {f"{name}_features": self._encoder.encode(name, observation[name][None])[0] for name in self._pictures}


class EncodedFamily:
    """Makes environments with encoded pictures."""

    def names(self) -> Iterable[str]:
        """Return no names: an address is the name of another environment."""
        return ()

    def at(self, address: str, *, encoder: str, **arguments: Any) -> EncodedEnv:
        """Return the environment that `address` names, its pictures encoded.

        encoder: "KIND:PATH", kinds are entry points of robo_rl.encoders, such as "fitted:encoders/pick". The rest goes to the
        environment.
        """
        return EncodedEnv(make_environment(address, **arguments), load_encoder(encoder))


def load_encoder(name: str) -> FrozenEncoder:
    """Return the encoder "KIND:PATH"; raises UnknownName, InvalidSetting."""
    kind, colon, path = str(name).partition(":")
    if not colon or not path:
        raise InvalidSetting("This names no encoder.", got=name, allowed="KIND:PATH, such as fitted:encoders/pick")
    found: FrozenEncoder = load("encoders", kind)(path)
    return found


FAMILY = EncodedFamily()
