"""encoded:NAME, any environment whose pictures a frozen encoder describes by features.

Learners without convolutions read the features, so that an update costs as much as one of vectors, and the encoder runs once
for each observation. Recorded episodes keep the pictures too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import FrozenEncoder
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification

FEATURES = "picture_features"
Observed = dict[str, npt.NDArray[Any]]


class EncodedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment that observes the features of its pictures in `picture_features`."""

    def __init__(
        self, environment: gymnasium.Env[Any, Any], encoder: FrozenEncoder, *, keep_pictures: bool = True, blank: bool = False
    ) -> None:
        """Raise InvalidSetting if there is no picture, or one that the encoder cannot read.

        keep_pictures: False leaves them out of observations. blank: encode black pictures, for a control that sees nothing.
        """
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
        self._encoder, self._brightness = encoder, np.uint8(not blank)
        features = ArraySpec(
            FEATURES,
            (encoder.size(spec),),
            frame=f"encoder {encoder.digest}",
            role="object",
            meaning="features of the pictures by a frozen encoder",
        )
        kept = (spec if keep_pictures else spec.without_pictures()).observation.arrays
        self.environment_spec: EnvironmentSpec = replace(spec, observation=ObservationSpec((*kept, features)))
        self.observation_space = self.environment_spec.observation.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observed, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._encoded(observation), info

    @override
    def step(self, action: Any) -> tuple[Observed, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._encoded(observation), reward, terminated, truncated, info

    def _encoded(self, observation: Observation) -> Observed:
        read = {name: values[None] for name, values in observation.items()}
        blanked = {name: self._brightness * read[name] for name in self._pictures}
        kept = {name: values for name, values in observation.items() if name in self.environment_spec.observation}
        return {**kept, FEATURES: self._encoder.encode(read | blanked)[0]}


class EncodedFamily:
    """Environments with encoded pictures."""

    def names(self) -> Iterable[str]:
        """Return no names: an address is the name of another environment."""
        return ()

    def at(
        self,
        address: str,
        *,
        encoder: str = "",
        device: str = "cpu",
        keep_pictures: bool = True,
        blank: bool = False,
        **arguments: Any,
    ) -> EncodedEnv:
        """Return the environment that `address` names, its pictures encoded.

        encoder: "KIND:FOLDER", such as "fitted:encoders/pick"; kinds are entry points of robo_rl.encoders.
        device: on which it runs. keep_pictures, blank: as of EncodedEnv. The rest goes to the environment.
        """
        environment = make_environment(address, **arguments)
        return EncodedEnv(environment, load_encoder(encoder, device), keep_pictures=keep_pictures, blank=blank)


def load_encoder(name: str, device: str = "cpu") -> FrozenEncoder:
    """Return the encoder "KIND:FOLDER" on a device; raises UnknownName, InvalidSetting."""
    kind, colon, folder = str(name).partition(":")
    if not colon or not folder:
        raise InvalidSetting(
            "The argument encoder has a kind and a folder.",
            got=name or "nothing",
            allowed="KIND:FOLDER, such as fitted:encoders/pick",
            fix="--environment.arguments.encoder fitted:FOLDER of robo-rl fit-encoder",
        )
    encoder: FrozenEncoder = load("encoders", kind)(folder, device)
    return encoder


FAMILY = EncodedFamily()
