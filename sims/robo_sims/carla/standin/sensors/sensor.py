"""What all sensors have: an actor that carries them, and a time when they measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from robo_sims.carla.standin import layouts
from robo_sims.carla.standin.actors import Actor
from robo_sims.carla.standin.layouts import SensorType
from robo_sims.carla.standin.responses import Refused

if TYPE_CHECKING:
    from robo_sims.carla.standin.world import World


class Sensor(ABC):
    """Measures, if anybody listens, every `sensor_tick` seconds."""

    kind: ClassVar[SensorType]

    def __init__(self, actor: Actor, world: World) -> None:
        self.actor = actor
        self.period = setting(actor, "sensor_tick", 0.0, 1e6) if "sensor_tick" in actor.attributes else 0.0
        self.due = world.clock.elapsed + self.period

    def serve(self, world: World) -> None:
        """Sends what it measures now."""
        clock = world.clock
        if not world.streams.is_heard(self.actor.stream) or clock.elapsed < self.due - 1e-6:
            return
        self.due += self.period
        for payload in self.measured(world):
            pose = world.bodies.motion[self.actor.row, :6]
            header = layouts.SENSOR_HEADER.pack(self.kind, clock.frame, clock.elapsed, *pose)
            world.streams.send(self.actor.stream, header, payload)

    @abstractmethod
    def measured(self, world: World) -> list[bytes | memoryview]:
        """Returns payloads; what is no copy is sent before the next is measured."""


def setting(actor: Actor, name: str, low: float, high: float) -> float:
    """Returns a number among a sensor's attributes; raises Refused where it is none or out of range."""
    text = actor.attributes[name]
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise Refused(f"{actor.type_id} has {name}={text!r}.", allowed=f"{low:g} to {high:g}")
    return value
