"""Calls of a client by topic; `table` has all of them."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.calls import absent, actors, batches, episodes, lights, motion, parts, probing
from carla_standin.host import Host


def table(host: Host) -> dict[str, Callable[..., object]]:
    """Returns name -> call."""
    topics = absent, episodes, actors, motion, parts, probing, batches, lights
    return {name: call for topic in topics for name, call in topic.calls(host).items()}
