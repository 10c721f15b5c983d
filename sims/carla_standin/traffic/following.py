"""The intelligent driver model (Treiber, Hennecke and Helbing, Physical Review E 62, 2000), over arrays of cars."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Driver:
    """Parameters of all drivers; values for city traffic near those of the paper's table I."""

    acceleration: float = 1.8
    """Largest acceleration [m/s2] of a car on a free road."""
    comfort: float = 2.5
    """Braking [m/s2] that the driver finds comfortable."""
    hardest: float = 7.0
    """Strongest braking [m/s2] that is possible, for emergencies."""
    gap: float = 2.0
    """Gap [m] that the driver keeps to a standing leader."""
    headway: float = 1.4
    """Time gap [s] that the driver keeps to a leader."""


DRIVER = Driver()


def free_road(speed: Floats, wanted: Floats, driver: Driver = DRIVER) -> Floats:
    """Return the acceleration [m/s2] without a leader (first two terms of equation 3)."""
    return driver.acceleration * (1.0 - (speed / np.maximum(wanted, 0.1)) ** 4)


def interaction(speed: Floats, gap: Floats, leader: Floats | float, driver: Driver = DRIVER) -> Floats:
    """Return the acceleration [m/s2] by a leader, never positive (last term of equation 3, with equation 4)."""
    closing = speed * (speed - leader) / (2.0 * math.sqrt(driver.acceleration * driver.comfort))
    wished = driver.gap + np.maximum(speed * driver.headway + closing, 0.0)
    return np.asarray(-driver.acceleration * (wished / np.maximum(gap, 0.1)) ** 2)


def approach(limit: Floats, distance: Floats, driver: Driver = DRIVER) -> Floats:
    """Return the highest speed [m/s] from which comfortable braking reaches a speed limit in time.

    Args:
        limit: Speed [m/s] to be reached.
        distance: Distance [m] that is left for braking.
        driver: Parameters of the driver.
    """
    return np.asarray(np.sqrt(limit * limit + 2.0 * driver.comfort * np.maximum(distance, 0.0)))
