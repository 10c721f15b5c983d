"""Scripted driver: follows the route, keeps its distance and stops at red lights, from a policy's observations alone."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from carla_standin.approach import closest_approach
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_sims.carla.observations import DISTANCES, FAR

WHEELBASE, MOST_STEER = 2.9, math.radians(40.0)
"""Wheelbase [m] of the car, and angle [rad] of its front wheels at steer 1."""
SIDEWAYS = 2.0
"""[m/s2] lateral acceleration in bends."""
BRAKING = 2.0
"""Deceleration [m/s2] with which the driver plans to brake."""
FIRM, HARDEST = 3.0, 6.0
"""[m/s2] deceleration before a yellow light, and where the driver would not be past it in time."""
PASSES = 2.2
"""Time [s] of a yellow light in which the driver still passes it; the light is yellow for three seconds."""
GAP, HEADWAY = 3.0, 1.2
"""[m] gap to the lead vehicle, plus a headway [s]."""
CORRIDOR = 1.9
"""[m] distance from the route within which other actors are obstacles."""
REACH = np.concatenate([[0.0], DISTANCES])
"""Positions [m] along the route at which the route is observed: that of the car's middle, then `DISTANCES`."""
EGO_HALF = 2.4
STOP = 4.0
"""Distance [m] before a stop line at which the driver aims to stop."""
SOON = 2.0
"""Time [s] for which other actors are expected to go straight on at their present velocity."""
TURN, NEXT = 0.04, 25.0
"""Curvature [1/m] from which on the route counts as a turn, and distance ahead [m] in which a turn is looked for."""
ALONG, AGAINST, COMING = 0.5, -0.7, 0.5
"""Cosine of the angle between headings above which another car drives the same way, below which it is oncoming; speed [m/s]
of a moving one."""
ASIDE = 2.5
"""[m] lateral distance between two paths without conflict."""
PACE, MARGIN = 4.0, 1.0
"""Lowest speed [m/s] that is assumed of crossing cars, and time [s] that must lie between them and the expert's car."""
SHORT = 2.5
"""[m] stopping distance before a conflict point: nearer, its nose would be in the way of the one it lets pass."""
WAITING = 100
"""Steps of waiting for others to cross; then the driver goes."""


class ScriptedDriver:
    """Rule-based driver; its state is the time it has given way, and its decision at a yellow light."""

    def __init__(self, spec: EnvironmentSpec, *, seed: int, noise: float) -> None:
        self.environment_spec = spec
        self._noise, self._random = noise, np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Forget how long the car has waited, and the last decision, before a new episode."""
        self._stood = 0
        self._stops: bool | None = None

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.float32]:
        """Return (steer, longitudinal) in [-1, 1], with noise on both unless `deterministic`."""
        seen = Seen(observation)
        action: npt.NDArray[np.float64] = np.array([self._steer(observation, seen.speed), self._pedals(seen)])
        if self._noise and not deterministic:
            action += self._random.normal(0.0, self._noise, 2)
        clipped: npt.NDArray[np.float32] = np.clip(action, -1.0, 1.0).astype(np.float32)
        return clipped

    def _steer(self, observation: Observation, speed: float) -> float:
        """Pure pursuit (Coulter 1992) from the rear axle; the look-ahead distance grows with speed."""
        reach = min(max(0.5 * speed, 4.0), 16.0)
        forward, aside = (float(np.interp(reach, DISTANCES, observation["route"][:, axis])) for axis in (0, 1))
        forward += WHEELBASE / 2
        curvature = 2.0 * aside / max(forward * forward + aside * aside, 1e-3)
        return math.atan(WHEELBASE * curvature) / MOST_STEER

    def _pedals(self, seen: Seen) -> float:
        at_lights = self._at_lights(seen)
        wanted = min(self._in_bends(seen), self._behind(seen), at_lights, self._before_crossing(seen, at_lights))
        return pedal(wanted, seen.speed)

    def _in_bends(self, seen: Seen) -> float:
        """Return the speed allowed by the limit and by the bends ahead at planned deceleration."""
        now = np.sqrt(seen.in_bends**2 + 2 * BRAKING * DISTANCES[1:-1])
        return float(min(seen.limit, now.min()))

    def _behind(self, seen: Seen) -> float:
        """Return the speed allowed by obstacles on the route: those there, and those that come there within `SOON`."""
        speed, line, others = seen.speed, seen.line, seen.others
        if not len(others):
            return math.inf
        velocity = others[:, 5:7] + (speed, 0.0)
        theirs = np.where(others[:, 3] > ALONG, np.maximum(velocity[:, 0], 0.0), 0.0)
        follows = (others[:, 1] < 0.0) & (others[:, 3] > ALONG)  # it keeps its own distance
        gaps, shares, _ = closest_approach(line[:-1], np.diff(line, axis=0), others[:, 1:3], SOON * velocity)
        met = (gaps < CORRIDOR) & ~follows
        first, who = met.argmax(0), np.arange(len(others))
        along = REACH[first] + shares[first, who] * (REACH[first + 1] - REACH[first])
        met = met.any(0) & (along > 0.0)
        gap = along - others[:, 7] - EGO_HALF - GAP - 0.5 * HEADWAY * speed
        allowed = np.sqrt(np.maximum(theirs**2 + 2 * BRAKING * gap, 0.0))
        return float(allowed[met].min(initial=math.inf))

    def _before_crossing(self, seen: Seen, at_lights: float) -> float:
        """Return the speed that gives way to those who come across, until the waiting time is over.

        They come from the sides where no light ahead keeps them back, and from ahead at a turn to the left. at_lights: speed
        [m/s] that the light ahead allows.
        """
        speed, light = seen.speed, seen.light[0]
        turns_left = seen.bends[DISTANCES[1:-1] < NEXT].min() < -TURN
        reach = np.arange(0.0, min(max(NEXT, speed * speed / (2 * BRAKING) + NEXT / 2), DISTANCES[-1]), 0.5)
        way: npt.NDArray[np.float64] | None = None
        left = math.inf
        for _, x, y, cosine, _, vx, vy, half in seen.others.tolist():
            if cosine >= ALONG or math.hypot(vx + speed, vy) <= COMING or (cosine < AGAINST and not turns_left):
                continue
            if way is None:
                way = np.stack([np.interp(reach, REACH, seen.line[:, axis]) for axis in (0, 1)], axis=1)
            velocity = np.array([vx + speed, vy])
            met, times = meeting(way, np.array([x, y]), velocity)
            if not met.any() or (cosine >= AGAINST and light < reach[met][0]):
                continue
            first = float(reach[met][0])
            begin, end = (reach[met][[0, -1]] + (-EGO_HALF, EGO_HALF)) / max(speed, PACE)
            if times.min() - half / PACE < end + MARGIN and times.max() + half / PACE > begin - MARGIN:
                room = max(first - EGO_HALF - SHORT, 0.0)
                if turns_left or room > speed * speed / (2 * HARDEST):
                    left = min(left, room)
        if not turns_left and speed > COMING:
            self._stood = 0
        self._stood += left < math.inf and speed < 0.1 < at_lights
        return math.inf if self._stood > WAITING else math.sqrt(2 * BRAKING * left)

    def _at_lights(self, seen: Seen) -> float:
        """Return the speed that stops at a red light, and at a yellow one if the distance suffices."""
        distance, red, yellow = seen.light
        left = distance - STOP
        if not yellow:
            self._stops = None
        elif self._stops is None:  # once: who has begun to brake is too slow to pass
            self._stops = self._stops_at_yellow(seen, left)
        if not red and not self._stops:
            return math.inf
        return math.sqrt(max(2 * BRAKING * left, 0.0))

    def _stops_at_yellow(self, seen: Seen, left: float) -> bool:
        """Return whether the distance [m] to the line suffices to stop, or a bend behind it takes the time to pass."""
        speed = seen.speed
        if left > speed * speed / (2 * FIRM):
            return True
        behind = np.maximum(DISTANCES[1:-1] - max(left, 0.0), 0.0)
        at_line = min(speed, float(np.sqrt(seen.in_bends**2 + 2 * BRAKING * behind).min()))
        seconds = (left + STOP) / max(0.5 * (speed + at_line), 0.1)
        return seconds > PASSES and left > speed * speed / (2 * HARDEST)


class Seen:
    """What the driver reads from one observation, each part once."""

    def __init__(self, observation: Observation) -> None:
        self.speed = float(observation["velocity"][0])
        """[m/s]"""
        self.limit = observation["speed_limit"][0]
        """[m/s]"""
        self.line = line_of(observation)
        """(13, 2): the car's middle, and the points of the route."""
        self.bends = bends(self.line[1:])
        """[1/m] Curvature at the inner points of the route."""
        self.in_bends = np.sqrt(SIDEWAYS / np.maximum(np.abs(self.bends), 1e-4))
        """[m/s] allowed there."""
        self.others = actors(observation)
        """(k, 8) as the entry `others` of `VECTORS`."""
        self.light = next_light(observation)
        """Distance [m] to the next stop line, and whether its light is red, yellow."""


def pedal(wanted: float, speed: float) -> float:
    """Return throttle, or brake where negative, towards a wanted speed [m/s]."""
    acceleration = min(max(1.2 * (wanted - speed), -HARDEST), 2.0)
    return acceleration / 5.0 + 0.08 if acceleration > 0 else acceleration / 8.0


def actors(observation: Observation) -> npt.NDArray[np.float64]:
    """Return the rows (k, 8) of the other actors, of either layout, as the entry `others` of `VECTORS` has them."""
    found = observation["others"] if "others" in observation else np.concatenate([observation["cars"], observation["walkers"]])
    others: npt.NDArray[np.float64] = found[found[:, 0] > 0, :8].astype(np.float64)
    return others


def next_light(observation: Observation) -> tuple[float, float, float]:
    """Return the distance [m] to the next stop line, of either layout, and whether its light is red, yellow."""
    if "next_light" in observation:
        distance, red, yellow, _ = observation["next_light"].tolist()
    else:
        there, distance, red, yellow, _ = observation["lights"][0].tolist()
        distance = distance if there else FAR
    return distance, red, yellow


def line_of(observation: Observation) -> npt.NDArray[np.float64]:
    """Return the route points (13, 2), the car's middle first."""
    return np.concatenate([np.zeros((1, 2)), observation["route"].astype(np.float64)])


def bends(route: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the curvature [1/m] at the inner points of a route (n, 2), positive to the right."""
    steps = route[1:] - route[:-1]
    headings = np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]))
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    apart = 0.5 * (lengths[1:] + lengths[:-1])
    found: npt.NDArray[np.float64] = (headings[1:] - headings[:-1]) / np.maximum(apart, 0.5)
    return found


def meeting(
    way: npt.NDArray[np.float64], place: npt.NDArray[np.float64], velocity: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return where a path comes near an actor that moves on straight ahead, and when the actor gets there.

    Args:
        way: (n, 2) [m] points of the path.
        place: (2,) [m] position of the actor.
        velocity: (2,) [m/s] velocity of the actor, not 0.

    Returns:
        (n,) True for points of the path that the actor will pass closely, and the times [s] until it passes them, one for
        each True.
    """
    pace = math.hypot(*velocity)
    ahead, aside = (way - place) @ velocity / pace, (way - place) @ np.array([-velocity[1], velocity[0]]) / pace
    met: npt.NDArray[np.bool_] = (np.abs(aside) < ASIDE) & (ahead > 0)
    return met, ahead[met] / max(pace, PACE)
