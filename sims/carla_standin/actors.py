"""Actors and their snapshot: one record for each actor, in the order of ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from carla_standin.layouts import ACTIVE, ACTOR_RECORD
from carla_standin.physics.parameters import Vehicle

Floats = npt.NDArray[np.float64]
X, Y, Z, PITCH, YAW, ROLL, VX, VY, VZ, WX, WY, WZ, AX, AY, AZ = range(15)
"""Columns of the array `Bodies.motion`: position [m], angles [degree], velocity [m/s], angular velocity [degree/s],
acceleration [m/s2]."""
LEAN = -0.05
"""[degree] Pitch of moving vehicles in snapshots: on its springs no car is exactly level. CARLA's agents test an angle for > 0
that follows from it, and would miss a body exactly ahead of one exactly level. A car that stands is as it was spawned."""
MOVES = 0.01
"""Speed [m/s] along an axis above which an actor counts as moving; only a moving vehicle can lean."""
LOWEST = 0.2
"""Height [m] below which a prop does not block vehicles or walkers."""


@dataclass(frozen=True)
class Box:
    """Box around an actor, in its frame: centre and half sizes [m]."""

    centre: tuple[float, float, float] = (0.0, 0.0, 0.0)
    extent: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def standing(cls, length: float, width: float, height: float) -> Box:
        """Return a box of these sizes [m] whose bottom is at the origin of the actor's frame."""
        return cls((0.0, 0.0, height / 2), (length / 2, width / 2, height / 2))

    def encoded(self, actor: int) -> list[object]:
        """Return the box in the client's encoding, with the id of its actor."""
        return [list(self.centre), list(self.extent), [0.0, 0.0, 0.0], actor]


@dataclass(eq=False)
class Actor:
    """Thing of an episode that clients know by an id: vehicle, walker, prop, sensor, traffic light or sign."""

    id: int
    type_id: str
    attributes: dict[str, str]
    description: list[object]
    """Blueprint and attributes in the client's encoding, returned to clients unchanged."""
    box: Box = field(default_factory=Box)
    tag: int = 0
    parent: int = 0
    token: bytes = b""
    """Address of the actor's stream, 24 bytes; empty without a stream."""
    stream: int = 0
    row: int = -1
    place: int = 0
    """Position among the actors when the actor was spawned, counted from 1.

    It seeds the actor's random numbers. The id would not do: it keeps counting when actors are destroyed, so that an actor that
    is spawned again in a new episode would behave differently.
    """
    has_physics: bool = True
    """True if physics moves the actor; False for one that stays where it was put."""
    has_gravity: bool = True
    collides: bool = True
    is_aloft: bool = False
    """True if the actor is far above or below the ground, invisible to others and without collisions."""
    stock: Vehicle | None = None
    """Parameters that a vehicle was spawned with; None for other actors."""
    model: Vehicle | None = None
    """Parameters of a vehicle after a client has changed them; None before."""
    physics_control: list[object] | None = None
    """Newest physics control that a client has set, in its encoding; None before."""

    def encoded(self) -> list[object]:
        """Return the description of the actor as CARLA's client decodes it."""
        tags = bytes([self.tag]) if self.tag else b""
        return [self.id, self.parent, self.description, self.box.encoded(self.id), tags, self.token]

    @property
    def has_body(self) -> bool:
        """True if the actor has a body (vehicle, walker or prop), which others can see and hit."""
        return self.box.extent[0] > 0 and self.type_id.startswith(("vehicle.", "walker.", "static."))

    @property
    def is_solid(self) -> bool:
        """True if the actor can collide: it has a body, and it stands on the ground."""
        return self.has_body and not self.is_aloft

    @property
    def is_low(self) -> bool:
        """True for a prop so low that wheels roll over it."""
        return self.type_id.startswith("static.") and 2 * self.box.extent[2] < LOWEST

    @property
    def is_obstacle(self) -> bool:
        """True if the actor is solid and in the way of vehicles and walkers."""
        return self.is_solid and not self.is_low

    @property
    def standing(self) -> float:
        """Height [m] of the actor's origin above the ground if it stands there."""
        return self.box.extent[2] - self.box.centre[2]


class Bodies:
    """All actors of an episode as arrays: their states of motion, and their binary records for snapshots."""

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.by_id: dict[int, Actor] = {}
        self.motion: Floats = np.zeros((0, 15))
        self.records = np.zeros(0, ACTOR_RECORD)
        self.lean: Floats = np.zeros(0)
        """Pitch [degree] that is added to each actor's in snapshots only; sensors and physics ignore it."""

    def __iter__(self) -> Iterator[Actor]:
        return iter(self.actors)

    def __len__(self) -> int:
        return len(self.actors)

    def add(self, actor: Actor, pose: list[list[float]]) -> None:
        """Add an actor that rests at [[x, y, z], [pitch, yaw, roll]]."""
        actor.row = len(self.actors)
        self.actors.append(actor)
        self.by_id[actor.id] = actor
        motion, records = np.zeros((len(self), 15)), np.zeros(len(self), ACTOR_RECORD)
        motion[:-1], records[:-1] = self.motion, self.records  # np.concatenate would change the layout
        motion[-1, :6] = [*pose[0], *pose[1]]
        records["id"][-1], records["state"][-1] = actor.id, ACTIVE
        self.motion, self.records = motion, records
        self.lean = np.append(self.lean, LEAN if actor.type_id.startswith("vehicle.") else 0.0)

    def remove(self, actor: Actor) -> None:
        """Remove an actor from the arrays; the rows of later actors move up."""
        self.motion = np.delete(self.motion, actor.row, 0)
        self.records = np.delete(self.records, actor.row, 0)
        self.lean = np.delete(self.lean, actor.row)
        self.actors.remove(actor)
        del self.by_id[actor.id]
        for row, left in enumerate(self.actors):
            left.row = row

    def place(self, actor: Actor, pose: list[list[float]]) -> None:
        """Move an actor to a pose, at rest."""
        self.motion[actor.row, :6] = [*pose[0], *pose[1]]
        self.motion[actor.row, 6:] = 0

    def snapshot(self) -> bytes:
        """Return the binary records of all actors, one after the other."""
        assert self.records.dtype.itemsize == ACTOR_RECORD.itemsize
        self.records["motion"] = self.motion
        moves = (np.abs(self.motion[:, VX : VY + 1]) > MOVES).any(1)
        self.records["motion"][:, PITCH] += self.lean * moves
        return self.records.tobytes()


def rows_of(actors: list[Actor]) -> npt.NDArray[np.intp]:
    """Return the row of each actor in the arrays of Bodies."""
    return np.array([actor.row for actor in actors], np.intp)


def span_of(rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp] | slice:
    """Return rows as a slice if they are consecutive, which reads without a copy; else as they are."""
    if len(rows) and (rows == np.arange(rows[0], rows[0] + len(rows))).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
