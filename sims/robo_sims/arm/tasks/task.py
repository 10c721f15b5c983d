"""What the arm environment asks of a task."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.spec import ArraySpec
from robo_sims.arm.expert import ExpertFactory
from robo_sims.arm.physics import ArmPhysics
from robo_sims.arm.rewards import Progress


class Task(Protocol):
    """Bodies, start distribution, observations, success rule and expert of one task; constructed with its physics."""

    bodies: ClassVar[str]
    """MJCF elements for <worldbody>"""
    instruction: ClassVar[str]
    success_rule: ClassVar[str]
    max_steps: ClassVar[int]
    grasps: ClassVar[bool]
    """whether the fingers must move"""
    observation: ClassVar[tuple[ArraySpec, ...]]
    """what the task adds to what the arm observes of itself"""
    expert: ClassVar[ExpertFactory]

    def __init__(self, physics: ArmPhysics) -> None: ...

    def reset(self, random: np.random.Generator) -> None:
        """Places the task's bodies; the arm is already at its start."""

    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the entries of `observation`."""

    def is_success(self) -> bool:
        """Judges the present state; asked exactly once after each control period."""

    def progress(self) -> Progress:
        """Returns how far each part of the task is done, from 0 to 1."""
