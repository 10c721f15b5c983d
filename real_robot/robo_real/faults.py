"""Faults that a twin can inject on command; all are off by default. Times are of the twin's clock."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Faults of link, robot and cameras."""

    latency: float = 0.0
    """[s] that each answer waits"""
    jitter: float = 0.0
    """[s] that it waits longer at most, by chance"""
    drop: float = 0.0
    """share of requests whose connection breaks without an answer"""
    disconnect: float = 0.0
    """[s] from now on in which every request is lost"""
    freeze: bool = False
    """the measurements stand still, their times too"""
    repeat: bool = False
    """the measurements stand still, but claim to be new"""
    corrupt: bool = False
    """the measurements are NaN"""
    jump: float = 0.0
    """[m] by which the measured hand is off"""
    camera_freeze: bool = False
    """the cameras deliver no new picture"""
    camera_size: int = 0
    """[pixel] width and height to which the pictures change; 0 leaves them"""
    reflex: bool = False
    """the arm stops by itself, as after a collision, until its error is cleared"""
    push: float = 0.0
    """[N] that the force sensor shows along z besides what there is"""

    def __post_init__(self) -> None:
        from robo_rl.errors import require_allowed

        allowed = {name: (getattr(self, name) >= 0, "0 or more") for name in ("latency", "jitter", "disconnect", "camera_size")}
        allowed["drop"] = (0 <= self.drop <= 1, "0 to 1")
        require_allowed(self, allowed)

    def wait(self) -> float:
        """Returns how long [s] the next answer waits."""
        return self.latency + (random.uniform(0, self.jitter) if self.jitter else 0.0)

    def drops(self) -> bool:
        """Returns whether the next request is lost."""
        return self.drop > 0 and random.random() < self.drop
