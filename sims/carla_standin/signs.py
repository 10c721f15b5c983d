"""Stop signs and signs to give way: an actor each, with the area before the junction in which it counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from carla_standin.actors import Actor, Bodies
from carla_standin.layouts import Tag
from carla_standin.lights import Place
from carla_standin.maps.curves import Floats
from carla_standin.maps.grid import STOP, YIELD
from carla_standin.maps.town import Town
from carla_standin.sensors.scene import Boxes

TYPES = {STOP: "traffic.stop", YIELD: "traffic.yield"}
REACH = 4.0
"""[m] before the end of the road where a sign counts."""
RED = (40, 40, 200)
"""Blue, green, red."""


@dataclass(frozen=True)
class Post(Place):
    """Position of a sign and the stretch of lane it applies to."""

    @property
    def reach(self) -> float:
        """[m] along the road where it counts."""
        return min(REACH, self.road.length)


class Signs:
    """All stop signs and signs to give way of a map."""

    def __init__(self, town: Town) -> None:
        found = [Post(signal, road) for road in town.road_map.roads for signal in road.signals if signal.type in TYPES]
        self.posts = [post for post in found if post.lane_ids()]
        self.actors: list[Actor] = []

    def __len__(self) -> int:
        return len(self.posts)

    def appear(self, bodies: Bodies, first: int) -> int:
        """Adds the signs' actors with ids from `first` on; returns the next id."""
        for number, post in enumerate(self.posts, first):
            type_id = TYPES[post.signal.type]
            actor = Actor(number, type_id, {}, [0, type_id, [["role_name", 4, ""]]], post.box())
            actor.tag = Tag.TRAFFIC_SIGN
            self.actors.append(actor)
            bodies.add(actor, post.pose)
            bodies.records["sign"][-1] = str(post.signal.id).encode()
        return first + len(self)

    def stops(self) -> list[Post]:
        """Returns the stop signs."""
        return [post for post in self.posts if post.signal.type == STOP]

    def boxes(self) -> Boxes:
        """Returns a pole and a plate for each stop sign."""
        posts = self.stops()
        poses = np.array([[*post.pose[0][:2], math.radians(post.pose[1][1])] for post in posts]).reshape(-1, 3)
        sizes = np.repeat([[0.05, 0.05, 0.0, 2.0], [0.05, 0.4, 2.0, 2.8]], len(posts), axis=0)
        numbers: Floats = np.concatenate([np.tile(poses, (2, 1)), sizes], axis=1)
        tags = np.repeat(np.array([Tag.POLE, Tag.TRAFFIC_SIGN], np.uint8), len(posts))
        colours = np.repeat(np.array([(90, 90, 90), RED], np.uint8), len(posts), axis=0)
        return Boxes(numbers, tags, colours, np.zeros(2 * len(posts), np.int64))
