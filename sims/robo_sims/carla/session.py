"""CarlaSession with a CARLA server: connection or start-up, synchronous mode, actors; every call has a timeout.

The client raises RuntimeError; this module turns it into ServerUnavailable. It knows nothing of the stand-in but how to start
one: capabilities of a server are queried through the client.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.connection import client_package, connect
from robo_sims.carla.frames import ClientFrame, Frame
from robo_sims.carla.roads import Floats
from robo_sims.carla.server_lease import acquire_lease

TICK = 0.1
"""[s] simulated time between two frames: one decision each, and the maximum for CARLA's ten substeps of 0.01 s."""
ANSWER_TIMEOUT = 10.0
"""[s] timeout of a server's answer."""
GLANCE, POLL = 0.5, 0.005
"""Waiting for a frame of a server of our own: time [s] until its process is checked, and period [s] of the later checks."""
ATTEMPTS, PAUSE = 3, 1.0
"""Connection attempts, and [s] between them."""
OWN = "vehicle.tesla.model3", "driver"
"""Blueprint and attribute that only the stand-in has: it drives traffic itself and reloads a world in milliseconds."""


class WorldView(Protocol):
    """World of CARLA as far as it is only read: map, actors, signals."""

    carla: Any
    """The Python module `carla` of the client."""
    patience: float
    """Longest time [s] to wait for a measurement."""

    def map(self) -> Any:
        """Return the client's map object."""

    def signals(self, kind: str) -> list[Any]:
        """Return all traffic lights or signs of a kind, such as "traffic.stop", as actors of CARLA's client."""


class Session(WorldView, Protocol):
    """Protocol of the CARLA world in which one environment drives: on a server, or in this process."""

    library: Any
    """CARLA's library of blueprints, which finds a blueprint by its name."""
    has_own_traffic: bool
    """True if the world drives traffic itself and begins an episode in milliseconds."""
    has_stepped: bool
    """True after the first step of an episode."""

    @property
    def is_open(self) -> bool:
        """True if the world can be used."""

    def glancing(self) -> contextlib.AbstractContextManager[None]:
        """Return a context with a short timeout, so that calls to our own server fail soon if its process has ended."""
        return contextlib.nullcontext()

    def open(self) -> None:
        """Connect to the world, or make it; raises ServerUnavailable or InvalidSetting."""

    def begin(self) -> None:
        """Reset the world for a new episode and remove the actors of the previous one."""

    def pose(self, point: Floats, lift: float) -> Any:
        """Return the CARLA transform of a lane point, heading along the lane.

        Args:
            point: (6,): x, y, z [m], heading [rad], width [m], 1 in a junction; as in `LaneOfMap.points`.
            lift: [m] added to z.
        """

    def spawn_points(self) -> list[Any]:
        """Return poses on lanes for other cars."""

    def spawn(self, blueprint: Any, pose: Any, parent: Any = None) -> Any:
        """Spawn an actor and return it, or return None if something is in its place already."""

    def attach(self, blueprint: Any, pose: Any, parent: Any) -> Any:
        """Return a new sensor on an actor."""

    def spawn_all(self, wanted: Sequence[tuple[Any, Any]], manager: int | None = None) -> list[Any]:
        """Return new actors for pairs of a blueprint and a pose, fewer if there is no room.

        manager: port of the Traffic Manager that drives them, if one does.
        """

    def control(self, throttle: float, steer: float, brake: float) -> Any:
        """Return a control for the car's `apply_control`."""

    def tick(self) -> Frame:
        """Simulate a frame and return it; raises ServerUnavailable."""

    def require(self) -> None:
        """Raise ServerUnavailable if the world can no longer be used."""

    def processor_seconds(self) -> float:
        """Return the processor time [s] used by an own server; 0 for another, and without one."""

    def close(self) -> None:
        """Remove this session's actors and leave the world."""


class CarlaSession(Session):
    """World of a server in synchronous mode; `host` None starts a stand-in and stops it with this object.

    ports: candidate servers; one without another session in this process is taken.
    maps: folder of OpenDRIVE files for an own stand-in, which are read as level ground.
    """

    def __init__(
        self,
        *,
        map: str,
        host: str | None = None,
        ports: Sequence[int] = (2000,),
        patience: float = ANSWER_TIMEOUT,
        maps: str = "",
    ) -> None:
        self.carla = client_package()
        self.maps = maps
        self.map_name, self.host, self.ports, self.patience = map, host, tuple(ports), patience
        self.port = self.ports[0]
        """Port of the leased server."""
        self.has_stepped = False
        """True after the first step of an episode."""
        self._resources = Resources()
        weakref.finalize(self, self._resources.release)  # also at the end of the interpreter, while the client still works
        self.client: Any = None
        self.world: Any = None
        self.library: Any = None
        self.has_own_traffic = False
        """True if the server drives traffic itself and reloads a world in milliseconds."""

    @property
    def is_open(self) -> bool:
        """True if connected and, for an own server, its process runs; makes no call."""
        process = self._resources.process
        return self.client is not None and (process is None or process.status is None)

    def open(self) -> None:
        """Connect, with at most `ATTEMPTS` attempts; raises ServerUnavailable."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._connect()
                return
            except ServerUnavailable:
                self.close()
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE)

    def _connect(self) -> None:
        host, port = self._found()
        # One thread handles events and snapshots in order of arrival: a collision is known before its frame.
        client = connect(host, port, self.patience, worker_threads=1)
        with as_server_unavailable(f"The server at {host}:{port} does not begin a world."):
            self._enter(client)
        self.client = client

    def _found(self) -> tuple[str, int]:
        """Return host and port of a server; starts one if no host is given."""
        if self.host is None:
            from robo_sims.carla.local_server import StandIn

            settings = {"maps": self.maps, "flatten": bool(self.maps), "navigation": False}
            server = self._resources.server = StandIn(map=self.map_name, **settings).start()
            return server.host, server.port
        self.port = acquire_lease(self, self.host, self.ports)
        return self.host, self.port

    def _enter(self, client: Any) -> None:
        self.world = client.get_world()
        name = self.world.get_map().name.rsplit("/", 1)[-1]
        if self.map_name not in ("", name):
            self.world = client.load_world(self.map_name)
        elif self.host is not None:  # an earlier client, or a lost session of ours, may have left actors
            self.world = client.reload_world()
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = True, TICK
        self.world.apply_settings(settings)
        self.library = self.world.get_blueprint_library()
        name, attribute = OWN
        self.has_own_traffic = any(found.has_attribute(attribute) for found in self.library.filter(name))

    @contextlib.contextmanager
    def glancing(self) -> Iterator[None]:
        """Wait for each answer of an own server for `GLANCE` at most: it may have ended a moment ago."""
        client = self.client
        if client is not None and self._resources.process is not None:
            client.set_timeout(min(GLANCE, self.patience))
        try:
            yield
        finally:
            if client is not None:
                client.set_timeout(self.patience)

    def map(self) -> Any:
        """Return the client's map object."""
        with as_server_unavailable("The server has no map."):
            return self.world.get_map()

    def begin(self) -> None:
        """Reset the world for a new episode, without the actors of the previous one; raises ServerUnavailable."""
        with as_server_unavailable("The server does not begin an episode."):
            if self.has_own_traffic:
                self._resources.stop_sensors()
                self.world = self.client.reload_world(False)  # drops all actors
            else:
                self.destroy_actors()
            self.world.reset_all_traffic_lights()

    def pose(self, point: Floats, lift: float) -> Any:
        """Return the pose at a lane point (6,), `lift` [m] above the ground, heading along the lane."""
        return lane_pose(self.carla, point, lift)

    def spawn_points(self) -> list[Any]:
        """Return poses on lanes for other cars."""
        with as_server_unavailable("The server has no map."):
            return list(self.world.get_map().get_spawn_points())

    def signals(self, kind: str) -> list[Any]:
        """Return the actors of all signals of a kind, such as "traffic.stop"."""
        return list(self.world.get_actors().filter(f"{kind}*"))

    def spawn(self, blueprint: Any, pose: Any, parent: Any = None) -> Any:
        """Return a new actor, destroyed at the next episode, or None if there is no room."""
        with as_server_unavailable("The server does not spawn an actor."):
            actor = self.world.try_spawn_actor(blueprint, pose, attach_to=parent)
        if actor is not None:
            self._resources.actors.append(actor)
        return actor

    def attach(self, blueprint: Any, pose: Any, parent: Any) -> Any:
        """Return a new sensor on an actor; raises ServerUnavailable if the server is lost."""
        sensor = self.spawn(blueprint, pose, parent)
        if sensor is None:  # the client also reports a lost server in this way
            raise ServerUnavailable("The server attaches no sensor.", fix="look at the server's log, and try again")
        return sensor

    def spawn_all(self, wanted: Sequence[tuple[Any, Any]], manager: int | None = None) -> list[Any]:
        """Return new actors for pairs of a blueprint and a pose, fewer if there is no room; destroyed at the next episode.

        manager: port of the Traffic Manager that drives them, if one does.
        """
        command = self.carla.command
        commands = [command.SpawnActor(blueprint, pose) for blueprint, pose in wanted]
        if manager is not None:
            commands = [each.then(command.SetAutopilot(command.FutureActor, True, manager)) for each in commands]
        answers = self.client.apply_batch_sync(commands, False)
        found = list(self.world.get_actors([answer.actor_id for answer in answers if not answer.error]))
        self._resources.actors += found
        return found

    def destroy_actors(self) -> None:
        """Destroy the actors of this session, sensors first."""
        numbers = [actor.id for actor in sorted(self._resources.actors, key=lambda actor: not is_sensor(actor))]
        self._resources.stop_sensors()
        if numbers:  # without a tick: the client would wait with the GIL held, which sensor events need
            self.client.apply_batch_sync([self.carla.command.DestroyActor(number) for number in numbers], False)

    def control(self, throttle: float, steer: float, brake: float) -> Any:
        """Return a control for the car's `apply_control`."""
        return self.carla.VehicleControl(throttle=throttle, steer=steer, brake=brake)

    def tick(self) -> Frame:
        """Simulate a frame and return it; raises ServerUnavailable if the server is lost."""
        self.require()
        try:
            with as_server_unavailable("The server does not answer any more."):
                if self._resources.process is None:
                    self.world.tick(self.patience)
                else:
                    self._tick_own()
                return ClientFrame(self.world.get_snapshot())
        except ServerUnavailable:
            self.client = None  # no further calls, not even to clean up: each would time out again
            self._resources.kill()
            raise

    def _tick_own(self) -> None:
        """Simulate a frame on an own server; raise RuntimeError after the timeout or when its process has ended."""
        before, end = self.world.get_snapshot().frame, time.monotonic() + self.patience
        self.client.set_timeout(min(GLANCE, self.patience))
        try:
            self.world.tick(self.patience)
        except RuntimeError:  # the request was sent: a slow server still answers with a frame
            while self.is_open and time.monotonic() < end and self.world.get_snapshot().frame == before:
                time.sleep(POLL)
            if not self.is_open or self.world.get_snapshot().frame == before:
                raise
        finally:
            self.client.set_timeout(self.patience)

    def require(self) -> None:
        """Raise ServerUnavailable if the server has ended or its lease was revoked."""
        if not self.is_open:
            raise ServerUnavailable("The server has ended, or another environment of this program has it.")

    def revoke(self) -> None:
        """Stop using the server: another session has it and resets the world."""
        self._resources.stop_sensors()
        self.client = self.world = self.library = None

    def processor_seconds(self) -> float:
        """Return the processor time [s] that our own server has used; 0 for a server that others started."""
        return 0.0 if self._resources.server is None else float(self._resources.server.processor_seconds())

    def close(self) -> None:
        """Destroy the actors, leave synchronous mode, and stop the server if it was started here."""
        if self.is_open:
            with contextlib.suppress(RuntimeError):
                self.destroy_actors()
                if self._resources.server is None:
                    self._leave()
        self.client = self.world = self.library = None
        self._resources.release()

    def _leave(self) -> None:
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = False, None
        self.world.apply_settings(settings)


class Resources:
    """Server and actors to release, apart from the session so that a finaliser can release them."""

    def __init__(self) -> None:
        self.server: Any = None
        self.actors: list[Any] = []
        """Actors of the current episode."""

    @property
    def process(self) -> Any:
        """Process of the server if we started it, else None."""
        return None if self.server is None else self.server.process

    def stop_sensors(self) -> None:
        """Stop all sensors and forget the actors: a sensor destroyed while it listens can crash the process."""
        for actor in self.actors:
            if is_sensor(actor):
                with contextlib.suppress(RuntimeError):  # the client may have closed the stream of a lost server already
                    actor.stop()
        self.actors = []

    def kill(self) -> None:
        """Kill the server if it was started here."""
        if self.process is not None:
            self.process.stop()

    def release(self) -> None:
        """Stop sensors and server."""
        self.stop_sensors()
        if self.server is not None:
            self.server.stop()
            self.server = None


def lane_pose(carla: Any, point: Floats, lift: float) -> Any:
    """Return the pose at a lane point (6,), `lift` [m] above the ground, heading along the lane."""
    x, y, z, heading = (float(value) for value in point[:4])
    return carla.Transform(carla.Location(x, y, z + lift), carla.Rotation(yaw=math.degrees(heading)))


def is_sensor(actor: Any) -> bool:
    """Return True if an actor is a sensor."""
    return bool(actor.type_id.startswith("sensor."))


@contextlib.contextmanager
def as_server_unavailable(problem: str) -> Iterator[None]:
    """Turn a RuntimeError of CARLA's client inside the block into ServerUnavailable.

    problem: first line of the error's message.
    """
    try:
        yield
    except RuntimeError as error:
        raise ServerUnavailable(problem, got=str(error).strip(), fix="look at the server's log, and try again") from None
