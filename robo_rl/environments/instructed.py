"""The wrapper `instructed`: the instruction of an episode as a vector, for one policy with several tasks."""

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
from robo_rl.protocols.components import TextEncoder
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification

FEATURES = "instruction_features"
Observed = dict[str, npt.NDArray[Any]]


class InstructedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that adds the features of the episode's instruction to the observation as `instruction_features` (F,)."""

    def __init__(self, environment: gymnasium.Env[Any, Any], encoder: TextEncoder) -> None:
        super().__init__(environment)
        spec = specification(environment)
        self._encoder, self._usual = encoder, spec.instruction
        self._known: dict[str, npt.NDArray[np.float32]] = {}
        features = ArraySpec(
            FEATURES,
            (encoder.size,),
            frame=f"text encoder {encoder.digest}",
            role="goal",
            meaning="features of the episode's instruction by a frozen encoder",
        )
        observation = ObservationSpec((*spec.observation.arrays, features))
        self.environment_spec: EnvironmentSpec = replace(spec, observation=observation)
        self.observation_space = self.environment_spec.observation.space

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observed, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        words = info.get("instruction", self._usual)
        if not words:
            raise InvalidSetting(
                f"{self.environment_spec.name!r} has no instruction to encode.", fix="leave the wrapper `instructed` away"
            )
        if words not in self._known:
            self._known[words] = self._encoder.encode([words])[0]
        self._features = self._known[words]
        return self._instructed(observation), info

    @override
    def step(self, action: Any) -> tuple[Observed, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._instructed(observation), reward, terminated, truncated, info

    def _instructed(self, observation: Observation) -> Observed:
        return {**observation, FEATURES: self._features.copy()}


@dataclass(frozen=True)
class InstructedWrapper(EnvironmentWrapper):
    """Settings of the wrapper `instructed`: the policy observes its instruction, encoded by a frozen text encoder."""

    changes = ("observation",)

    encoder: str = "minilm"
    """Entry point of robo_rl.text_encoders; "minilm" is all-MiniLM-L6-v2 (extra `towers`)."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> InstructedEnv:
        encoder: TextEncoder = load("text_encoders", self.encoder)()
        return InstructedEnv(environment, encoder)
