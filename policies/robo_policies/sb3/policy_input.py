"""Convert robo_rl's observations to the inputs of Stable-Baselines3's policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ArraySpec, Observation, ObservationSpec
from robo_rl.types import Array

SMALLEST_CAMERA = 36
"""Smallest height and width [pixel] of an image that the strided convolutions of SB3's NatureCNN can read."""
STATE = "state"
"""Key of the vectors, joined to one, in an observation with cameras."""

Input = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]


class PolicyInput:
    """Turns an observation into one float32 vector, or with cameras into a dict of that vector and the images.

    Arrays are joined in the order of the spec; privileged ones are left out. An image that is too small for a
    convolution (MiniGrid's 7 x 7 cells) joins the vector with its raw values.
    """

    def __init__(self, spec: ObservationSpec) -> None:
        visible = [array for array in spec.arrays if array.role != "privileged"]
        self.cameras = [array for array in visible if _is_camera(array)]
        """Specs of the images that the policy reads as images."""
        self.vectors = [array for array in visible if not _is_camera(array)]
        """Specs of the arrays that are joined to one vector."""
        if not visible:
            raise InvalidSetting("A policy sees nothing of this environment.", got=list(spec), allowed="a role but privileged")

    @property
    def policy_name(self) -> str:
        """SB3's name for the policy class that takes this input."""
        return "MultiInputPolicy" if self.cameras else "MlpPolicy"

    @property
    def has_vectors(self) -> bool:
        """True unless the policy sees images alone."""
        return bool(self.vectors)

    @property
    def space(self) -> spaces.Box | spaces.Dict:
        """Space of the policy's input: a Box for vectors alone, or a Dict of the joined vector and the cameras."""
        if not self.cameras:
            return self._vector_space
        state: dict[str, spaces.Space[Any]] = {STATE: self._vector_space} if self.vectors else {}
        return spaces.Dict(state | {camera.name: camera.space for camera in self.cameras})

    @property
    def _vector_space(self) -> spaces.Box:
        limits = [(array.space.low.ravel(), array.space.high.ravel()) for array in self.vectors]
        low, high = (np.concatenate(side).astype(np.float32) for side in zip(*limits, strict=True))
        return spaces.Box(low, high, dtype=np.float32)

    def __call__(self, observation: Observation) -> Input:
        """Return the input for one observation, or for N with a leading axis (N, ...)."""
        if not self.cameras:
            return self._join(observation)
        state = {STATE: self._join(observation)} if self.vectors else {}
        return state | {camera.name: observation[camera.name] for camera in self.cameras}

    def _join(self, observation: Observation) -> npt.NDArray[np.float32]:
        return np.concatenate([_flat(array, observation[array.name]) for array in self.vectors], axis=-1, dtype=np.float32)


def _is_camera(array: ArraySpec) -> bool:
    return array.role == "image" and min(array.shape[:2]) >= SMALLEST_CAMERA


def _flat(array: ArraySpec, value: Array) -> Array:
    leading = value.shape[: value.ndim - len(array.shape)]
    return value.reshape(*leading, -1)
