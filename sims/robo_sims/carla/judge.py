"""When an episode is over, and why."""

from __future__ import annotations

from dataclasses import dataclass

from robo_sims.carla.roads import Roads
from robo_sims.carla.routes import Place
from robo_sims.carla.scene import RED, Scene

GOAL = "goal"
COLLISIONS = {"walker.": "collision_walker", "vehicle.": "collision_vehicle", "": "collision_static"}
"""By the beginning of the type of what was hit."""
INFRACTIONS = (*COLLISIONS.values(), "red_light", "off_road", "route_deviation", "blocked")
"""Each ends an episode as a failure; where there are several, the first counts."""
SUCCESS_RULE = "the end of the route is reached without collision, red light, leaving the road or the route, or standing still"
DEVIATION = 8.0
"""[m] from the middle of the route's lane."""
BLOCKED, MOVING = 45.0, 0.1
"""[s] below a speed [m/s]."""


@dataclass
class Judge:
    """Watches one episode."""

    roads: Roads
    period: float
    """[s] between two looks."""
    ticks: int = 0
    """That the car has stood."""
    before: float = 0.0
    """[m] along the route, a step ago."""

    @property
    def still(self) -> float:
        """Returns the share of the time of standing still that is over, 0 to 1."""
        return min(self.ticks * self.period / BLOCKED, 1.0)

    def reason(self, scene: Scene, place: Place, completion: float, hit: str | None) -> str | None:
        """Returns why the episode is over, or None; hit: type of what was hit, as the server names it, or None."""
        self.ticks = self.ticks + 1 if scene.ego.speed < MOVING else 0
        passed, self.before = self.before, place.s
        found = {
            collision_with(hit or ""): hit is not None,
            "red_light": any(passed <= stop < place.s and state == RED for stop, state in scene.lights),
            "off_road": not self.roads.is_road(scene.ego.x, scene.ego.y),
            "route_deviation": abs(place.offset) > DEVIATION,
            "blocked": self.still >= 1.0,
            GOAL: completion >= 1.0,
        }
        return next((name for name, holds in found.items() if holds), None)


def collision_with(kind: str) -> str:
    """Returns the infraction of hitting an actor of a type."""
    return next(name for beginning, name in COLLISIONS.items() if kind.startswith(beginning))
