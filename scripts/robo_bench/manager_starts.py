"""Count how often a client with a Traffic Manager survives the load of a map, as CARLA's leaderboard begins.

    python -m robo_bench.manager_starts [--starts 50] [--maps grid ring]

Each start is a client process of its own against one server: it makes cars that CARLA's Traffic Manager drives in synchronous
mode, and loads a map. A client that ends by a signal (a segmentation fault of its two threads) is counted.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass

import tyro

from robo_sims.carla.local_server import StandIn

LIMIT = 60.0
"""Time limit [s] for one client process."""
PROGRAM = """
import os, sys
import carla
port, map = int(sys.argv[1]), sys.argv[2]
client = carla.Client("127.0.0.1", port)
client.set_timeout(20.0)
world = client.get_world()
settings = world.get_settings()
settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
world.apply_settings(settings)
manager = client.get_trafficmanager(20000 + port % 10000)
manager.set_synchronous_mode(True)
world = client.load_world(map)
settings = world.get_settings()
settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
world.apply_settings(settings)
for _ in range(5):
    world.tick()
sys.stdout.write("done")
sys.stdout.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Starts:
    """Options of the command `python -m robo_bench.manager_starts`."""

    starts: int = 50
    """Number of client processes that are started."""
    maps: tuple[str, ...] = ("grid", "ring")
    """Names of the maps that the client processes load, one after the other."""


def count(settings: Starts) -> Counter[str]:
    """Return how the client processes ended: "done", "signal 11", "timeout" or "error 1"."""
    ends: Counter[str] = Counter()
    for number in range(settings.starts):
        name = settings.maps[number % len(settings.maps)]
        with StandIn(map=name) as server:
            command = [sys.executable, "-c", PROGRAM, str(server.port), name]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
            except subprocess.TimeoutExpired:
                ends["timeout"] += 1
                continue
        code = done.returncode
        ends["done" if done.stdout == "done" and not code else f"signal {-code}" if code < 0 else f"error {code}"] += 1
    return ends


def main() -> None:
    """Run the command."""
    settings = tyro.cli(Starts, description=__doc__)
    ends = count(settings)
    told = ", ".join(f"{number} {end}" for end, number in sorted(ends.items()))
    print(f"{settings.starts} starts: {told}")


if __name__ == "__main__":
    main()
