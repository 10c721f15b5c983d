"""Camera pictures of all environments, drawn with one OpenGL context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_sims.cameras import CameraObservations

Array = npt.NDArray[Any]


class LatestPictures:
    """The pictures in the latest observation of every environment: drawn where something has moved, kept elsewhere."""

    def __init__(self, cameras: CameraObservations | None = None, datas: Sequence[mujoco.MjData] = ()) -> None:
        """Draws nothing without cameras: no camera of MuJoCo can look at other simulations."""
        self._cameras, self._datas = cameras, datas
        shapes = {array.name: (len(datas), *array.shape) for array in (() if cameras is None else cameras.arrays)}
        self._pictures = {name: np.zeros(shape, np.uint8) for name, shape in shapes.items()}

    def draw(self, where: npt.NDArray[np.bool_]) -> None:
        """Draws the present state of the environments in a mask (N,)."""
        if self._cameras is None or not self._pictures:
            return
        moved = [self._datas[index] for index in np.flatnonzero(where).tolist()]
        for name, pictures in self._cameras.observe_all(moved).items():
            self._pictures[name][where] = pictures

    def copy(self) -> dict[str, Array]:
        """Returns name -> (N, H, W, 3), fresh; empty if no camera was asked for."""
        return {name: pictures.copy() for name, pictures in self._pictures.items()}

    def restore(self, pictures: Mapping[str, Array]) -> None:
        """Takes up what `copy` returned; raises InvalidSetting for pictures of other cameras or of another size."""
        mine, others = _shapes(self._pictures), _shapes(pictures)
        if mine != others:
            raise InvalidSetting("The state is of other pictures.", got=others, allowed=mine)
        for name, latest in self._pictures.items():
            latest[:] = pictures[name]

    def close(self) -> None:
        """Frees the OpenGL context."""
        if self._cameras is not None:
            self._cameras.close()


def _shapes(pictures: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in pictures.items()}
