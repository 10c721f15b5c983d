"""Actors that are fixed to others: they go along."""

from __future__ import annotations

import numpy as np

from robo_sims.carla.standin.actors import VX, WX, YAW, Actor, Bodies, X, Y, rows_of
from robo_sims.carla.standin.poses import Pose


class Attachments:
    """All that are fixed. Parents stand upright, so only their place and yaw count."""

    def __init__(self) -> None:
        self.poses: dict[Actor, Pose] = {}
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Notes rows anew; what is gone is forgotten."""
        self.poses = {actor: pose for actor, pose in self.poses.items() if actor.id in bodies.by_id}
        children = [actor for actor in bodies if actor in self.poses]
        self.rows = rows_of(children)
        self.parents = rows_of([bodies.by_id[actor.parent] for actor in children])
        self.relative = np.array([[*self.poses[actor][0], *self.poses[actor][1]] for actor in children]).reshape(-1, 6)

    def step(self, bodies: Bodies) -> None:
        """Moves all that are fixed to where their parents have gone. A parent comes before its children."""
        if not len(self.rows):
            return
        parents = bodies.motion[self.parents]
        yaw = np.radians(parents[:, YAW])
        cosine, sine = np.cos(yaw), np.sin(yaw)
        block = parents[:, :6] + self.relative
        block[:, X] = parents[:, X] + cosine * self.relative[:, X] - sine * self.relative[:, Y]
        block[:, Y] = parents[:, Y] + sine * self.relative[:, X] + cosine * self.relative[:, Y]
        bodies.motion[self.rows, :6] = block
        bodies.motion[self.rows, VX:WX] = parents[:, VX:WX]
