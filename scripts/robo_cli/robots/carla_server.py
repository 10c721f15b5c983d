"""robo-rl carla-server: a light stand-in for CARLA's server, for any script that uses the carla client."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass

from robo_rl.errors import InvalidSetting, MissingExtra

try:
    from carla_standin.clock import RATE
    from carla_standin.physics.parameters import GRIP
    from carla_standin.polling import LINGER
except ModuleNotFoundError:
    raise MissingExtra("The stand-in for CARLA", "carla-standin", "carla") from None

EXAMPLES = """robo-rl carla-server --port 2000 --map grid
robo-rl carla-server --map highway --traffic 30     (cars that drive themselves, the same for the same --seed)
robo-rl carla-server --map grid_test_3 --physics dynamic
robo-rl carla-server --maps towns --map Town04 --flatten     (OpenDRIVE files of a folder, by their names)"""


@dataclass(frozen=True)
class CarlaServer:
    """Serve CARLA's protocol (client 0.9.16) without CARLA: own maps, own physics, flat pictures. Ctrl-C ends it."""

    port: int = 2000
    """Port of calls; streams use the next one. 0 takes a free pair."""
    map: str = "grid"
    """ring, grid, highway; drawn by chance: grid_train_0, grid_test_0, ...; or the name of a file in --maps."""
    maps: str = ""
    """Folder of OpenDRIVE files, such as CARLA's towns: each is a map by its file's name without .xodr."""
    flatten: bool = False
    """Read hills and banked roads as level ground, instead of refusing them."""
    physics: str = "kinematic"
    """Model of vehicles: kinematic or dynamic."""
    grip: float = GRIP
    """Coefficient of friction of clients' vehicles; 2.7 lets CARLA's own agents take bends as fast as they do in CARLA."""
    traffic: int = 0
    """Cars that drive themselves, in each episode."""
    walkers: int = 0
    """Walkers that cross streets, in each episode."""
    seed: int = 0
    """Seed of traffic and walkers."""
    rate: float = RATE
    """[1/s] frames while no client has switched to synchronous mode."""
    linger: float = LINGER
    """[s] of looking for the next call of a busy client before it sleeps; 0: it sleeps at once, and leaves more of the core."""
    navigation: bool = True
    """Send clients a navigation mesh for AI walkers, which each caches in ~/carlaCache."""


def run(arguments: CarlaServer) -> int:
    """Serve until interrupted."""
    from carla_standin.errors import StandInError
    from carla_standin.server import Options, Server

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        server = Server(Options(**asdict(arguments)))
    except StandInError as error:
        raise InvalidSetting(error.what, got=error.got, allowed=error.allowed, fix=error.fix) from None
    try:
        print(f"stand-in for CARLA 0.9.16, map {arguments.map}: carla.Client('127.0.0.1', {server.port})", flush=True)
        server.run()
    except KeyboardInterrupt:
        print("ended")
    finally:
        server.close()
    return 0
