"""The event camera: pixels that became brighter or darker, with times."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from carla_standin.actors import Actor
from carla_standin.layouts import DVS_EVENT, IMAGE_HEADER, SensorType
from carla_standin.sensors.cameras import RgbCamera
from carla_standin.sensors.observed_world import ObservedWorld
from carla_standin.sensors.sensor import flag, setting

Floats = npt.NDArray[np.float64]
GREY = np.array([0.114, 0.587, 0.299])
"""Weights of blue, green and red with which a colour becomes a brightness."""
NANOSECOND = 1e-9
FINEST = {True: 0.01, False: 1.0}
"""Smallest threshold, of the logarithm of brightness and of brightness from 0 to 255: each step is an event."""


class EventCamera(RgbCamera):
    """Event camera: one event for each change of a pixel's brightness by a threshold; no message without events."""

    kind = SensorType.DVS

    def __init__(self, actor: Actor, world: ObservedWorld) -> None:
        super().__init__(actor, world)
        signs, is_log = ("positive", "negative"), flag(actor, "use_log")
        self.finest = FINEST[is_log]
        self.thresholds = [setting(actor, f"{sign}_threshold", self.finest, 1e6) for sign in signs]
        self.sigmas = [setting(actor, f"sigma_{sign}_threshold", 0, 1e6) for sign in signs]
        self.pause = setting(actor, "refractory_period_ns", 0, 1e18)
        self.offset = setting(actor, "log_eps", 1e-9, 1e6) if is_log else None
        self.random = np.random.default_rng([actor.place])
        self.reference: Floats | None = None
        """Brightness (H, W) of each pixel at its last event; None before the first picture."""
        self.before: tuple[Floats, float] | None = None
        """Brightness in the last picture, and its time [s]."""
        self.last = np.full(self.labels.shape, -np.inf)
        """Time [ns] of each pixel's last event, (H, W)."""

    @override
    def measured(self, world: ObservedWorld) -> list[bytes | memoryview]:
        """Return the events since the last picture, in the order of time."""
        now = world.clock.elapsed
        if not super().measured(world):
            return []
        bright = self.picture[..., :3] @ GREY
        if self.offset is not None:
            bright = np.log(self.offset + bright / 255.0)
        before, self.before = self.before, (bright, now)
        if before is None or self.reference is None:
            self.reference = bright.copy()
            return []
        events = self._events(before, bright, now)
        camera = self.camera
        header = IMAGE_HEADER.pack(camera.width, camera.height, camera.fov)
        return [header + np.sort(events, order=["t", "y", "x"]).tobytes()] if len(events) else []

    def _events(self, before: tuple[Floats, float], bright: Floats, now: float) -> npt.NDArray[np.void]:
        (was, then), reference = before, self.reference
        assert reference is not None
        found = [np.zeros(0, DVS_EVENT)]
        for sign, threshold, sigma in zip((1.0, -1.0), self.thresholds, self.sigmas, strict=True):
            step = np.full(bright.shape, threshold)
            if sigma:
                step = np.maximum(step + sigma * self.random.standard_normal(bright.shape), self.finest)
            while (crossed := sign * (bright - reference) >= step).any():
                rows, columns = np.nonzero(crossed)
                reference[crossed] += sign * step[crossed]
                change = bright[crossed] - was[crossed]
                share = np.clip((reference[crossed] - was[crossed]) / np.where(change == 0.0, 1.0, change), 0.0, 1.0)
                time = np.rint((then + share * (now - then)) / NANOSECOND)
                is_sent = time - self.last[crossed] >= self.pause
                rows, columns, time = rows[is_sent], columns[is_sent], time[is_sent]
                self.last[rows, columns] = time
                events = np.empty(len(time), DVS_EVENT)
                events["x"], events["y"], events["t"], events["pol"] = columns, rows, time, sign > 0
                found.append(events)
        return np.concatenate(found)
