"""Base of an arm task, written once for single environments and batches: `...` is no axis for one, N for a batch of N."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import ArraySpec
from robo_sims.arm.expert import ExpertFactory
from robo_sims.arm.physics import EVERYWHERE, Arm, ArmPhysics, Array, Mask, Rows
from robo_sims.arm.rewards import Progress


class Task(ABC):
    """Bodies, start distribution, observations, success rule and expert of one task."""

    bodies: ClassVar[str]
    """MJCF elements for <worldbody>"""
    instruction: ClassVar[str]
    success_rule: ClassVar[str]
    max_steps: ClassVar[int]
    held_steps: ClassVar[int] = 1
    """control steps in a row for which `holds` must be true"""
    grasps: ClassVar[bool]
    """whether the fingers must move"""
    observation: ClassVar[tuple[ArraySpec, ...]]
    """what the task adds to what the arm observes of itself"""
    expert: ClassVar[ExpertFactory]

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.held: npt.NDArray[np.int64] = np.zeros(arm.qpos.shape[:-1], np.int64)
        """(...) control steps in a row for which the task has been done"""

    @abstractmethod
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Places the bodies for an episode in one simulation, whose arm is already at its start."""

    @abstractmethod
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the entries of `observation`, (..., size)."""

    @abstractmethod
    def holds(self) -> Mask:
        """Returns (...): the condition of success is true now."""

    @abstractmethod
    def progress(self) -> Progress:
        """Returns how far each part of the task is done, (...) from 0 to 1."""

    def restart(self, rows: Rows = ...) -> None:
        """Forgets what was done before, where episodes begin."""
        self.held = np.array(self.held)
        self.held[rows] = 0

    def is_success(self, among: Mask = EVERYWHERE) -> Mask:
        """Judges the present states, exactly once after each control period; the others' count stays as it is."""
        held = (self.held + 1) * self.holds()
        self.held = held if among is EVERYWHERE else np.where(among, held, self.held)
        success: Mask = self.held >= self.held_steps
        return success


def fourfold(angle: Array) -> Array:
    """Returns (..., 2): (cos 4a, sin 4a) of angles (...) [rad], the same for each quarter turn."""
    direction, turn = np.empty((*angle.shape, 2)), 4 * angle
    direction[..., 0], direction[..., 1] = np.cos(turn), np.sin(turn)
    return direction
