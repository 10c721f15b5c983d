"""Stop signs and signs to give way, as actors with an area before the junction."""

from __future__ import annotations

from dataclasses import dataclass

from carla_standin.actors import Actor, Bodies
from carla_standin.layouts import Tag
from carla_standin.lights import Place, pole_boxes, stopping
from carla_standin.maps.grid import STOP, YIELD
from carla_standin.maps.town import Town
from carla_standin.sensors.scene import Boxes

TYPES = {STOP: "traffic.stop", YIELD: "traffic.yield"}
REACH = 4.0
"""Length [m] of the area before the end of the road in which a vehicle is affected by a sign."""
RED = (40, 40, 200)
"""Colour of a stop sign: blue, green, red."""


@dataclass(frozen=True)
class Post(Place):
    """Position of a sign and the stretch of lane it applies to."""

    @property
    def reach(self) -> float:
        """Greatest length [m] along the road of the areas in which the sign counts."""
        return REACH


class Signs:
    """All stop signs and signs to give way of a map."""

    def __init__(self, town: Town) -> None:
        self.posts = [Post(*found) for found in stopping(town, TYPES)]
        self.actors: list[Actor] = []

    def __len__(self) -> int:
        return len(self.posts)

    def appear(self, bodies: Bodies, first: int) -> int:
        """Create an actor for each sign.

        Args:
            bodies: Arrays to which the actors are added.
            first: Id of the first sign; the others follow.

        Returns:
            The next free id.
        """
        for number, post in enumerate(self.posts, first):
            self.actors.append(post.appear(bodies, number, TYPES[post.signal.type], Tag.TRAFFIC_SIGN))
        return first + len(self)

    def stops(self) -> list[Post]:
        """Return the posts of the stop signs, without those of signs to give way."""
        return [post for post in self.posts if post.signal.type == STOP]

    def boxes(self) -> Boxes:
        """Return the boxes of all stop signs: a pole and a plate for each."""
        return pole_boxes(self.stops(), (0.05, 0.05, 0.0, 2.0), (0.05, 0.4, 2.0, 2.8), Tag.TRAFFIC_SIGN, RED)
