"""Injectable faults of a twin; all are off by default. Times are of the twin's clock."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Faults:
    """Faults of connection, robot and cameras."""

    latency: float = 0.0
    """[s] delay of each answer"""
    jitter: float = 0.0
    """[s] maximum of an additional random delay"""
    drop: float = 0.0
    """share of requests whose connection breaks without an answer"""
    disconnect: float = 0.0
    """[s] from now on without any answer"""
    freeze: bool = False
    """constant measurements with constant stamps"""
    repeat: bool = False
    """constant measurements with new stamps"""
    corrupt: bool = False
    """NaN in the measurements"""
    jump: float = 0.0
    """[m] offset of the measured hand"""
    camera_freeze: bool = False
    """no new pictures"""
    camera_size: int = 0
    """[pixel] wrong width and height of the pictures; 0 for none"""
    camera_swap: bool = False
    """each camera's pictures come from the next one, as with swapped plugs"""
    reflex: bool = False
    """stop of the arm itself, as after a collision, until its error is cleared"""
    push: float = 0.0
    """[N] offset of the measured force along z"""

    def __post_init__(self) -> None:
        from robo_rl.errors import require_allowed

        allowed = {name: (getattr(self, name) >= 0, "0 or more") for name in ("latency", "jitter", "disconnect", "camera_size")}
        allowed["drop"] = (0 <= self.drop <= 1, "0 to 1")
        require_allowed(self, allowed)

    def wait(self) -> float:
        """Return the delay [s] of the next answer."""
        return self.latency + (random.uniform(0, self.jitter) if self.jitter else 0.0)

    def drops(self) -> bool:
        """Return whether the next request is lost."""
        return self.drop > 0 and random.random() < self.drop
