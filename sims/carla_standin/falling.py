"""Height of actors: what is put near the ground stands on it at once, what is far above falls, what is far below stays."""

from __future__ import annotations

from carla_standin.actors import AZ, VZ, Actor, Bodies, Z
from carla_standin.physics.state import GRAVITY
from carla_standin.poses import Pose

NEAR = 2.0
"""[m] above or below its place on the ground within which an actor is put on it."""


class Falling:
    """Actors that are not on the ground."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []

    def settled(self, actor: Actor, pose: Pose) -> Pose:
        """Return the pose an actor takes if it is put at `pose`: upright on the ground, or as given if that is far away."""
        height = pose[0][2] - actor.standing
        self._note(actor, abs(height) > NEAR)
        if actor.is_aloft or not actor.has_physics:
            return pose
        return [[pose[0][0], pose[0][1], actor.standing], [0.0, pose[1][1], 0.0]]

    def lift(self, actor: Actor, bodies: Bodies, speed: float) -> None:
        """Give an actor an upward velocity [m/s]."""
        bodies.motion[actor.row, VZ] = max(bodies.motion[actor.row, VZ], 0.0) + speed
        self._note(actor, True)

    def forget(self, actor: Actor) -> None:
        """Drop an actor that is gone."""
        self._note(actor, False)

    def _note(self, actor: Actor, is_aloft: bool) -> None:
        if is_aloft and actor not in self.actors:
            self.actors.append(actor)
        elif not is_aloft and actor in self.actors:
            self.actors.remove(actor)
        actor.is_aloft = is_aloft

    def step(self, bodies: Bodies, dt: float) -> bool:
        """Let them fall; return True if one has landed."""
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
