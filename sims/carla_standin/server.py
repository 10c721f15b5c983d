"""The server's process: two ports, one thread, asleep while idle."""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2

from carla_standin.calls import table
from carla_standin.clock import RATE
from carla_standin.connections import accepted
from carla_standin.deferral import SETTLING, Deferrals
from carla_standin.errors import InvalidOption, PortsTaken
from carla_standin.host import Host
from carla_standin.maps.catalogue import Catalogue
from carla_standin.physics.parameters import GRIP
from carla_standin.polling import LINGER, Poller
from carla_standin.population import Population
from carla_standin.rpc import Caller
from carla_standin.streams import Streams
from carla_standin.vehicles import MODELS
from carla_standin.world import MOST_GRIP, World

LOG = logging.getLogger(__name__)
ATTEMPTS = 100


@dataclass(frozen=True)
class Options:
    """Options of the stand-in's server: maps, traffic, physics, ports."""

    port: int = 2000
    """Port of calls; streams use the next one. 0 takes a free pair."""
    map: str = "ring"
    """ring, grid, highway, stops, one drawn at random, such as grid_train_0 or grid_test_0, or a file of `maps`."""
    maps: str = ""
    """Folder of OpenDRIVE files, each a map by its file's name without .xodr."""
    flatten: bool = False
    """Whether hills and banked roads of maps are read as level ground, instead of being refused."""
    physics: str = "kinematic"
    """Model of vehicles without an attribute `dynamics`: kinematic or dynamic."""
    grip: float = GRIP
    """Coefficient of tyre friction of vehicles whose blueprint has no attribute `grip`; CARLA's agents take bends at 2.7."""
    rate: float = RATE
    """[1/s] frames of asynchronous mode."""
    traffic: int = 0
    """Number of cars that the server itself drives, in each episode."""
    walkers: int = 0
    """Number of walkers of the server that cross streets, in each episode."""
    seed: int = 0
    """Seed of the traffic and of the walkers, 0 or more."""
    linger: float = LINGER
    """[s] of polling for the next call of a busy client before sleeping; 0 sleeps at once and uses less of the core."""
    navigation: bool = True
    """Whether clients get a navigation mesh for AI walkers, which each caches in a file; without it, they write no files."""
    host: str = "127.0.0.1"
    """Address to listen at. The protocol has no passwords: leave it."""

    def __post_init__(self) -> None:
        allowed = {
            "port": (0 <= self.port < 65535, "0 to 65534"),
            "physics": (self.physics in MODELS, " or ".join(MODELS)),
            "grip": (0 < self.grip <= MOST_GRIP, f"above 0, up to {MOST_GRIP:g}"),
            "rate": (0.1 <= self.rate <= 1000, "0.1 to 1000 [1/s]"),
            "traffic": (0 <= self.traffic <= 500, "0 to 500"),
            "walkers": (0 <= self.walkers <= 500, "0 to 500"),
            "seed": (self.seed >= 0, "0 or more"),
            "linger": (0 <= self.linger <= 0.1, "0 to 0.1 [s]"),
        }
        for name, (is_allowed, words) in allowed.items():
            if not is_allowed:
                raise InvalidOption(f"Option {name!r} is out of range.", got=getattr(self, name), allowed=words)


class Server:
    """Server that listens as soon as it is constructed."""

    def __init__(self, options: Options) -> None:
        catalogue = Catalogue(options.maps, flatten=options.flatten)
        first = catalogue.town(options.map)  # raises for an unknown name before a port is taken
        calls, streams = listeners(options.host, options.port)
        self.port = int(calls.getsockname()[1])
        self.listener = calls
        self.host = Host(
            World(first, Streams(streams), physics=options.physics, rate=options.rate, grip=options.grip),
            Population(options.traffic, options.walkers, options.seed),
            has_navigation=options.navigation,
            catalogue=catalogue,
        )
        self.calls = table(self.host)
        self.selector = selectors.DefaultSelector()
        self.selector.register(calls, selectors.EVENT_READ, self._accept)
        self.selector.register(self.host.streams, selectors.EVENT_READ, lambda _: self.host.streams.serve())
        self.poller = Poller(self.selector, options.linger)
        self.deferrals = Deferrals()
        self.is_running = True

    def stop_with(self, file: int) -> None:
        """Stop when the other end of a pipe is closed, for example by the end of its process."""
        self.selector.register(file, selectors.EVENT_READ, partial(self._ended, file))

    def _ended(self, file: int, _: int) -> None:
        self.is_running = bool(os.read(file, 64))

    def _accept(self, _: int) -> None:
        sock = accepted(self.listener, self.selector)
        if sock is not None:
            Caller(sock, self.selector, self.calls, self._defer)

    def _defer(self, name: str, send: Callable[[], None]) -> bool:
        """Send the answer of a loaded map later if a Traffic Manager runs; return False for other answers."""
        is_late = name == "load_new_episode" and bool(self.host.managers)
        if is_late:
            self.deferrals.add(SETTLING, send)
        return is_late

    def run(self) -> None:
        """Answer clients and simulate until `stop` is called."""
        cv2.setNumThreads(1)  # its threads wait for each other by spinning, which costs more than these small pictures
        while self.is_running:
            until_step, until_answer = self._timeout(), self.deferrals.until_due()
            waits = [seconds for seconds in (until_step, until_answer) if seconds is not None]
            for key, mask in self.poller.ready(min(waits, default=None)):
                key.data(mask)
            self.deferrals.call_due()
            if self.host.world.settings.synchronous:
                self._prepare()

    def _prepare(self) -> None:
        try:
            self.host.world.prepare()
        except Exception:  # the next step raises it again, for the client that called it
            LOG.exception("preparing a step failed")

    def _timeout(self) -> float | None:
        """Return the time [s] until the next step, or None in synchronous mode; does a step that is due."""
        world = self.host.world
        if world.settings.synchronous:
            return None
        left = self.host.streams.until_renewed() or world.clock.until_due(world.step_seconds)
        if left:
            return left
        try:
            world.tick()
        except Exception:
            LOG.exception("a step failed")
        return 0.0

    def close(self) -> None:
        """Close both ports and all connections."""
        self.host.streams.close()
        for key in list(self.selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        self.selector.close()


def listeners(host: str, port: int) -> tuple[socket.socket, socket.socket]:
    """Return two listening sockets: for calls at a port, and for streams at the next port; port 0 takes a free pair.

    Raises PortsTaken if another program uses one of the ports.
    """
    problem: OSError | None = None
    for _ in range(1 if port else ATTEMPTS):
        calls = socket.socket()
        calls.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        streams = socket.socket()
        streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            calls.bind((host, port))
            streams.bind((host, calls.getsockname()[1] + 1))
            calls.listen()
            streams.listen()
            return calls, streams
        except (OSError, OverflowError) as error:
            problem = error if isinstance(error, OSError) else OSError(str(error))
            calls.close()
            streams.close()
    raise PortsTaken(
        f"The stand-in cannot listen at {host}:{port} and the port after it.", got=problem, fix="choose another --port, or 0"
    )


def main() -> None:
    """Run a server in this process for a parent process.

    The options are JSON, the first word of the command line. The port is printed when clients may connect. The server ends when
    its
    standard input is closed.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="carla stand-in: %(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then closes the pipe
    server = Server(Options(**json.loads(sys.argv[1])))
    server.stop_with(sys.stdin.fileno())
    print(json.dumps({"port": server.port}), flush=True)  # noqa: T201
    server.run()
    server.close()


if __name__ == "__main__":
    main()
