"""Remote calls of clients, by topic."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.calls import actors, batches, episodes, lights, motion, parts, scene_queries, unsupported
from carla_standin.host import Host


def table(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary of all remote calls: name -> function that carries it out."""
    topics = unsupported, episodes, actors, motion, parts, scene_queries, batches, lights
    return {name: call for topic in topics for name, call in topic.calls(host).items()}
