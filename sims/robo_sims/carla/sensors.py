"""Sensors of the car that is driven; what they tell is matched by its frame."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.link import Link

WHERE = 1.3, 1.4
"""[m] of the camera: before the car's middle, above the ground."""


Hit = tuple[int, int, str]
"""Frame, and number and type of what was hit."""


class Hits:
    """Collisions of the car. An actor that runs into the standing car is not counted, nor is a contact that lasts."""

    TOUCHING = 2
    """[frames] without an event after which two do not touch any more."""

    def __init__(self, link: Link, vehicle: Any) -> None:
        events: queue.SimpleQueue[Hit] = queue.SimpleQueue()  # the sensor's thread holds it, and nothing else of this object
        self._events = events
        self._excused: dict[int, int] = {}
        """Actors that ran into the car while it stood, and when they touched it last."""
        sensor = link.attach(link.library.find("sensor.other.collision"), link.carla.Transform(), vehicle)
        sensor.listen(lambda event: events.put((event.frame, event.other_actor.id, event.other_actor.type_id)))

    def newest(self, *, stood: bool) -> str | None:
        """Returns the type of what was hit since the last call, or None; stood: whether the car did before this frame."""
        while not self._events.empty():
            frame, actor, kind = self._events.get()
            if stood or frame - self._excused.get(actor, -self.TOUCHING - 1) <= self.TOUCHING:
                self._excused[actor] = frame
            else:
                return kind
        return None


class FrontCamera:
    """A colour camera behind the windscreen."""

    def __init__(self, link: Link, vehicle: Any, size: int) -> None:
        self._pictures: queue.SimpleQueue[Any] = queue.SimpleQueue()
        blueprint = link.library.find("sensor.camera.rgb")
        for name in ("image_size_x", "image_size_y"):
            blueprint.set_attribute(name, str(size))
        carla = link.carla
        pose = carla.Transform(carla.Location(x=WHERE[0], z=WHERE[1]))
        link.attach(blueprint, pose, vehicle).listen(self._pictures.put)

    def picture(self, frame: int, patience: float) -> npt.NDArray[np.uint8]:
        """Returns the picture (H, W, 3) RGB of a frame; raises ServerUnavailable if it does not come."""
        while True:
            try:
                image = self._pictures.get(timeout=patience)
            except queue.Empty:
                raise ServerUnavailable("A picture of the camera does not come.", got=f"none of frame {frame}") from None
            if image.frame >= frame:
                shape = image.height, image.width, 4
                return np.frombuffer(image.raw_data, np.uint8).reshape(shape)[:, :, 2::-1].copy()
