"""Session with a world of the stand-in in this process, without a client and without a server.

It runs the server's own code: the same map, traffic, physics and sensors. What a client passes on in single precision is
rounded here, too, so that an episode is equal to the bit to one through the client. From the client's package it takes what
needs no server: poses, controls and the map.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np

from carla_standin import actors, blueprints, layouts
from carla_standin.actors import AX, AY, VX, VY, WZ, YAW, X, Y
from carla_standin.calls.actors import Actors
from carla_standin.errors import Refused, StandInError
from carla_standin.host import Host
from carla_standin.local_streams import LocalStreams
from carla_standin.maps.catalogue import Catalogue
from carla_standin.maps.town import Town
from carla_standin.poses import Pose
from carla_standin.settings import Settings
from carla_standin.world import World
from robo_rl.errors import InvalidSetting, ServerUnavailable
from robo_sims.carla.connection import client_package
from robo_sims.carla.frames import Frame, Motion
from robo_sims.carla.roads import Floats
from robo_sims.carla.session import ANSWER_TIMEOUT, TICK, Session, lane_pose

CATALOGUES = 4
"""Folders of maps whose towns are kept."""
TOWNS = 32
"""Maps of the client's kind that are kept."""
PLACED = np.array([X, Y, YAW, VX, VY], np.intp)
MOVED = [X, Y, YAW, VX, VY, AX, AY, WZ]
GEARS = {"hand_brake": False, "reverse": False, "manual_gear_shift": False, "gear": 0}
"""Those of a control that drives forwards."""
COLOURS = ("Red", "Yellow", "Green", "Off", "Unknown")
"""Names that CARLA's client has for the values 0 to 4 of `TrafficLightState`."""


class LocalSession(Session):
    """Session whose world is simulated by the stand-in in this process, without a server."""

    has_own_traffic = True

    def __init__(self, *, map: str, maps: str = "") -> None:
        self.carla = client_package()
        self.map_name, self.maps, self.patience = map, maps, ANSWER_TIMEOUT
        self.has_stepped = False
        self.library = Library()
        self._world: World | None = None

    @property
    def is_open(self) -> bool:
        """True if there is a world."""
        return self._world is not None

    @property
    def world(self) -> World:
        """The world; raises ServerUnavailable if the session is closed."""
        if self._world is None:
            raise ServerUnavailable("The world is closed.", fix="reset the environment")
        return self._world

    def open(self) -> None:
        """Make the world; raises InvalidSetting for an unknown map."""
        try:
            town = _catalogue(self.maps).town(self.map_name)
        except StandInError as error:
            raise InvalidSetting(error.what, got=error.got, allowed=error.allowed, fix=error.fix) from None
        self.streams = LocalStreams()
        self._world = World(town, self.streams)
        self._world.settings = Settings(synchronous=True, fixed_delta=(True, TICK))
        self.calls = Actors(Host(self._world))

    def map(self) -> Any:
        """Return the client's map object."""
        return _map(self.carla, self.world.town)

    def begin(self) -> None:
        """Reset the world for a new episode."""
        self.streams.listeners.clear()
        self.world.begin(self.world.town)

    def pose(self, point: Floats, lift: float) -> Any:
        """Return the pose at a lane point (6,), `lift` [m] above the ground, heading along the lane."""
        return lane_pose(self.carla, point, lift)

    def spawn_points(self) -> list[Any]:
        """Return poses on lanes for other cars."""
        return list(_spawn_points(self.carla, self.world.town))

    def signals(self, kind: str) -> list[Any]:
        """Return the actors of all signals of a kind, such as "traffic.stop"."""
        known = (*self.world.lights.actors, *self.world.signs.actors)
        return [LocalActor(self, actor) for actor in known if actor.type_id.startswith(kind)]

    def spawn(self, blueprint: Any, pose: Any, parent: Any = None) -> Any:
        """Return a new actor, or None if there is no room."""
        try:
            made = self.calls.spawn(blueprint.description(), _numbers(pose), 0 if parent is None else parent.id)
        except Refused:
            return None
        return LocalActor(self, self.world.actor(made[0]))

    def attach(self, blueprint: Any, pose: Any, parent: Any) -> Any:
        """Return a new sensor on an actor."""
        return LocalActor(self, self.world.actor(self.calls.spawn(blueprint.description(), _numbers(pose), parent.id)[0]))

    def spawn_all(self, wanted: Sequence[tuple[Any, Any]], manager: int | None = None) -> list[Any]:
        """Return new actors for pairs of a blueprint and a pose, fewer if there is no room."""
        made = [self.spawn(blueprint, pose) for blueprint, pose in wanted]
        return [actor for actor in made if actor is not None]

    def control(self, throttle: float, steer: float, brake: float) -> Any:
        """Return a control in the single precision of the client's, which takes longer to make."""
        throttle, steer, brake = np.array((throttle, steer, brake), np.float32).tolist()
        return SimpleNamespace(throttle=throttle, steer=steer, brake=brake, **GEARS)

    def tick(self) -> Frame:
        """Simulate a frame and return it."""
        self.world.tick()
        return LocalFrame(self.world)

    def require(self) -> None:
        """Raise ServerUnavailable if `close` was called."""
        assert self.world

    def processor_seconds(self) -> float:
        """Return 0: the world runs in this process, and no server uses time of its own."""
        return 0.0

    def close(self) -> None:
        """Drop the simulated world, so that its memory is freed."""
        self._world = None


class LocalFrame(Frame):
    """Frame of a world in this process, valid until its next tick."""

    def __init__(self, world: World) -> None:
        self.bodies, self.frame = world.bodies, world.clock.frame

    def motion(self, number: int) -> Motion | None:
        """Return the motion of an actor by its id, or None if it no longer exists."""
        actor = self.bodies.by_id.get(number)
        if actor is None:
            return None
        x, y, yaw, vx, vy, ax, ay, turning = self.bodies.motion[actor.row, MOVED].astype(np.float32).tolist()
        return x, y, yaw, vx, vy, ax, ay, turning

    def places(self, numbers: Sequence[int]) -> Floats:
        """Return x, y [m], yaw [degree] and velocity in x and y [m/s] (n, 5) of actors; NaN for those that no longer exist."""
        known = self.bodies.by_id
        actors = [known.get(number) for number in numbers]
        rows = np.array([-1 if actor is None else actor.row for actor in actors], np.intp)
        found = self.bodies.motion[rows[:, None], PLACED].astype(np.float32).astype(np.float64)
        if None in actors:
            found[rows < 0] = np.nan
        return found


class LocalActor:
    """Actor of a world in this process, with those of the client's names that a session needs."""

    def __init__(self, session: LocalSession, actor: actors.Actor) -> None:
        self._session, self._actor = session, actor
        self.id, self.type_id = actor.id, actor.type_id
        carla = session.carla
        self.bounding_box = carla.BoundingBox(carla.Location(*actor.box.centre), carla.Vector3D(*actor.box.extent))
        self.trigger_volume = self.bounding_box

    def get_transform(self) -> Any:
        """Return the present pose of the actor, as CARLA's type Transform."""
        carla = self._session.carla
        x, y, z, pitch, yaw, roll = self._session.world.bodies.motion[self._actor.row, :6].tolist()
        return carla.Transform(carla.Location(x, y, z), carla.Rotation(pitch, yaw, roll))

    def get_speed_limit(self) -> float:
        """Return the speed limit [km/h] of a vehicle."""
        return float(self._session.world.bodies.records["limit"][self._actor.row])

    @property
    def state(self) -> str:
        """Colour of a traffic light."""
        lights = self._session.world.lights
        return COLOURS[lights.colours[self._actor.row - lights.actors[0].row]]

    def apply_control(self, control: Any) -> None:
        """Set the control of a vehicle or a walker."""
        if self.type_id.startswith("walker."):
            way = control.direction
            self._session.calls.walk(self.id, [[way.x, way.y, way.z], control.speed, control.jump])
            return
        pedals = [control.throttle, control.steer, control.brake]
        gears = [control.hand_brake, control.reverse, control.manual_gear_shift, control.gear]
        self._session.calls.control(self.id, pedals + gears)

    def listen(self, callback: Callable[[Any], object]) -> None:
        """Call a function with each measurement of a sensor."""
        read = _collision if self.type_id == "sensor.other.collision" else _picture
        self._session.streams.listeners[self._actor.stream] = lambda header, payload: callback(read(header, payload))


class Library:
    """Blueprints (types) of all actors that can be spawned in a local world."""

    def find(self, name: str) -> LocalBlueprint:
        """Return a blueprint whose attributes may be set; raises KeyError."""
        return LocalBlueprint(blueprints.BY_NAME[name])


class LocalBlueprint:
    """Blueprint of an actor, with the client's names."""

    def __init__(self, blueprint: blueprints.Blueprint) -> None:
        self.id = blueprint.name
        self._known = {one.name: one for one in blueprint.properties}
        self._given: dict[str, str] = {}

    def has_attribute(self, name: str) -> bool:
        """Return True if it has an attribute."""
        return name in self._known

    def get_attribute(self, name: str) -> Any:
        """Return an attribute of the blueprint with its recommended values; raises KeyError if there is none of this name."""
        return SimpleNamespace(recommended_values=list(self._known[name].recommended))

    def set_attribute(self, name: str, value: str) -> None:
        """Set an attribute of the blueprint; raises KeyError if the blueprint has no attribute of this name."""
        self._given[self._known[name].name] = value

    def description(self) -> list[object]:
        """Return the description of an actor in the client's encoding."""
        return [0, self.id, [[name, int(self._known[name].kind), value] for name, value in self._given.items()]]


@lru_cache(maxsize=CATALOGUES)
def _catalogue(folder: str) -> Catalogue:
    return Catalogue(folder, flatten=bool(folder))


@lru_cache(maxsize=TOWNS)
def _map(carla: Any, town: Town) -> Any:
    return carla.Map(town.name, town.text)


@lru_cache(maxsize=TOWNS)
def _spawn_points(carla: Any, town: Town) -> tuple[Any, ...]:
    return tuple(carla.Transform(carla.Location(*place), carla.Rotation(*rotation)) for place, rotation in town.spawn_points)


def _numbers(pose: Any) -> Pose:
    """Return a pose of the client's kind as lists, in the single precision of its numbers."""
    place, rotation = pose.location, pose.rotation
    return [[place.x, place.y, place.z], [rotation.pitch, rotation.yaw, rotation.roll]]


def _collision(header: bytes, payload: bytes | memoryview) -> Any:
    """Return a collision event of the client's kind."""
    other = msgpack.unpackb(payload)[1]
    frame = layouts.SENSOR_HEADER.unpack(header)[1]
    return SimpleNamespace(frame=frame, other_actor=SimpleNamespace(id=other[0], type_id=other[2][1]))


def _picture(header: bytes, payload: bytes | memoryview) -> Any:
    """Return an image of the client's kind."""
    width, height, _ = layouts.IMAGE_HEADER.unpack_from(payload)
    frame = layouts.SENSOR_HEADER.unpack(header)[1]
    pixels = bytes(payload[layouts.IMAGE_HEADER.size :])
    return SimpleNamespace(frame=frame, width=width, height=height, raw_data=pixels)
