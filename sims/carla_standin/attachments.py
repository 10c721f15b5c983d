"""Actors attached to others, which move with their parents."""

from __future__ import annotations

import math

from carla_standin.actors import VX, WX, YAW, Actor, Bodies
from carla_standin.poses import Pose


class Attachments:
    """Attached actors and their poses. Parents stand upright: only their position and yaw count."""

    def __init__(self) -> None:
        self.poses: dict[Actor, Pose] = {}
        self.reindex(Bodies())

    def reindex(self, bodies: Bodies) -> None:
        """Find the rows of carried and carrying actors again, after actors came or went; forget those that are gone."""
        self.poses = {actor: pose for actor, pose in self.poses.items() if actor.id in bodies.by_id}
        self.links = [
            (actor.row, bodies.by_id[actor.parent].row, [*self.poses[actor][0], *self.poses[actor][1]])
            for actor in bodies
            if actor in self.poses
        ]
        """Row of a child, row of its parent, and the pose in the parent's frame."""

    def step(self, bodies: Bodies) -> None:
        """Move attached actors with their parents. A parent comes before its children."""
        motion = bodies.motion
        for child, parent, (x, y, *others) in self.links:  # few, so that a loop is quicker than arrays
            pose = motion[parent].tolist()
            cosine, sine = math.cos(math.radians(pose[YAW])), math.sin(math.radians(pose[YAW]))
            place = pose[0] + cosine * x - sine * y, pose[1] + sine * x + cosine * y
            turned = [at + more for at, more in zip(pose[2:6], others, strict=True)]
            motion[child, :WX] = [*place, *turned, *pose[VX:WX]]
