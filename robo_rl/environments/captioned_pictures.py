"""Pictures of a scene with facts from the simulator's state, to train models that read pictures.

Shapes: N pictures, S slots (objects whose position is known), C captions, I instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from robo_rl.entry_points import known, load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.types import Array

Pictures = npt.NDArray[np.uint8]
"""N pictures (N, H, W, 3) uint8 RGB."""
LEAST_CONTRAST = 5.0
"""Smallest standard deviation of the bytes of a picture. A camera that was not updated delivers flat pictures, which would give
plausible but wrong results."""

HAND = "gripper"
"""Name of the slot for the moving part of an arm."""


@dataclass(frozen=True)
class CaptionedPictures:
    """N pictures of one scene from one camera, with positions, true captions and progress from the simulator's state.

    Raises InvalidSetting for a nearly flat picture.
    """

    environment: str
    """Full name of the environment, such as "robo/ArmPick-v0"."""
    camera: str
    """Name of the camera."""
    pictures: Pictures
    firsts: npt.NDArray[np.int64]
    """(N,) number of the first picture of the same episode"""
    slots: tuple[str, ...]
    """Names of objects with a position; the first is the moving object, such as HAND."""
    positions: Array
    """(N, S, 3) float32 [m]; NaN if the object does not exist"""
    places: Array
    """(N, S, 3) float32 places in the picture: to the right and down, both -1 to 1 from edge to edge, and distance from the
    camera [m]; NaN if the object does not exist"""
    seen: npt.NDArray[np.bool_]
    """(N, S) True if the object is in the picture and nothing hides it"""
    captions: tuple[str, ...]
    """C sentences about the scene."""
    truth: npt.NDArray[np.bool_]
    """(N, C) True if the caption is true of the picture"""
    instructions: tuple[tuple[str, ...], ...]
    """I instructions, each in all its wordings."""
    named: tuple[tuple[str, ...], ...]
    """For each instruction the slots of the one or two objects that it names."""
    progress: Array
    """(N, I) float32 progress of the instruction, in [0, 1]"""
    complete: npt.NDArray[np.bool_]
    """(N, I) True if the instruction is completed"""
    recorded: str = ""
    """Arguments with which the environment records such pictures, such as "cameras=[front] image_size=192"."""
    has_task: bool = True
    """True if `instructions` include the instructions of the environment's episodes."""

    def __post_init__(self) -> None:
        contrast = np.array([picture.std() for picture in self.pictures])  # all at once they would be eight times as large
        if contrast.min() < LEAST_CONTRAST:
            raise InvalidSetting(
                "A picture is nearly flat: its camera does not see the scene, or was not updated.",
                got=f"deviation {contrast.min():.1f} of picture {contrast.argmin()}",
                allowed=f"{LEAST_CONTRAST:g} or more",
            )

    def __len__(self) -> int:
        return len(self.pictures)

    def part(self, rows: slice) -> CaptionedPictures:
        """Return the pictures of the slice `rows`, which must begin and end at the boundary of two episodes."""
        arrays = ("pictures", "positions", "places", "seen", "truth", "progress", "complete")
        chosen = {name: getattr(self, name)[rows] for name in arrays}
        start = rows.start or 0
        return replace(self, firsts=self.firsts[rows] - start, **chosen)


def captioned_pictures(environment: str, *, camera: str, size: int, count: int, seed: int) -> CaptionedPictures:
    """Return `count` captioned pictures (size, size) that the environment's family renders.

    Args:
        environment: Full name of the environment.
        camera: Name of the camera.
        size: Height and width [pixel].
        count: Number of pictures.
        seed: Seed of the scenes.

    Raises:
        UnknownName: There is no such environment.
        InvalidSetting: The family has no captions.
    """
    family, _, task = environment.partition("/")
    if family not in known("environments"):
        raise UnknownName("environment", environment, known("environments"))
    draw = getattr(load("environments", family), "captioned_pictures", None)
    if draw is None:
        allowed = "families with captions, such as robo/ArmPick-v0"
        raise InvalidSetting("Nothing is known to be true of these pictures.", got=environment, allowed=allowed)
    data: CaptionedPictures = draw(task, camera=camera, size=size, count=count, seed=seed)
    return data
