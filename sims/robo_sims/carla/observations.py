"""Observations of the driving task: specs of the arrays and their computation from a scene.

The layout "vectors" lies here, "sets" in robo_sims.carla.sets; both begin with `MOTION`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robo_rl.spec.environment import ArraySpec
from robo_sims.carla.rewards import Reward, Situation
from robo_sims.carla.roads import Floats
from robo_sims.carla.routes import Route
from robo_sims.carla.scene import GREEN, HALF_LENGTH, RED, VX, VY, YAW, YELLOW, Ego, Scene, X, Y

Arrays = dict[str, npt.NDArray[np.generic]]

DISTANCES = np.array([2.0, 4.0, 6.0, 9.0, 12.0, 16.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0])
"""Distances [m] along the route ahead of the car at which the route is observed."""
NEAREST, SIGHT = 6, 60.0
"""Number of observed actors, and range [m]."""
FAR = 100.0
"""[m] distance reported without a light."""

MOTION = (
    ArraySpec("velocity", (2,), unit="m/s", frame="ego", meaning="of the car's middle: forward, to the right"),
    ArraySpec("acceleration", (2,), unit="m/s^2", frame="ego", meaning="forward, to the right"),
    ArraySpec("yaw_rate", (1,), unit="rad/s", frame="ego", meaning="positive to the right"),
    ArraySpec(
        "controls",
        (2,),
        low=-1.0,
        high=1.0,
        meaning="the last action: steering, right positive; throttle, or brake where negative",
    ),
    ArraySpec("speed_limit", (1,), low=0.0, unit="m/s", frame="ego"),
    ArraySpec(
        "route",
        (len(DISTANCES), 2),
        unit="m",
        frame="ego",
        role="goal",
        meaning="points of the route, "
        + ", ".join(f"{distance:g}" for distance in DISTANCES)
        + " m ahead along it: forward, to the right of the car's middle",
    ),
)
VECTORS = (
    *MOTION,
    ArraySpec(
        "next_light",
        (4,),
        low=0.0,
        high=(FAR, 1.0, 1.0, 1.0),
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"of the next traffic light on the route: distance [m] to its stop line ({FAR:g} where there is none), "
        "whether it is red, yellow, green",
    ),
    ArraySpec(
        "others",
        (NEAREST, 8),
        unit="mixed",
        frame="ego",
        role="object",
        meaning=f"the {NEAREST} nearest vehicles and walkers within {SIGHT:g} m, nearest first, a row each, zeros for none: "
        "1, place [m] forward and to the right, cosine and sine of its heading, velocity [m/s] forward and to the right "
        "relative to the car, half length [m]",
    ),
)
LEFT = ArraySpec(
    "left",
    (3,),
    low=0.0,
    high=1.0,
    role="privileged",
    meaning="shares: of the route that is left, of the steps that are left, of the time of standing still that is left",
)


def reward_memory(reward: Reward) -> tuple[ArraySpec, ...]:
    """Return the spec of the reward's memory; empty if the reward has none."""
    if not reward.memory:
        return ()
    meaning = "shares of the time for which the reward remembers: " + ", ".join(reward.memory).replace("_", " ")
    return (ArraySpec("reward_memory", (len(reward.memory),), low=0.0, high=1.0, role="privileged", meaning=meaning),)


def motion(situation: Situation, route: Route, controls: npt.NDArray[np.float64]) -> Arrays:
    """Return the observations named in `MOTION`: velocity, acceleration, yaw rate and last controls of the ego vehicle.

    controls: the last action.
    """
    ego = situation.scene.ego
    return {
        "velocity": np.array(ego.to_ego(ego.vx, ego.vy), np.float32),
        "acceleration": np.array(ego.to_ego(ego.ax, ego.ay), np.float32),
        "yaw_rate": np.array([ego.turning], np.float32),
        "controls": controls.astype(np.float32),
        "speed_limit": np.array([ego.limit], np.float32),
        "route": ego.positions_in_ego(route.ahead(situation.place.s, DISTANCES)).astype(np.float32),
    }


def vectors(situation: Situation, route: Route, controls: npt.NDArray[np.float64]) -> Arrays:
    """Return the arrays of `VECTORS`."""
    scene, s = situation.scene, situation.place.s
    others = np.zeros((NEAREST, 8), np.float32)
    _, rows = nearest(scene.ego, scene.others, NEAREST)
    others[: len(rows)] = rows
    return motion(situation, route, controls) | {"next_light": _next_light(scene, s), "others": others}


def _next_light(scene: Scene, s: float) -> npt.NDArray[np.float32]:
    for stop, state in scene.lights:
        if s <= stop < s + FAR:
            return np.array([stop - s, state == RED, state == YELLOW, state == GREEN], np.float32)
    return np.array([FAR, 0.0, 0.0, 0.0], np.float32)


def nearest(ego: Ego, others: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the `count` nearest actors within `SIGHT`, nearest first.

    Returns:
        Their rows (k, 8) of `Scene.others`, and (k, 8) as the entry `others` of `VECTORS` has them.
    """
    squares = (others[:, X] - ego.x) ** 2 + (others[:, Y] - ego.y) ** 2
    order = np.argsort(squares, kind="stable")[:count]
    chosen = others[order[squares[order] < SIGHT * SIGHT]]
    rows = np.empty((len(chosen), 8))
    rows[:, 0] = 1.0
    rows[:, 1:3] = ego.positions_in_ego(chosen[:, :2])
    turned = chosen[:, YAW] - ego.yaw
    rows[:, 3], rows[:, 4] = np.cos(turned), np.sin(turned)
    cosine, sine = np.cos(ego.yaw), np.sin(ego.yaw)
    dx, dy = chosen[:, VX] - ego.vx, chosen[:, VY] - ego.vy
    rows[:, 5], rows[:, 6] = dx * cosine + dy * sine, dy * cosine - dx * sine
    rows[:, 7] = chosen[:, HALF_LENGTH]
    return chosen, rows
