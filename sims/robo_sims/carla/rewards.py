"""Rewards of driving: progress along the route alone, or the usual sum of shaping terms. Terms are logged by name."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from typing_extensions import override

from robo_sims.carla.boxes import any_overlap
from robo_sims.carla.judge import COLLISIONS, GOAL
from robo_sims.carla.roads import Floats
from robo_sims.carla.routes import Place
from robo_sims.carla.scene import HALF_LENGTH, VX, VY, Ego, Scene, X, Y

PERIOD = 0.1
"""[s] between two actions: one tick of the rules below."""
EGO_SIZE = 2.45, 1.06
"""[m] half length and half width of the car that is driven, where nothing else is known."""


@dataclass(frozen=True)
class Situation:
    """Inputs of a reward after a step."""

    scene: Scene
    place: Place
    completion: float
    """Share of the route that is done, never less than before."""
    reason: str | None
    """Why the episode is over, or None."""
    size: tuple[float, float] = EGO_SIZE
    """[m] half length and half width of the car that is driven."""
    is_oncoming: bool = False
    """The car's middle is in a lane of oncoming traffic."""


class Reward(Protocol):
    """Turns situations into named terms; the reward is their sum."""

    names: tuple[str, ...]
    """Of the terms."""
    memory: tuple[str, ...] = ()
    """Names of what `remembered` returns."""

    def reset(self, situation: Situation) -> None:
        """A new episode begins here."""
        return

    def terms(self, situation: Situation) -> dict[str, float]:
        """Returns the terms of one step."""

    def nothing(self) -> dict[str, float]:
        """Returns the terms of a step that cannot be judged: all zero."""
        return dict.fromkeys(self.names, 0.0)

    def remembered(self) -> list[float]:
        """Returns what later rewards depend on and no sensor shows, each from 0 to 1; a critic needs it."""
        return []


class CaRL(Reward):
    """Progress along the route, times how it was driven (Jaeger et al. 2025, "CaRL", arXiv:2504.17838, and its repository).

    r = (change of the completion in percent) * product of soft factors; a hard infraction ends the episode. Progress that a
    factor takes is lost: it cannot be had later.

    Differs from CaRL: the end of the route is terminal, not a truncation, because nothing is to be earned behind it; ticks are
    the steps of 0.1 s; stop signs have no rule; off the road is decided by the car's middle.
    """

    TICKS = 500
    """A violation of time to collision or of comfort is remembered so long."""
    HINT = -1.0
    """At a collision and at a red light."""
    HINTED = (*COLLISIONS.values(), "red_light")
    OVERSPEED = 2.23
    """[m/s] above the limit at which nothing is paid."""
    OFF_CENTRE, LANE_TICKS = 0.5, 30
    """[m] and ticks: 3 s."""
    LOOKS = (0.1, 0.3, 0.5, 0.7, 0.9)
    """[s] ahead for the time to collision."""
    COMFORT: Mapping[str, tuple[float, float]] = {
        "forward_acceleration": (-4.05, 2.40),
        "sideways_acceleration": (-4.89, 4.89),
        "jerk": (-8.37, 8.37),
        "forward_jerk": (-4.13, 4.13),
        "yaw_rate": (-0.95, 0.95),
        "yaw_acceleration": (-1.93, 1.93),
    }
    """[m/s2], [m/s3], [rad/s], [rad/s2]"""
    names = ("progress", "hint")
    memory = ("time_to_collision", *COMFORT, "lane")

    @override
    def reset(self, situation: Situation) -> None:
        self.completion = situation.completion
        self.collision_ticks, self.lane_ticks = 0, 0
        self.comfort_ticks = dict.fromkeys(self.COMFORT, 0)
        self.motion = Motion(situation.scene.ego)

    @override
    def terms(self, situation: Situation) -> dict[str, float]:
        gained = 100.0 * (situation.completion - self.completion)
        self.completion = situation.completion
        factor = math.prod(self.factors(situation).values())
        hint = self.HINT if situation.reason in self.HINTED else 0.0
        failed = situation.reason not in (None, GOAL)
        return {"progress": 0.0 if failed else gained * factor, "hint": hint}

    def factors(self, situation: Situation) -> dict[str, float]:
        """Returns the soft factors of this tick, each from 0 to 1, after taking note of its violations."""
        ego = situation.scene.ego
        return {
            "route": float(abs(situation.place.offset) <= 0.5 * situation.place.width),
            "speed": max(0.0, 1.0 - max(ego.speed - ego.limit, 0.0) / self.OVERSPEED),
            "time_to_collision": self._collision_factor(situation),
            "comfort": self._comfort_factor(ego),
            "lane": self._lane_factor(situation.place),
        }

    def _collision_factor(self, situation: Situation) -> float:
        if is_close_to_collision(situation, self.LOOKS):
            self.collision_ticks = self.TICKS
        factor = 0.5 if self.collision_ticks else 1.0
        self.collision_ticks = max(self.collision_ticks - 1, 0)
        return factor

    def _comfort_factor(self, ego: Ego) -> float:
        values = self.motion.measured(ego)
        for name, (low, high) in self.COMFORT.items():
            if not low <= values[name] <= high:
                self.comfort_ticks[name] = self.TICKS
        violated = sum(ticks > 0 for ticks in self.comfort_ticks.values())
        self.comfort_ticks = {name: max(ticks - 1, 0) for name, ticks in self.comfort_ticks.items()}
        return 1.0 - 0.5 * violated / len(self.COMFORT)

    def _lane_factor(self, place: Place) -> float:
        if not place.in_junction:
            self.lane_ticks = max(self.lane_ticks + (1 if abs(place.offset) > self.OFF_CENTRE else -1), 0)
        return 0.5 if self.lane_ticks > self.LANE_TICKS else 1.0

    @override
    def remembered(self) -> list[float]:
        """Returns the ticks that are left of each violation, over the most that there are."""
        ticks = [self.collision_ticks, *self.comfort_ticks.values()]
        return [*(count / self.TICKS for count in ticks), min(self.lane_ticks / (2 * self.LANE_TICKS), 1.0)]


class Motion:
    """Accelerations and jerks of the last 15 ticks, smoothed (Savitzky and Golay 1964): a parabola is fitted to them."""

    FRAMES, DEGREE = 15, 2

    def __init__(self, ego: Ego) -> None:
        from scipy.signal import savgol_coeffs  # lists of environments import this module, and need no filters

        first = (ego.vx, ego.vy, ego.yaw)
        self.history: deque[tuple[float, float, float]] = deque([first] * self.FRAMES, self.FRAMES)
        rows = [
            savgol_coeffs(self.FRAMES, self.DEGREE, deriv=order, delta=PERIOD, pos=self.FRAMES - 1, use="dot")
            for order in (1, 2)
        ]
        self.derivatives: Floats = np.array(rows)

    def measured(self, ego: Ego) -> dict[str, float]:
        """Returns what comfort is judged by, after one more tick."""
        before = self.history[-1][2]
        yaw = before + math.remainder(ego.yaw - before, 2 * math.pi)
        self.history.append((ego.vx, ego.vy, yaw))
        (ax, ay, turning), (jx, jy, turning_change) = (self.derivatives @ np.array(self.history)).tolist()
        forward, sideways = ego.own(ax, ay)
        return {
            "forward_acceleration": forward,
            "sideways_acceleration": sideways,
            "jerk": math.hypot(jx, jy),
            "forward_jerk": ego.own(jx, jy)[0],
            "yaw_rate": turning,
            "yaw_acceleration": turning_change,
        }


def is_close_to_collision(situation: Situation, looks: tuple[float, ...]) -> bool:
    """Return True if boxes at constant velocity touch within a second; a standing car is never the cause."""
    ego, others = situation.scene.ego, situation.scene.others
    if ego.speed < 0.1 or not len(others):
        return False
    half_length, half_width = situation.size
    reach = looks[-1] * np.hypot(others[:, VX] - ego.vx, others[:, VY] - ego.vy) + others[:, HALF_LENGTH] + half_length + 2.0
    near = others[np.hypot(others[:, X] - ego.x, others[:, Y] - ego.y) < reach]
    if not len(near):
        return False
    ahead = np.array(looks)[:, None]
    later = np.tile(near, (len(looks), 1))  # all looks at once, in a frame that moves with the car
    later[:, X] = (near[:, X] - ego.x + ahead * (near[:, VX] - ego.vx)).ravel()
    later[:, Y] = (near[:, Y] - ego.y + ahead * (near[:, VY] - ego.vy)).ravel()
    return any_overlap((0.0, 0.0, ego.yaw, half_length, half_width), later)


class Shaped(Reward):
    """The usual sum: speed along the route, less the distance from its middle, the angle to it, and too much speed.

    The terms of Toromanoff et al. 2020 and Zhang et al. 2021 ("Roach"), with the speed along the route instead of the distance
    from a target speed, so that a car that stands earns nothing. One second of perfect driving pays 1; in a lane of oncoming
    traffic speed pays nothing.
    """

    names = ("speed", "offset", "angle", "failure")
    SPEED, OFFSET, ANGLE, FAILURE = 1.0, 0.5, 0.5, -10.0

    @override
    def terms(self, situation: Situation) -> dict[str, float]:
        ego, place = situation.scene.ego, situation.place
        limit, failed = max(ego.limit, 1.0), situation.reason not in (None, GOAL)
        along = ego.vx * math.cos(place.heading) + ego.vy * math.sin(place.heading)
        over = max(ego.speed - limit, 0.0) / CaRL.OVERSPEED
        most = 0.0 if situation.is_oncoming else 1.0
        return {
            "speed": PERIOD * self.SPEED * (max(min(along / limit, most), -1.0) - min(over, 2.0)),
            "offset": -PERIOD * self.OFFSET * min(abs(place.offset) / (0.5 * place.width), 2.0),
            "angle": -PERIOD * self.ANGLE * abs(math.sin(0.5 * (ego.yaw - place.heading))),
            "failure": self.FAILURE if failed else 0.0,
        }


class Speed(Reward):
    """Speed and keeping to the lane, and nothing of others: what `driving-clg` pays where all looks safe.

    r = (1 - |v - v_top| / v_top) * max(1 - |offset| / 3 m, 0) * max(1 - |angle| / 90 degrees, 0).
    """

    names = ("speed",)
    TOP = 8.0
    """[m/s]"""

    @override
    def terms(self, situation: Situation) -> dict[str, float]:
        ego, place = situation.scene.ego, situation.place
        angle = math.remainder(ego.yaw - place.heading, 2 * math.pi)
        speed = 1.0 - abs(ego.own(ego.vx, ego.vy)[0] - self.TOP) / self.TOP
        return {"speed": speed * max(1.0 - abs(place.offset) / 3.0, 0.0) * max(1.0 - abs(angle) / (math.pi / 2), 0.0)}


REWARDS: dict[str, type[Reward]] = {"carl": CaRL, "shaped": Shaped, "speed": Speed}
