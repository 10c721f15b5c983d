"""A twin at fault, and a link at fault: what the arm measures, does and shows, and what becomes of requests, on command."""

import math
import random
from dataclasses import dataclass, replace

import numpy as np

from robo_real.arm import Hold
from robo_rl.system.timed_http import NoResponse, TimedClient


@dataclass(frozen=True)
class Faults:
    """Faults of arm and cameras; all are off by default."""

    freeze: bool = False
    """constant measurements with constant stamps"""
    repeat: bool = False
    """constant measurements with new stamps"""
    corrupt: bool = False
    """NaN in the measurements"""
    jump: float = 0.0
    """[m] offset of the measured hand"""
    reflex: bool = False
    """stop of the arm itself, as after a collision, until its error is cleared"""
    push: float = 0.0
    """[N] offset of the measured force along z"""
    camera_freeze: bool = False
    """no new pictures"""
    camera_size: int = 0
    """[pixel] wrong width and height of the pictures; 0 for none"""
    camera_swap: bool = False
    """each camera's pictures come from the next one, as with swapped plugs"""


class FaultyTwin:
    """Driver and scene of a twin whose measurements, motions and pictures are at fault on command."""

    def __init__(self, twin):
        self.twin, self.faults = twin, Faults()
        self._is_in_reflex, self._frozen, self._pushed, self._pictures = False, None, 0.0, {}

    def __getattr__(self, name):
        return getattr(self.__dict__["twin"], name)

    def inject(self, faults):
        """Replace the faults; a reflex is an event, and stays until it is cleared."""
        self.twin.hold() if faults.reflex else self.twin.read()  # up to now it is as before
        self._is_in_reflex |= faults.reflex
        self._pictures = {name: self.twin.newest(name) for name in self.twin.cameras} if faults.camera_freeze else {}
        self.faults, self._frozen = faults, None

    def attach(self, set_points):
        self.twin.attach(_FaultySetPoints(self, set_points))

    def read(self):
        return self.shown(self.twin.read())

    def move(self, target):
        if not self._is_in_reflex:
            self.twin.move(target)

    def recover(self):
        self._is_in_reflex = False

    def tare(self):
        self.twin.tare()
        self._pushed = self.faults.push

    def reset(self, seed):
        self._is_in_reflex = False
        self.twin.reset(seed)

    def newest(self, camera):
        names = self.twin.cameras
        plugged = names[names.index(camera) - 1] if self.faults.camera_swap else camera
        frame = self._pictures.get(plugged) or self.twin.newest(plugged)
        size = self.faults.camera_size
        return replace(frame, picture=np.resize(frame.picture, (size, size, 3))) if size else frame

    def shown(self, state):
        """Return a measurement, faults included."""
        faults = self.faults
        if faults.freeze or faults.repeat:
            self._frozen = self._frozen or self._measured(state)
            return self._frozen if faults.freeze else replace(self._frozen, stamp=state.stamp)
        return self._measured(state)

    def obeys(self, point):
        """Return whether the arm follows a set point."""
        return not self._is_in_reflex or isinstance(point, Hold)

    def _measured(self, state):
        faults = self.faults
        return replace(
            state,
            position=np.add(state.position, [faults.jump, 0.0, 0.0]),
            force=np.add(state.force, [0.0, 0.0, faults.push - self._pushed]),
            joint_position=np.full_like(state.joint_position, np.nan) if faults.corrupt else state.joint_position,
            fault="reflex" if self._is_in_reflex else state.fault,
        )


class _FaultySetPoints:
    """Set points of a guarded arm, judged by what a twin at fault shows, and followed as far as it obeys."""

    def __init__(self, arm, set_points):
        self._arm, self._set_points = arm, set_points

    def tick(self, state, now):
        point = self._set_points.tick(self._arm.shown(state), now)
        return point if self._arm.obeys(point) else None

    def displaced(self):
        self._set_points.displaced()


class FaultyLink:
    """Connections of this process to robots' servers."""

    latency = 0.0
    """[s] delay of each answer"""
    jitter = 0.0
    """[s] maximum of an additional random delay"""
    is_cut = False
    """no request arrives"""

    def __init__(self):
        self.clock, self._lost_until = None, -math.inf

    def lose(self, seconds):
        """Let no request arrive for a while [s]."""
        self._lost_until = self.clock.now() + seconds

    def client(self):
        return _FaultyClient(self)

    def travel(self):
        """Take half of the time of a request and its answer; raises NoResponse if there is no connection."""
        if self.is_cut or (self.clock and self.clock.now() < self._lost_until):
            raise NoResponse("the link is down")
        if self.latency or self.jitter:
            self.clock.sleep((self.latency + random.uniform(0, self.jitter)) / 2)


class _FaultyClient(TimedClient):
    def __init__(self, link):
        super().__init__()
        self._link = link

    def request(self, *arguments, **options):
        self._link.travel()
        answer = super().request(*arguments, **options)
        self._link.travel()
        return answer
