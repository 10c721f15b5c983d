"""The part of the world that sensors read."""

from __future__ import annotations

from typing import Protocol

from carla_standin.actors import Bodies
from carla_standin.attachments import Attachments
from carla_standin.clock import Clock
from carla_standin.collisions import Hit
from carla_standin.local_streams import Outlet
from carla_standin.maps.town import Town
from carla_standin.sensors.scene import Scene
from carla_standin.settings import Settings


class ObservedWorld(Protocol):
    """Part of `carla_standin.world.World` that sensors need."""

    clock: Clock
    streams: Outlet
    settings: Settings
    town: Town
    bodies: Bodies
    attachments: Attachments
    scene: Scene
    hits: list[Hit]
    """Hits of the present step."""
    lamps: dict[int, int]
    """Id of a vehicle -> flags of its lamps."""

    @property
    def step_seconds(self) -> float:
        """Duration [s] of the present simulation step."""

    def look(self) -> None:
        """Bring the boxes in `scene` to the present poses of the actors."""
