"""Sensors of the ego vehicle; measurements are matched by frame number."""

from __future__ import annotations

import queue
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import ServerUnavailable
from robo_sims.carla.session import Session

MOUNT = 1.3, 1.4
"""[m] camera position: ahead of the car's middle, above the ground."""

Hit = tuple[int, int, str]
"""Frame, and id and type of the hit actor."""


class Hits(Protocol):
    """Collisions of the ego vehicle."""

    def newest(self, *, stood: bool) -> str | None:
        """Return the type of an actor that the ego vehicle hit since the last call, None if it hit nothing.

        stood: True if the ego vehicle stood before this frame.
        """


class NoHits(Hits):
    """No collision ever: another program counts them."""

    def newest(self, *, stood: bool) -> str | None:
        """Return None, since no collision is detected here."""
        return None


class Camera(Protocol):
    """Front camera of the ego vehicle."""

    def picture(self, frame: int, patience: float) -> npt.NDArray[np.uint8]:
        """Return the RGB picture (H, W, 3) of a frame; raises ServerUnavailable after `patience` [s]."""


class CollisionSensor(Hits):
    """Collisions of the ego vehicle.

    A contact that lasts counts once, and an actor that runs into the standing car does not count.
    """

    TOUCHING = 2
    """Number of frames without a collision event after which a contact counts as ended."""

    def __init__(self, session: Session, vehicle: Any) -> None:
        events: queue.SimpleQueue[Hit] = queue.SimpleQueue()  # the sensor's thread keeps only the queue alive
        self._events = events
        self._excused: dict[int, int] = {}
        """Actor that ran into the standing car -> frame of the last contact."""
        sensor = session.attach(session.library.find("sensor.other.collision"), session.carla.Transform(), vehicle)
        sensor.listen(lambda event: events.put((event.frame, event.other_actor.id, event.other_actor.type_id)))

    def newest(self, *, stood: bool) -> str | None:
        """Return the type of an actor that the ego vehicle hit since the last call, None if it hit nothing that counts.

        stood: True if the ego vehicle stood before this frame; moving actors that ran into it then do not count.
        """
        while not self._events.empty():
            frame, actor, kind = self._events.get()
            if stood or frame - self._excused.get(actor, -self.TOUCHING - 1) <= self.TOUCHING:
                self._excused[actor] = frame
            else:
                return kind
        return None


class FrontCamera(Camera):
    """A colour camera behind the windscreen."""

    def __init__(self, session: Session, vehicle: Any, size: int) -> None:
        self._pictures: queue.SimpleQueue[Any] = queue.SimpleQueue()
        blueprint = session.library.find("sensor.camera.rgb")
        for name in ("image_size_x", "image_size_y"):
            blueprint.set_attribute(name, str(size))
        carla = session.carla
        pose = carla.Transform(carla.Location(x=MOUNT[0], z=MOUNT[1]))
        session.attach(blueprint, pose, vehicle).listen(self._pictures.put)

    def picture(self, frame: int, patience: float) -> npt.NDArray[np.uint8]:
        """Return the RGB picture (H, W, 3) of a frame; raises ServerUnavailable after `patience` [s]."""
        while True:
            try:
                image = self._pictures.get(timeout=patience)
            except queue.Empty:
                raise ServerUnavailable("A picture of the camera does not come.", got=f"none of frame {frame}") from None
            if image.frame >= frame:
                shape = image.height, image.width, 4
                return np.frombuffer(image.raw_data, np.uint8).reshape(shape)[:, :, 2::-1].copy()
