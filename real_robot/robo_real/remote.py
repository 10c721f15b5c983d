"""A robot behind `robo-rl robot serve`: its guard and watchdog run there, whatever becomes of this process."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import Scene
from robo_real.cameras import MOST_AGE, Frame, FreshFrames
from robo_real.clock import MonotonicClock
from robo_real.link import Link
from robo_real.server.robo_routes import PROTOCOL
from robo_rl.errors import RobotError, RobotUnavailable
from robo_rl.protocols.components import Robot
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Executed

TIMEOUT = 0.5
"""[s] of a call while the arm moves"""
RESET = 30.0
"""[s] for a scene to be as an episode begins, its first pictures included"""


class RemoteRobot(Robot, Scene):
    """Robot that another process serves, and the scene of the task there."""

    def __init__(self, url: str, *, owner: str = "", timeout: float | None = None) -> None:
        """Asks what robot it is, and takes nothing.

        owner: name of the holder, shown to others; this process by default. timeout: [s] of a call while the arm moves,
        TIMEOUT by default; what nothing moves for may take as long as any call of a Link.
        """
        self.link = Link(url)
        self._stop_link = Link(url)  # so that stopping waits for no other call
        self._timeout = TIMEOUT if timeout is None else timeout
        self._moves = False  # since the last command
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        version = self.link.json("/robo/version", method="GET")
        if version.get("protocol") != PROTOCOL:
            raise RobotUnavailable(
                f"The server at {url} speaks another protocol.", got=version.get("protocol"), allowed=PROTOCOL
            )
        self.is_simulated = bool(version.get("simulated", False))
        """whether nothing that is real moves"""
        self.clock = MonotonicClock(float(version["speed"]))
        self.spec = EnvironmentSpec.from_json(self.link.json("/robo/spec", method="GET"))
        self.mode, self.reason = "", ""
        self._lease = ""
        self._stamp = 0.0
        self._success: bool | None = None
        self._lock = threading.Lock()
        self._fresh = {
            name: FreshFrames(name, array.shape, MOST_AGE)
            for name, array in self.spec.observation.items()
            if array.role == "image"
        }

    @override
    def connect(self) -> None:
        """Take the lease; raises RobotBusy if another process has it. One that this process took before ends."""
        key = _key(os.getpid(), self._owner)
        self._lease = str(self.link.json("/robo/lease", {"owner": self._owner, "key": key})["lease"])

    def arm(self) -> None:
        """Allows motion; raises RobotStopped if a person must re-arm first."""
        self._leased("/robo/arm")

    @override
    def observe(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the newest measurement, pictures included; raises CameraStale if one is too old."""
        told = self._leased("/robo/observe")
        self._stamp = float(told["stamp"])
        self._success = told["success"]
        self.mode, self.reason = str(told["mode"]), str(told["reason"])
        found: dict[str, npt.NDArray[np.generic]] = {}
        for name, array in self.spec.observation.items():
            if name in self._fresh:
                found[name] = self._fresh[name].checked(self.frame(name), self._stamp)
            elif name in told["observation"]:
                found[name] = np.asarray(told["observation"][name], array.dtype)
        return found

    @property
    def cameras(self) -> list[str]:
        """Names of the cameras that the server has."""
        return [str(name) for name in self.link.json("/robo/health", method="GET")["cameras"]]

    def frame(self, name: str) -> Frame:
        """Returns a camera's newest picture as it is."""
        return self.link.frame(name, timeout=self._limit)

    @override
    def apply(self, action: npt.ArrayLike) -> Executed:
        wanted = self.spec.action.validate(action)
        self._moves = True
        told = self._leased("/robo/apply", action=np.asarray(wanted, np.float64).tolist(), answers=self._stamp)
        return Executed(np.asarray(told["executed"], np.float32), tuple(told["reasons"]))

    @override
    def pause(self) -> None:
        try:
            self._leased("/robo/pause")
        finally:  # the watchdog there holds it where this did not arrive
            self._moves = False

    def enable(self) -> None:
        """The person's hand is on the dead-man switch."""
        self._leased("/robo/enable")

    @override
    def stop(self, by: str = "") -> None:
        """Stop until a person re-arms; raises nothing: if the link is lost, the watchdog there stops the arm.

        by: who stops it and why, in words that the stopped robot shows; this process by default.
        """
        with contextlib.suppress(RobotError):
            self._stop_link.json("/robo/stop", {"by": by or self._owner}, timeout=self._timeout)
            self._moves = False

    @property
    def stops(self) -> int:
        """Number of stops so far, which a person has seen who looks at the robot now."""
        return int(self.link.json("/robo/health", method="GET")["stops"])

    def rearm(self, by: str, stops: int | None = None) -> None:
        """End the stops that a person has looked at; `arm` must follow before it moves.

        stops: number of stops when they looked, now by default. Raises RobotStopped if the robot was stopped since.
        """
        seen = self.stops if stops is None else stops
        with self._lock:
            self.link.json("/robo/rearm", {"by": by, "stops": seen})

    @override
    def reset(self, seed: int) -> None:
        self._moves = False
        with self._lock:
            self.link.json("/robo/scene/reset", {"lease": self._lease, "seed": seed}, timeout=RESET)

    @override
    def success(self) -> bool | None:
        """Returns whether the task was done by the newest observation."""
        return self._success

    @override
    def close(self) -> None:
        """Gives the lease back, which holds the arm still; closes the connections."""
        if self._lease:
            with contextlib.suppress(RobotError):
                self.link.json("/robo/release", {"lease": self._lease}, timeout=self._limit)
            self._lease = ""
        self.link.close()
        self._stop_link.close()

    @property
    def _limit(self) -> float | None:
        """[s] of a call now; None for that of the link."""
        return self._timeout if self._moves else None

    def _leased(self, path: str, **body: Any) -> dict[str, Any]:
        with self._lock:
            return self.link.json(path, {"lease": self._lease, **body}, timeout=self._limit)


@cache
def _key(process: int, owner: str) -> str:
    """Return the secret by which a server recognises an owner of this process; a forked process has others."""
    return secrets.token_hex(16)
