"""The wrapper `encoded`: a frozen encoder describes pictures by features.

Learners without convolutions read the features, so that an update costs no more than one from vectors, and the encoder runs
once per observation. Recorded episodes keep the pictures, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.entry_points import load
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import FrozenEncoder
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification

FEATURES = "picture_features"
Observed = dict[str, npt.NDArray[Any]]


class EncodedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds the features of the pictures to the observation as the entry `picture_features` (F,)."""

    def __init__(
        self, environment: gymnasium.Env[Any, Any], encoder: FrozenEncoder, *, keep_pictures: bool = True, blank: bool = False
    ) -> None:
        """Wrap an environment; raises InvalidSetting if it has no picture, or one that the encoder cannot read.

        Args:
            environment: Environment with pictures.
            encoder: Encoder of the pictures.
            keep_pictures: False to remove the pictures from the observations.
            blank: True to encode black pictures, as a control without sight.
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


@dataclass(frozen=True)
class EncodedWrapper(EnvironmentWrapper):
    """Settings of the wrapper `encoded`: a frozen encoder turns pictures into features, which the policy observes."""

    changes = ("observation",)

    encoder: str = ""
    """"KIND:FOLDER", such as "fitted:encoders/pick"; kinds are entry points of robo_rl.encoders."""
    device: str = "cpu"
    """Device on which the encoder runs."""
    keep_pictures: bool = True
    """False to remove the pictures from the observations."""
    blank: bool = False
    """True to encode black pictures instead, to measure what a policy does without sight."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> EncodedEnv:
        encoder = load_encoder(self.encoder, self.device)
        return EncodedEnv(environment, encoder, keep_pictures=self.keep_pictures, blank=self.blank)


def load_encoder(name: str, device: str = "cpu") -> FrozenEncoder:
    """Return the encoder "KIND:FOLDER" on a device.

    Raises:
        UnknownName: There is no such kind.
        InvalidSetting: The name has no kind or folder, or the folder no encoder.
    """
    kind, colon, folder = str(name).partition(":")
    if not colon or not folder:
        raise InvalidSetting(
            "The setting encoder has a kind and a folder.",
            got=name or "nothing",
            allowed="KIND:FOLDER, such as fitted:encoders/pick",
            fix="{name: encoded, encoder: 'fitted:FOLDER'} with the folder of robo-rl fit-encoder",
        )
    encoder: FrozenEncoder = load("encoders", kind)(folder, device)
    return encoder
