"""Base class of all sensors of the stand-in: it knows its actor and when its next measurement is due."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from carla_standin import layouts
from carla_standin.actors import Actor
from carla_standin.errors import Refused
from carla_standin.layouts import SensorType
from carla_standin.sensors.observed_world import ObservedWorld

FLAGS = {"true": True, "1": True, "false": False, "0": False}
"""Text of a yes-or-no attribute -> its value."""


class Sensor(ABC):
    """Base class of a sensor that measures every `sensor_tick` seconds while a client is subscribed to it."""

    kind: ClassVar[SensorType]

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        self.actor = actor
        self.period = setting(actor, "sensor_tick", 0.0, 1e6) if "sensor_tick" in actor.attributes else 0.0
        self.due: float | None = None
        """[s] Time of the next measurement; None before the first, which is immediate."""

    def serve(self, world: ObservedWorld) -> None:
        """Send the sensor's measurements if a client is subscribed and the next measurement is due."""
        clock = world.clock
        if not world.streams.is_heard(self.actor.stream) or not self._is_due(clock.elapsed):
            return
        for payload in self.measured(world):
            pose = world.bodies.motion[self.actor.row, :6]
            header = layouts.SENSOR_HEADER.pack(self.kind, clock.frame, clock.elapsed, *pose)
            world.streams.send(self.actor.stream, header, payload)

    def _is_due(self, now: float) -> bool:
        due = now if self.due is None else self.due
        if now < due - 1e-6:
            return False
        is_late = now - due > self.period  # without a subscriber: missed measurements are not made up for
        self.due = (now if is_late else due) + self.period
        return True

    @abstractmethod
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        """Return the payloads of one measurement.

        A payload may be a view into a buffer, because it is sent before the next measurement overwrites the buffer.
        """


def setting(actor: Actor, name: str, low: float, high: float) -> float:
    """Return a number among the attributes of a sensor's blueprint.

    Raises Refused if it is no number between `low` and `high`.
    """
    text = actor.attributes[name]
    try:
        value = float(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise Refused(f"{actor.type_id} has {name}={text!r}.", allowed=f"{low:g} to {high:g}")
    return value


def flag(actor: Actor, name: str) -> bool:
    """Return the boolean attribute `name` of a sensor's blueprint; raises Refused if its text is neither true nor false."""
    text = actor.attributes[name].lower()
    if text not in FLAGS:
        raise Refused(f"{actor.type_id} has {name}={text!r}.", allowed=", ".join(FLAGS))
    return FLAGS[text]
