"""Pictures of a scene with facts from the simulator's state, which a model of pictures can be fitted to.

N pictures, S slots, C captions, I instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from robo_rl.entry_points import known, load
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.types import Array

Pictures = npt.NDArray[np.uint8]
"""(N, H, W, 3)"""
LEAST_CONTRAST = 5.0
"""Standard deviation of the bytes of a picture; a camera that was not updated gives flat ones, and plausible results."""

HAND = "gripper"
"""The slot of an arm's moving part."""


@dataclass(frozen=True)
class CaptionedPictures:
    """Pictures of one scene by one camera, with facts from the simulator's state."""

    environment: str
    """Full name, such as "robo/ArmPick-v0"."""
    camera: str
    pictures: Pictures
    firsts: npt.NDArray[np.int64]
    """(N,) number of the first picture of the episode"""
    slots: tuple[str, ...]
    """Names of objects with a position; the first is the moving one, such as HAND."""
    positions: Array
    """(N, S, 3) float32 [m]; NaN if there is no such thing"""
    places: Array
    """(N, S, 3) float32: right and down in the picture, -1 to 1 from edge to edge, and [m] away; NaN if there is none"""
    seen: npt.NDArray[np.bool_]
    """(N, S) True if it is in the picture and nothing hides it"""
    captions: tuple[str, ...]
    truth: npt.NDArray[np.bool_]
    """(N, C)"""
    instructions: tuple[tuple[str, ...], ...]
    """Each in all its wordings."""
    named: tuple[tuple[str, ...], ...]
    """Slots of the one or two things that each names."""
    progress: Array
    """(N, I) float32 in [0, 1]"""
    complete: npt.NDArray[np.bool_]
    """(N, I)"""
    recorded: str = ""
    """Arguments with which the environment records such pictures: "cameras=[front] image_size=192"."""
    has_task: bool = True
    """True if the instructions of the environment's episodes are among these."""

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
        """Return some of the pictures, whole scenes of them."""
        arrays = ("pictures", "positions", "places", "seen", "truth", "progress", "complete")
        chosen = {name: getattr(self, name)[rows] for name in arrays}
        start = rows.start or 0
        return replace(self, firsts=self.firsts[rows] - start, **chosen)


def captioned_pictures(environment: str, *, camera: str, size: int, count: int, seed: int) -> CaptionedPictures:
    """Return `count` pictures of (size, size) that the environment's family draws, with captions.

    Raises UnknownName, and InvalidSetting if the family has no captions.
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
