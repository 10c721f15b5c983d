"""When an episode is over, and why."""

from __future__ import annotations

from dataclasses import dataclass

from robo_sims.carla.roads import Roads
from robo_sims.carla.routes import Place
from robo_sims.carla.scene import RED, Scene

GOAL = "goal"
COLLISIONS = {"walker.": "collision_walker", "vehicle.": "collision_vehicle", "": "collision_static"}
"""By the beginning of the type of what was hit."""
INFRACTIONS = (*COLLISIONS.values(), "red_light", "off_road", "route_deviation", "oncoming_lane", "blocked")
"""Each ends an episode as a failure; if there are several, the first counts."""
SUCCESS_RULE = (
    "the end of the route is reached without collision, red light, leaving the road or the route, standing still, or driving "
    "in the lane of oncoming traffic for longer than to pass somebody"
)
DEVIATION = 8.0
"""[m] from the middle of the route's lane."""
PASSING, PASSING_SHARE = 50.0, 0.2
"""[m] in the lane of oncoming traffic from which an episode ends, if they are more than this share of what was driven: to pass
a car that stands takes about 30 m. At the end of the route the share alone counts."""
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
    driven: float = 0.0
    """[m] that the car has driven; and of these, in lanes of oncoming traffic."""
    oncoming: float = 0.0
    is_oncoming: bool = False
    """The car's middle is in a lane of oncoming traffic, as of the last look."""

    @property
    def oncoming_share(self) -> float:
        """Share of the distance that was driven in lanes of oncoming traffic, 0 to 1."""
        return self.oncoming / self.driven if self.driven > 0 else 0.0

    @property
    def still(self) -> float:
        """Returns the share of the time of standing still that is over, 0 to 1."""
        return min(self.ticks * self.period / BLOCKED, 1.0)

    def reason(self, scene: Scene, place: Place, completion: float, hit: str | None) -> str | None:
        """Returns why the episode is over, or None; hit: type of what was hit, as the server names it, or None."""
        self.ticks = self.ticks + 1 if scene.ego.speed < MOVING else 0
        passed, self.before = self.before, place.s
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

    def _note_lane(self, scene: Scene, place: Place) -> None:
        """Count the way of this step; in junctions, where lanes cross, as that before them."""
        way = scene.ego.speed * self.period
        if not place.in_junction:
            is_beside = abs(place.offset) > 0.5 * place.width
            self.is_oncoming = is_beside and self.roads.is_oncoming(scene.ego.x, scene.ego.y, place.heading)
        self.driven += way
        self.oncoming += way * self.is_oncoming


def collision_with(kind: str) -> str:
    """Returns the infraction of hitting an actor of a type."""
    return next(name for beginning, name in COLLISIONS.items() if kind.startswith(beginning))
