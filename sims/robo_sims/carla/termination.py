"""Termination of a driving episode: goal or infraction."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_sims.carla.roads import Roads
from robo_sims.carla.routes import RoutePosition
from robo_sims.carla.scene import RED, Scene

GOAL = "goal"
COLLISIONS = {"walker.": "collision_walker", "vehicle.": "collision_vehicle", "": "collision_static"}
"""Beginning of the type name of the actor that was hit -> stop reason of the episode; the first that fits counts."""
INFRACTIONS = (*COLLISIONS.values(), "red_light", "off_road", "route_deviation", "oncoming_lane", "blocked")
"""Each ends the episode as a failure; the first one in this order counts."""
SUCCESS_RULE = (
    "the end of the route is reached without collision, red light, leaving the road or the route, standing still, or driving "
    "in the lane of oncoming traffic for longer than to pass a vehicle"
)
DEVIATION = 8.0
"""[m] from the lane's centre line."""
PASSING, PASSING_SHARE = 50.0, 0.2
"""[m] in lanes of oncoming traffic that end an episode if they exceed this share of the distance driven; passing a standing car
takes about 30 m. At the end of the route the share alone counts."""
BLOCKED, MOVING = 45.0, 0.1
"""Time [s] below the given speed [m/s] after which the car counts as blocked."""
AT_SIGN = 10.0
"""Distance [m] before a stop line within which the car must have stood still once."""


@dataclass
class StopSigns:
    """Stop signs on the route, and how many were passed without a stop; they end no episode."""

    lines: list[float] = field(default_factory=list)
    """Positions of the stop lines along the route [m], in ascending order."""
    missed: int = 0
    """Number of stop signs that the car passed without a stop."""
    has_stood: bool = False
    """True if the car has stood still before the next stop line."""

    def note(self, before: float, s: float, speed: float) -> None:
        """Count the signs between two places [m along the route] of the car, which drives at a speed [m/s]."""
        ahead = next((line for line in self.lines if line >= s), None)
        if any(before <= line < s for line in self.lines):
            self.missed += not self.has_stood
            self.has_stood = False
        self.has_stood |= ahead is not None and ahead - s < AT_SIGN and speed < MOVING


@dataclass
class Termination:
    """Decides the end of one episode."""

    roads: Roads
    period: float
    """Simulated time [s] between two calls of `reason`."""
    ticks: int = 0
    """Number of consecutive ticks for which the car has stood still."""
    before: float = 0.0
    """Position [m along the route] of the car at the previous step."""
    driven: float = 0.0
    """[m] distance driven; `oncoming` is the part in lanes of oncoming traffic."""
    oncoming: float = 0.0
    is_oncoming: bool = False
    """True if the car's middle is in a lane of oncoming traffic."""
    signs: StopSigns = field(default_factory=StopSigns)

    @property
    def oncoming_share(self) -> float:
        """Share of the distance driven in lanes of oncoming traffic, 0 to 1."""
        return self.oncoming / self.driven if self.driven > 0 else 0.0

    @property
    def still(self) -> float:
        """Used share of the allowed standing time, 0 to 1."""
        return min(self.ticks * self.period / BLOCKED, 1.0)

    def reason(self, scene: Scene, place: RoutePosition, completion: float, hit: str | None) -> str | None:
        """Return the stop reason, or None; hit: the server's type name of the hit actor, or None."""
        self.ticks = self.ticks + 1 if scene.ego.speed < MOVING else 0
        passed, self.before = self.before, place.s
        self.signs.note(passed, place.s, scene.ego.speed)
        self._note_lane(scene, place)
        found = {
            collision_with(hit or ""): hit is not None,
            "red_light": any(passed <= stop < place.s and state == RED for stop, state in scene.lights),
            "off_road": not self.roads.is_road(scene.ego.x, scene.ego.y),
            "route_deviation": abs(place.offset) > DEVIATION,
            "oncoming_lane": self.oncoming_share > PASSING_SHARE and (self.oncoming > PASSING or completion >= 1.0),
            "blocked": self.still >= 1.0,
            GOAL: completion >= 1.0,
        }
        return next((name for name, holds in found.items() if holds), None)

    def _note_lane(self, scene: Scene, place: RoutePosition) -> None:
        """Count the distance of this step; in junctions, the previous lane counts."""
        way = scene.ego.speed * self.period
        if not place.in_junction:
            is_beside = abs(place.offset) > 0.5 * place.width
            self.is_oncoming = is_beside and self.roads.is_oncoming(scene.ego.x, scene.ego.y, place.heading)
        self.driven += way
        self.oncoming += way * self.is_oncoming


def collision_with(kind: str) -> str:
    """Return the stop reason for a collision with an actor.

    kind: type name of the actor on the server, such as "walker.pedestrian.0001".
    """
    return next(name for beginning, name in COLLISIONS.items() if kind.startswith(beginning))
