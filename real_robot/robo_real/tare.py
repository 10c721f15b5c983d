"""Tare of a force sensor: force and torque of a standing arm that touches nothing become zero.

One pose cannot tell a light, steady contact from an offset of the sensor or an unknown payload. Therefore a tare is refused
above the soft force of the limits, also in the sum of all tares since the server started.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from robo_real.arm import ArmDriver, ArmState, Array
from robo_real.limits import Limits
from robo_rl.errors import RobotError, RobotUnavailable

SAMPLES, PERIOD = 25, 0.02
"""number of measurements before and after the tare, and [s] between two of them"""
MOST_SPEED = 0.02
"""[rad/s] largest speed of a joint that counts as standing"""
MOST_NOISE = 3.0
"""[N] standard deviation along an axis, above which something shakes or touches the arm"""
MOST_DRIFT = 1.0
"""[N] largest difference between the mean forces of the first and second half of the measurements"""
MOST_LEFT = 1.0
"""[N] largest mean force along an axis after a tare"""
GRAVITY = 9.81
"""[m/s^2] acceleration of gravity"""


@dataclass(frozen=True)
class Tare:
    """Result of a tare. Vectors are along x, y, z of the base's frame."""

    force: tuple[float, ...]
    """(3,) [N] mean force before the tare, which now counts as zero"""
    torque: tuple[float, ...]
    """(3,) [N m] mean torque before the tare"""
    noise: float
    """[N] largest standard deviation of the force along an axis, before the tare"""
    drift: float
    """[N/s] change of the force, before the tare"""
    left: float
    """[N] largest mean force along an axis, after the tare"""
    payload: float
    """[kg] mass whose weight would be the force along z before the tare; negative if that force points up"""
    total: tuple[float, ...]
    """(3,) [N] sum of the forces of all tares since the server started"""

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON values."""
        return asdict(self)


class ForceTare:
    """Tares of one arm; it remembers their sum, so that many small tares cannot hide a large force."""

    def __init__(self, driver: ArmDriver, limits: Limits) -> None:
        self._driver, self._limits = driver, limits
        self._total: Array = np.zeros(3)

    def tare(self) -> Tare:
        """Zero the force sensor of a standing arm. The caller must keep the arm from moving meanwhile.

        Returns:
            The force and torque before the tare, and the checks of the measurements.

        Raises:
            RobotUnavailable: The driver has no tare, its measurements are not finite or frozen, or the tare fails.
            RobotError: The arm moves, shakes, is in contact, or reports an error.
        """
        zero = getattr(self._driver, "tare", None)
        if zero is None:
            fix = "zero the force at the robot, with nothing in contact"
            raise RobotUnavailable("This robot's driver has no tare.", got=self._driver.name, fix=fix)
        before = self._measured()
        force = np.stack([state.force for state in before])
        mean = force.mean(0)
        half = len(force) // 2
        drift = force[half:].mean(0) - force[:half].mean(0)
        self._require_rest(before, force, drift)
        self._require_free(mean, before)
        zero()
        left = np.abs(np.mean([state.force for state in self._measured()], axis=0)).max()
        if left > MOST_LEFT:
            got, allowed = f"{left:.2f} N", f"{MOST_LEFT} N"
            raise RobotUnavailable("The force is not zero after the tare.", got=got, allowed=allowed, fix="is it in contact?")
        self._total += mean
        torque = np.mean([state.torque for state in before], axis=0)
        return Tare(
            force=_rounded(mean),
            torque=_rounded(torque),
            noise=round(float(force.std(0).max()), 3),
            drift=round(float(np.linalg.norm(drift)) / (half * PERIOD), 3),
            left=round(float(left), 3),
            payload=round(-float(mean[2]) / GRAVITY, 3),
            total=_rounded(self._total),
        )

    def _measured(self) -> list[ArmState]:
        found = []
        for _ in range(SAMPLES):
            self._driver.clock.sleep(PERIOD)
            found.append(self._driver.read())
        if not all(state.is_finite for state in found) or len({state.stamp for state in found}) < SAMPLES / 2:
            raise RobotUnavailable(
                "The measurements are not finite, or frozen.", got=found[-1].stamp, fix="look at its sensors"
            )
        return found

    def _require_rest(self, states: list[ArmState], force: Array, drift: Array) -> None:
        speed = max(float(np.abs(state.joint_velocity).max()) for state in states)
        for what, value, most, unit in (
            ("moves", speed, MOST_SPEED, "rad/s"),
            ("shakes, or something touches it", float(force.std(0).max()), MOST_NOISE, "N (standard deviation)"),
            ("is pushed, or its force sensor drifts", float(np.abs(drift).max()), MOST_DRIFT, "N (change)"),
        ):
            if value > most:
                got, allowed = f"{value:.3g} {unit}", f"{most} {unit}"
                raise RobotError(f"The arm {what}: no tare.", got=got, allowed=allowed, fix="let it stand free, and tare again")

    def _require_free(self, mean: Array, states: list[ArmState]) -> None:
        if fault := states[-1].fault:
            raise RobotError(
                "The robot reports an error: no tare.", got=fault, fix="look at the robot, then robo-rl robot rearm URL"
            )
        after = np.abs(self._total + mean)
        torque = float(np.linalg.norm(np.mean([state.torque for state in states], axis=0)))
        if after.max() > self._limits.soft_force or torque > self._limits.hard_torque / 2:
            raise RobotError(
                "The arm is in contact, or its payload is not set: no tare.",
                got=f"{mean.round(1).tolist()} N now, {after.max():.1f} N along an axis with earlier tares, {torque:.1f} N m",
                allowed=f"soft_force, {self._limits.soft_force} N along an axis, and half of hard_torque",
                fix="move the hand free; set the payload at the robot",
            )


def _rounded(values: Array) -> tuple[float, ...]:
    return tuple(round(float(value), 3) for value in values)
