"""What a client can call, by topic; `table` has all of it."""

from __future__ import annotations

from collections.abc import Callable

from robo_sims.carla.standin.calls import actors, batches, episodes, lights
from robo_sims.carla.standin.host import Host


def table(host: Host) -> dict[str, Callable[..., object]]:
    """Returns name -> call."""
    return {**episodes.calls(host), **actors.calls(host), **batches.calls(host), **lights.calls(host)}
