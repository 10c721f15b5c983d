"""Driving rewards: progress along the route, or a sum of shaping terms; terms are logged by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from typing_extensions import override

from robo_sims.carla.boxes import any_overlap
from robo_sims.carla.roads import Floats
from robo_sims.carla.routes import RoutePosition
from robo_sims.carla.scene import EGO_SIZE, HALF_LENGTH, VX, VY, Ego, Scene, X, Y
from robo_sims.carla.termination import COLLISIONS, GOAL

PERIOD = 0.1
"""Time [s] between two actions: one tick of the simulator."""


@dataclass(frozen=True)
class Situation:
    """State of the drive at one step: scene, progress along the route, and stop reason. Rewards are computed from it."""

    scene: Scene
    place: RoutePosition
    completion: float
    """Completed share of the route; never decreases."""
    reason: str | None
    """Stop reason, or None."""
    size: tuple[float, float] = EGO_SIZE
    """[m] half length and half width of the ego vehicle."""
    is_oncoming: bool = False
    """True if the car's middle is in a lane of oncoming traffic."""

    def alone(self) -> Situation:
        """Return the situation without others, lights and signs, as one who does not see them takes it to be."""
        return replace(self, scene=replace(self.scene, others=self.scene.others[:0], lights=[], signs=[]))


class Reward(Protocol):
    """Protocol of driving rewards. A reward maps a situation to named terms; their sum is the reward of the step."""

    names: tuple[str, ...]
    """Names of the terms."""
    memory: tuple[str, ...] = ()
    """Names of the entries of `memory_values`."""

    def reset(self, situation: Situation) -> None:
        """Start an episode in this situation."""
        return

    def terms(self, situation: Situation) -> dict[str, float]:
        """Return the terms of one step."""

    def zero_terms(self) -> dict[str, float]:
        """Return zero terms, for a step without a situation."""
        return dict.fromkeys(self.names, 0.0)

    def memory_values(self) -> list[float]:
        """Return the hidden state that later rewards depend on, each entry from 0 to 1, for a privileged critic."""
        return []


class CaRL(Reward):
    """Route progress times soft penalty factors (Jaeger et al. 2025, "CaRL", arXiv:2504.17838, and its repository).

    r = (change of the completion in percent) * product of soft factors; a hard infraction ends the episode. Progress lost to a
    factor cannot be regained.

    Differs from CaRL: the end of the route is terminal, not a truncation, because no reward follows it; ticks are steps of
    0.1 s; stop signs have no rule; off-road is decided by the car's middle.
    """

    TICKS = 500
    """Duration of the penalty for a violation of time to collision or comfort."""
    HINT = -1.0
    """Reward added in a step that ends with a collision or at a red light."""
    HINTED = (*COLLISIONS.values(), "red_light")
    OVERSPEED = 2.23
    """[m/s] above the limit at which the factor is 0."""
    OFF_CENTRE, LANE_TICKS = 0.5, 30
    """[m] and ticks: 3 s."""
    LOOKS = (0.1, 0.3, 0.5, 0.7, 0.9)
    """Times [s] ahead at which the reward checks for a collision, at constant velocities."""
    COMFORT: Mapping[str, tuple[float, float]] = {
        "forward_acceleration": (-4.05, 2.40),
        "sideways_acceleration": (-4.89, 4.89),
        "jerk": (-8.37, 8.37),
        "forward_jerk": (-4.13, 4.13),
        "yaw_rate": (-0.95, 0.95),
        "yaw_acceleration": (-1.93, 1.93),
    }
    """Allowed range of forward and sideways acceleration [m/s2], jerk [m/s3], yaw rate [rad/s] and yaw acceleration
    [rad/s2]."""
    names = ("progress", "hint")
    memory = ("time_to_collision", *COMFORT, "lane")

    @override
    def reset(self, situation: Situation) -> None:
        self.completion = situation.completion
        self.collision_ticks, self.lane_ticks = 0, 0
        self.comfort_ticks = dict.fromkeys(self.COMFORT, 0)
        self.motion = MotionFilter(situation.scene.ego)

    @override
    def terms(self, situation: Situation) -> dict[str, float]:
        gained = 100.0 * (situation.completion - self.completion)
        self.completion = situation.completion
        factor = math.prod(self.factors(situation).values())
        hint = self.HINT if situation.reason in self.HINTED else 0.0
        failed = situation.reason not in (None, GOAL)
        return {"progress": 0.0 if failed else gained * factor, "hint": hint}

    def factors(self, situation: Situation) -> dict[str, float]:
        """Return the soft penalty factors of this tick, name -> 0 to 1.

        A call also counts how long comfort and distance are violated.
        """
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
        values = self.motion.update(ego)
        for name, (low, high) in self.COMFORT.items():
            if not low <= values[name] <= high:
                self.comfort_ticks[name] = self.TICKS
        violated = sum(ticks > 0 for ticks in self.comfort_ticks.values())
        self.comfort_ticks = {name: max(ticks - 1, 0) for name, ticks in self.comfort_ticks.items()}
        return 1.0 - 0.5 * violated / len(self.COMFORT)

    def _lane_factor(self, place: RoutePosition) -> float:
        if not place.in_junction:
            self.lane_ticks = max(self.lane_ticks + (1 if abs(place.offset) > self.OFF_CENTRE else -1), 0)
        return 0.5 if self.lane_ticks > self.LANE_TICKS else 1.0

    @override
    def memory_values(self) -> list[float]:
        """Return the remaining ticks of each violation, as shares of the maximum."""
        ticks = [self.collision_ticks, *self.comfort_ticks.values()]
        return [*(count / self.TICKS for count in ticks), min(self.lane_ticks / (2 * self.LANE_TICKS), 1.0)]


class MotionFilter:
    """Savitzky-Golay filter (1964) for acceleration and jerk: a parabola fitted to the last 15 ticks."""

    FRAMES, DEGREE = 15, 2

    def __init__(self, ego: Ego) -> None:
        from scipy.signal import savgol_coeffs  # slow import, not needed to list environments

        first = (ego.vx, ego.vy, ego.yaw)
        self.history: Floats = np.array([first] * self.FRAMES)
        rows = [
            savgol_coeffs(self.FRAMES, self.DEGREE, deriv=order, delta=PERIOD, pos=self.FRAMES - 1, use="dot")
            for order in (1, 2)
        ]
        self.derivatives: Floats = np.array(rows)

    def update(self, ego: Ego) -> dict[str, float]:
        """Add a tick and return the quantities of the comfort limits."""
        before = float(self.history[-1, 2])
        yaw = before + math.remainder(ego.yaw - before, 2 * math.pi)
        self.history[:-1] = self.history[1:]
        self.history[-1] = ego.vx, ego.vy, yaw
        (ax, ay, turning), (jx, jy, turning_change) = (self.derivatives @ self.history).tolist()
        forward, sideways = ego.to_ego(ax, ay)
        return {
            "forward_acceleration": forward,
            "sideways_acceleration": sideways,
            "jerk": math.hypot(jx, jy),
            "forward_jerk": ego.to_ego(jx, jy)[0],
            "yaw_rate": turning,
            "yaw_acceleration": turning_change,
        }


def is_close_to_collision(situation: Situation, looks: tuple[float, ...]) -> bool:
    """Return True if our box meets another at a time of `looks` [s] from now, at constant velocity; False if we stand."""
    ego, others = situation.scene.ego, situation.scene.others
    if ego.speed < 0.1 or not len(others):
        return False
    half_length, half_width = situation.size
    reach = looks[-1] * np.hypot(others[:, VX] - ego.vx, others[:, VY] - ego.vy) + others[:, HALF_LENGTH] + half_length + 2.0
    near = others[np.hypot(others[:, X] - ego.x, others[:, Y] - ego.y) < reach]
    if not len(near):
        return False
    ahead = np.array(looks)[:, None]
    later = np.tile(near, (len(looks), 1))  # all prediction times at once, in a frame that moves with the car
    later[:, X] = (near[:, X] - ego.x + ahead * (near[:, VX] - ego.vx)).ravel()
    later[:, Y] = (near[:, Y] - ego.y + ahead * (near[:, VY] - ego.vy)).ravel()
    return any_overlap((0.0, 0.0, ego.yaw, half_length, half_width), later)


class Shaped(Reward):
    """Sum of shaping terms: speed along the route, minus lateral offset, angle and overspeed.

    Terms of Toromanoff et al. 2020 and Zhang et al. 2021 ("Roach"), with the speed along the route instead of the distance from
    a target speed, so that a standing car earns nothing. One second of perfect driving pays 1; speed in a lane of oncoming
    traffic pays nothing.
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
    """Speed and lane keeping without other actors: a base for rewards that look at them.

    r = (1 - |v - v_top| / v_top) * max(1 - |offset| / 3 m, 0) * max(1 - |angle| / 90 degrees, 0).
    """

    names = ("speed",)
    TOP = 8.0
    """Speed [m/s] with the highest reward."""

    @override
    def terms(self, situation: Situation) -> dict[str, float]:
        ego, place = situation.scene.ego, situation.place
        angle = math.remainder(ego.yaw - place.heading, 2 * math.pi)
        speed = 1.0 - abs(ego.to_ego(ego.vx, ego.vy)[0] - self.TOP) / self.TOP
        return {"speed": speed * max(1.0 - abs(place.offset) / 3.0, 0.0) * max(1.0 - abs(angle) / (math.pi / 2), 0.0)}


REWARDS: dict[str, type[Reward]] = {"carl": CaRL, "shaped": Shaped, "speed": Speed}
