"""Camera pictures of N environments, drawn with one OpenGL context."""

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
    """Pictures of the latest observation of every environment, redrawn only for environments that moved."""

    def __init__(self, cameras: CameraObservations | None = None, datas: Sequence[mujoco.MjData] = ()) -> None:
        """Create black pictures.

        cameras: cameras to draw; None: there are no pictures. datas: MuJoCo data of each environment.
        """
        self._cameras, self._datas = cameras, datas
        shapes = {array.name: (len(datas), *array.shape) for array in (() if cameras is None else cameras.arrays)}
        self._pictures = {name: np.zeros(shape, np.uint8) for name, shape in shapes.items()}

    def draw(self, mask: npt.NDArray[np.bool_]) -> None:
        """Redraw the pictures of the environments in a mask (N,) from their current states."""
        if self._cameras is None or not self._pictures:
            return
        moved = [self._datas[index] for index in np.flatnonzero(mask).tolist()]
        for name, pictures in self._cameras.observe_all(moved).items():
            self._pictures[name][mask] = pictures

    def copy(self) -> dict[str, Array]:
        """Return copies of all pictures, camera_<name> -> uint8 (N, H, W, 3); empty without cameras."""
        return {name: pictures.copy() for name, pictures in self._pictures.items()}

    def restore(self, pictures: Mapping[str, Array]) -> None:
        """Restore the pictures that `copy` returned; raises InvalidSetting if cameras or sizes differ."""
        mine, others = _shapes(self._pictures), _shapes(pictures)
        if mine != others:
            raise InvalidSetting("The state is of other pictures.", got=others, allowed=mine)
        for name, latest in self._pictures.items():
            latest[:] = pictures[name]

    def close(self) -> None:
        """Free the OpenGL context."""
        if self._cameras is not None:
            self._cameras.close()


def _shapes(pictures: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in pictures.items()}
