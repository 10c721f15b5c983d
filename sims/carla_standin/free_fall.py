"""Vertical position of actors: they stand on the ground if placed near it, fall from far above, and stay far below."""

from __future__ import annotations

from carla_standin.actors import AZ, VZ, Actor, Bodies, Z
from carla_standin.physics.state import GRAVITY
from carla_standin.poses import Pose

NEAR = 2.0
"""Largest distance [m] from the ground within which a placed actor stands on the ground; beyond it the actor is in free
fall."""


class FreeFall:
    """Actors off the ground, above or below it, and their fall."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []

    def settled(self, actor: Actor, pose: Pose) -> Pose:
        """Return the pose of an actor that is put at `pose`: upright on the ground, or `pose` if far from it."""
        height = pose[0][2] - actor.standing
        self._note(actor, abs(height) > NEAR)
        if actor.is_aloft or not actor.has_physics:
            return pose
        return [[pose[0][0], pose[0][1], actor.standing], [0.0, pose[1][1], 0.0]]

    def lift(self, actor: Actor, bodies: Bodies, speed: float) -> None:
        """Let an actor leave the ground with an upward velocity [m/s]."""
        bodies.motion[actor.row, VZ] = max(bodies.motion[actor.row, VZ], 0.0) + speed
        self._note(actor, True)

    def forget(self, actor: Actor) -> None:
        """Take a destroyed actor off the list of those that are off the ground."""
        self._note(actor, False)

    def _note(self, actor: Actor, is_aloft: bool) -> None:
        if is_aloft and actor not in self.actors:
            self.actors.append(actor)
        elif not is_aloft and actor in self.actors:
            self.actors.remove(actor)
        actor.is_aloft = is_aloft

    def step(self, bodies: Bodies, dt: float) -> bool:
        """Move all falling actors; return True if one has landed."""
        landed = [actor for actor in self.actors if _fall(actor, bodies, dt)]
        for actor in landed:
            self._note(actor, False)
        return bool(landed)


def _fall(actor: Actor, bodies: Bodies, dt: float) -> bool:
    """Move one actor vertically; return True if it has landed."""
    motion = bodies.motion[actor.row]
    ground = actor.standing
    before = motion[VZ]
    if not actor.has_physics or motion[Z] < ground or actor.type_id.startswith("static."):
        motion[VZ] = motion[AZ] = 0.0
        return False
    motion[VZ] -= GRAVITY * dt if actor.has_gravity else 0.0
    motion[Z] += dt * motion[VZ]
    has_landed = bool(motion[Z] <= ground)
    if has_landed:
        motion[Z], motion[VZ] = ground, 0.0
        motion[3], motion[5] = 0.0, 0.0  # upright
    motion[AZ] = 0.0 if has_landed else (motion[VZ] - before) / dt
    return has_landed
