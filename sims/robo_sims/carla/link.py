"""A CARLA server as an environment needs it: found or started, checked, in step, and never waited for without end.

The client's own errors are RuntimeErrors; all of them leave here as ServerUnavailable. Nothing of the stand-in is known here
but how to start one: what a server can do is asked of it through the client.
"""

from __future__ import annotations

import contextlib
import math
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.claims import claim
from robo_sims.carla.connection import client_package, connect
from robo_sims.carla.roads import Floats

TICK = 0.1
"""[s] of simulated time between two frames: a decision each, and the longest that CARLA's own ten substeps of 0.01 s hold."""
PATIENCE = 10.0
"""[s] for one answer of a server."""
GLANCE, POLL = 0.5, 0.005
"""[s] of waiting for a frame of a server of its own before it looks whether that is still there; between looks from then on."""
ATTEMPTS, PAUSE = 3, 1.0
"""Tries to reach a server, and [s] between them."""
OWN = "vehicle.tesla.model3", "driver"
"""A blueprint and its attribute that only a server with traffic of its own has; a world begins anew there in milliseconds."""


class Link:
    """A world of a server in synchronous mode; `host` None starts a stand-in of its own and ends it with this object.

    ports: of several servers, of which it takes one that nobody else here has.
    """

    def __init__(
        self, *, map: str, host: str | None = None, ports: Sequence[int] = (2000,), patience: float = PATIENCE
    ) -> None:
        self.carla = client_package()
        self.map_name, self.host, self.ports, self.patience = map, host, tuple(ports), patience
        self.port = self.ports[0]
        """Of the server that it has."""
        self.has_stepped = False
        """Whether it ever went further than to begin an episode."""
        self._held = Held()
        weakref.finalize(self, self._held.release)  # also at the end of the interpreter, while the client still works
        self.client: Any = None
        self.world: Any = None
        self.library: Any = None
        self.begins_anew = False
        """Whether the server has traffic of its own, and begins a world anew at once."""

    @property
    def is_open(self) -> bool:
        """True if a server is there, as far as is known without a call."""
        process = self._held.process
        return self.client is not None and (process is None or process.status is None)

    def open(self) -> None:
        """Connects, at most `ATTEMPTS` times; raises ServerUnavailable."""
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
        # One thread handles events and snapshots in the order in which they came: a collision is known before its frame is.
        client = connect(host, port, self.patience, worker_threads=1)
        with told(f"The server at {host}:{port} does not begin a world."):
            self._enter(client)
        self.client = client

    def _found(self) -> tuple[str, int]:
        """Returns where a server listens; starts one if none was named."""
        if self.host is None:
            from robo_sims.carla.local_server import StandIn

            server = self._held.server = StandIn(map=self.map_name, navigation=False).start()
            return server.host, server.port
        self.port = claim(self, self.host, self.ports)
        return self.host, self.port

    def _enter(self, client: Any) -> None:
        self.world = client.get_world()
        name = self.world.get_map().name.rsplit("/", 1)[-1]
        if self.map_name not in ("", name):
            self.world = client.load_world(self.map_name)
        elif self.host is not None:  # whoever drove there before, a lost connection of ours too, may have left actors
            self.world = client.reload_world()
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = True, TICK
        self.world.apply_settings(settings)
        self.library = self.world.get_blueprint_library()
        name, attribute = OWN
        self.begins_anew = any(found.has_attribute(attribute) for found in self.library.filter(name))

    def map(self) -> Any:
        """Returns the map."""
        with told("The server has no map."):
            return self.world.get_map()

    def begin(self) -> None:
        """Begins an episode without an actor of the one before; raises ServerUnavailable."""
        with told("The server does not begin an episode."):
            if self.begins_anew:
                self._held.silence()
                self.world = self.client.reload_world(False)  # without the actors of before
            else:
                self.destroy_actors()
            self.world.reset_all_traffic_lights()

    def pose(self, point: Floats, lift: float) -> Any:
        """Returns the pose at a point (6,) of a lane, [m] above the ground, along the lane."""
        x, y, z, heading = (float(value) for value in point[:4])
        return self.carla.Transform(self.carla.Location(x, y, z + lift), self.carla.Rotation(yaw=math.degrees(heading)))

    def spawn(self, blueprint: Any, pose: Any, parent: Any = None) -> Any:
        """Returns a new actor, which the next episode destroys, or None if there is no room."""
        with told("The server does not spawn an actor."):
            actor = self.world.try_spawn_actor(blueprint, pose, attach_to=parent)
        if actor is not None:
            self._held.actors.append(actor)
        return actor

    def attach(self, blueprint: Any, pose: Any, parent: Any) -> Any:
        """Returns a new sensor of an actor; raises ServerUnavailable: there is always room, but perhaps no server any more."""
        sensor = self.spawn(blueprint, pose, parent)
        if sensor is None:  # what the client says instead of an error, too
            raise ServerUnavailable("The server attaches no sensor.", fix="look at the server's log, and try again")
        return sensor

    def spawn_all(self, commands: list[Any]) -> list[Any]:
        """Returns new actors, fewer than commands if there is no room; the next episode destroys them."""
        answers = self.client.apply_batch_sync(commands, False)
        found = list(self.world.get_actors([answer.actor_id for answer in answers if not answer.error]))
        self._held.actors += found
        return found

    def destroy_actors(self) -> None:
        """Destroys what was spawned here; sensors go first."""
        numbers = [actor.id for actor in sorted(self._held.actors, key=lambda actor: not is_sensor(actor))]
        self._held.silence()
        if numbers:  # without a tick: the client would hold Python's lock while it waits, and an event needs the lock
            self.client.apply_batch_sync([self.carla.command.DestroyActor(number) for number in numbers], False)

    def tick(self) -> Any:
        """Simulates a frame and returns its snapshot; raises ServerUnavailable if the server is gone."""
        self.require()
        try:
            with told("The server does not answer any more."):
                if self._held.process is None:
                    self.world.tick(self.patience)
                else:
                    self._tick_own()
                return self.world.get_snapshot()
        except ServerUnavailable:
            self.client = None  # not asked again, not even to clear up: each call would wait as long
            self._held.kill()
            raise

    def _tick_own(self) -> None:
        """Simulate a frame on a server of its own; raise RuntimeError if it takes too long, or once its process has ended."""
        before, end = self.world.get_snapshot().frame, time.monotonic() + self.patience
        self.client.set_timeout(min(GLANCE, self.patience))
        try:
            self.world.tick(self.patience)
        except RuntimeError:  # the call is on its way: a server that is only slow still answers it with a frame
            while self.is_open and time.monotonic() < end and self.world.get_snapshot().frame == before:
                time.sleep(POLL)
            if not self.is_open or self.world.get_snapshot().frame == before:
                raise
        finally:
            self.client.set_timeout(self.patience)

    def require(self) -> None:
        """Raises ServerUnavailable if the server has ended, or is another's by now."""
        if not self.is_open:
            raise ServerUnavailable("The server has ended, or another environment of this program has it.")

    def give_up(self) -> None:
        """Asks the server nothing any more: another has it, and begins its world anew."""
        self._held.silence()
        self.client = self.world = self.library = None

    def processor_seconds(self) -> float:
        """Returns the time [s] that a server of its own has used of a core; 0 for another."""
        return 0.0 if self._held.server is None else float(self._held.server.processor_seconds())

    def close(self) -> None:
        """Destroys what was spawned, lets the server run on by itself, and ends it where it was started here."""
        if self.is_open:
            with contextlib.suppress(RuntimeError):
                self.destroy_actors()
                if self._held.server is None:
                    self._leave()
        self.client = self.world = self.library = None
        self._held.release()

    def _leave(self) -> None:
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = False, None
        self.world.apply_settings(settings)


class Held:
    """Resources to release, apart from their owner so that a finaliser can release them."""

    def __init__(self) -> None:
        self.server: Any = None
        self.actors: list[Any] = []
        """Of the present episode."""

    @property
    def process(self) -> Any:
        """Returns the process of the server, or None if it was not started here."""
        return None if self.server is None else self.server.process

    def silence(self) -> None:
        """Listens to no sensor any more, and forgets the actors: a sensor that still listens can end the process as it goes."""
        for actor in self.actors:
            if is_sensor(actor):
                with contextlib.suppress(RuntimeError):  # the client may have closed the stream of a lost server already
                    actor.stop()
        self.actors = []

    def kill(self) -> None:
        """Ends the server at once if it was started here."""
        if self.process is not None:
            self.process.stop()

    def release(self) -> None:
        """Ends the server."""
        self.silence()
        if self.server is not None:
            self.server.stop()
            self.server = None


def is_sensor(actor: Any) -> bool:
    """Return True if an actor is a sensor."""
    return bool(actor.type_id.startswith("sensor."))


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Turns the client's errors into ServerUnavailable."""
    try:
        yield
    except RuntimeError as error:
        raise ServerUnavailable(what, got=str(error).strip(), fix="look at the server's log, and try again") from None
