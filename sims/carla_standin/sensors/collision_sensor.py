"""Collision sensor: it reports every hit of its vehicle."""

from __future__ import annotations

import msgpack
from typing_extensions import override

from carla_standin.layouts import SensorType
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.sensor import Sensor


class Collision(Sensor):
    """Collision sensor: the hits of its parent in each step, with the other actor and the impulse."""

    kind = SensorType.COLLISION

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        """Return one encoded collision event for each hit since the last measurement."""
        hits = [hit for hit in world.hits if hit.actor.id == self.actor.parent]
        return [msgpack.packb([hit.actor.encoded(), hit.other.encoded(), list(hit.impulse)]) for hit in hits]
