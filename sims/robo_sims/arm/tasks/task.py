"""Base class of arm tasks; `...` is no axis for one environment, N for a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import ArraySpec, Role
from robo_sims.arm.captions import Instruction, Sentence
from robo_sims.arm.expert import ExpertFactory
from robo_sims.arm.physics import EVERYWHERE, MAX_OPENING, Arm, ArmPhysics, Array, Mask, Rows
from robo_sims.arm.pose_sampling import START, START_YAW, Pose, Random, SceneObject
from robo_sims.arm.rewards import Progress


@dataclass(frozen=True)
class Kind:
    """Kind of objects of a task, which captions tell apart by their colours."""

    body: str
    """Name of the body in the model that shows such an object."""
    colours: Mapping[str, tuple[float, float, float]]
    """Name of a colour -> RGB."""
    turns: bool = False
    """True if the yaw of such an object is seen."""


class ArmTask(ABC):
    """Bodies, initial states, observations, success rule, expert, captions and random states of one task."""

    bodies: ClassVar[str]
    """MuJoCo XML of the task's objects: the elements that go into <worldbody>."""
    instruction: ClassVar[str]
    """the task in one sentence, such as "pick up the red cube\""""
    success_rule: ClassVar[str]
    """condition of success in words, with its thresholds"""
    max_steps: ClassVar[int]
    """control steps after which an episode is cut"""
    held_steps: ClassVar[int] = 1
    """consecutive control steps in which `holds` must be True"""
    grasps: ClassVar[bool]
    """True if the task needs moving fingers"""
    observation: ClassVar[tuple[ArraySpec, ...]]
    """specs of the task's observations, added to those of the arm"""
    expert: ClassVar[ExpertFactory]
    """creates the scripted expert of one episode"""
    kinds: ClassVar[Mapping[str, Kind]]
    """Kind of object that captions name, such as "cube" -> body and colours that show it."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.held: npt.NDArray[np.int64] = np.zeros(arm.qpos.shape[:-1], np.int64)
        """(...) consecutive control steps in which `holds` was True"""

    @abstractmethod
    def place(self, physics: ArmPhysics, random: np.random.Generator) -> None:
        """Place the bodies for an episode in one simulation; the arm is already at its start."""

    @abstractmethod
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        """Return the entries of `observation`, (..., size)."""

    @abstractmethod
    def holds(self) -> Mask:
        """Return (...): True if the success condition holds now."""

    @abstractmethod
    def progress(self) -> Progress:
        """Return the progress (...) of each part of the task, from 0 to 1."""

    @staticmethod
    @abstractmethod
    def instructions() -> Iterator[Instruction]:
        """Yield the instructions that a caption of this scene may state, each in several wordings with progress and completion.

        The task's own instruction is among them.
        """

    @staticmethod
    @abstractmethod
    def descriptions() -> Iterator[Sentence]:
        """Yield caption sentences that describe a state of the task, each with its truth in a state."""

    @staticmethod
    @abstractmethod
    def scene(random: Random) -> tuple[SceneObject, ...]:
        """Return the objects of a random scene."""

    @staticmethod
    @abstractmethod
    def pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a random pose of the hand, and of objects that it holds or has moved, in a scene."""

    @classmethod
    def start(cls, things: tuple[SceneObject, ...], random: Random) -> Pose:
        """Return a state in which an episode begins."""
        return Pose(random.uniform(*START), random.uniform(-START_YAW, START_YAW), MAX_OPENING, things)

    @classmethod
    def sentences(cls) -> tuple[Sentence, ...]:
        """Return the descriptions, and the instructions as sentences that are true once they are complete."""
        done = [Sentence(words, each.complete) for each in cls.instructions() for words in each.wordings]
        return (*cls.descriptions(), *done)

    def restart(self, rows: Rows = ...) -> None:
        """Reset the counters of `rows`, at the start of their episodes."""
        self.held = np.array(self.held)
        self.held[rows] = 0

    def is_success(self, among: Mask = EVERYWHERE) -> Mask:
        """Update the counters and return success; call it once per control period. Rows outside `among` keep their count."""
        held = (self.held + 1) * self.holds()
        self.held = held if among is EVERYWHERE else np.where(among, held, self.held)
        success: Mask = self.held >= self.held_steps
        return success


def vector_spec(name: str, size: int, role: Role, meaning: str) -> ArraySpec:
    """Return the spec of a position or displacement (size,) [m] in the base frame."""
    return ArraySpec(name, (size,), unit="m", frame="base", role=role, meaning=meaning)


def unit_spec(name: str, size: int, role: Role, meaning: str, frame: str = "base") -> ArraySpec:
    """Return the spec of a unit vector (size,)."""
    return ArraySpec(name, (size,), low=-1.0, high=1.0, unit="1", frame=frame, role=role, meaning=meaning)


def velocity_spec(name: str, body: str) -> ArraySpec:
    """Return the spec of the velocity (6,) of a body, an entry of the observation that only critics and rewards read.

    Args:
        name: Name of the entry.
        body: Name of the body: its linear velocity [m/s] in the base frame, then its angular velocity [rad/s] in its own.
    """
    meaning = f"of the {body}: linear x, y, z [m/s] in the frame base, then angular [rad/s] in the {body}'s own frame"
    return ArraySpec(name, (6,), unit="mixed", role="privileged", meaning=meaning)


def fourfold(angle: Array) -> Array:
    """Return (cos 4a, sin 4a), (..., 2), of angles a (...) [rad]; it is the same for angles that differ by quarter turns."""
    direction, turn = np.empty((*angle.shape, 2)), 4 * angle
    direction[..., 0], direction[..., 1] = np.cos(turn), np.sin(turn)
    return direction
