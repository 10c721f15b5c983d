"""Client of a robot behind `robo-rl robot serve`; guard and watchdog run in the server, even if this process dies."""

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
from robo_real.http_client import RobotClient
from robo_real.server.robo_routes import PROTOCOL
from robo_real.tare import Tare
from robo_rl.errors import RobotError, RobotUnavailable
from robo_rl.protocols.components import Robot
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Executed

TIMEOUT = 0.5
"""[s] longest time of a call while the arm moves"""
RESET = 30.0
"""[s] longest time of the reset of a scene, including its first pictures"""


class RemoteRobot(Robot, Scene):
    """Robot and scene that another process serves, over HTTP."""

    def __init__(self, url: str, *, owner: str = "", timeout: float | None = None) -> None:
        """Read version and spec from the server, without taking the lease.

        Args:
            url: Address of the server, such as http://127.0.0.1:5000.
            owner: Public name of the owner of the lease; by default the name of this process.
            timeout: [s] Longest time of a call while the arm moves; None for TIMEOUT. Other calls have the timeout of a
                RobotClient.

        Raises:
            RobotUnavailable: No robot's server answers there, or it speaks another protocol.
        """
        self.client = RobotClient(url)
        self._stop_client = RobotClient(url)  # a stop must not wait for another call
        self._timeout = TIMEOUT if timeout is None else timeout
        self._moves = False  # since the last command
        self._owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        version = self.client.json("/robo/version", method="GET")
        if version.get("protocol") != PROTOCOL:
            raise RobotUnavailable(
                f"The server at {url} speaks another protocol.", got=version.get("protocol"), allowed=PROTOCOL
            )
        self.is_simulated = bool(version.get("simulated", False))
        """True if the robot is a simulation"""
        self.clock = MonotonicClock(float(version["speed"]))
        self.spec = EnvironmentSpec.from_json(self.client.json("/robo/spec", method="GET"))
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
        """Take the lease, which ends an older lease of this process; raises RobotBusy if another process holds the lease."""
        key = _key(os.getpid(), self._owner)
        self._lease = str(self.client.json("/robo/lease", {"owner": self._owner, "key": key})["lease"])

    def arm(self) -> None:
        """Allow motion; raises RobotStopped if a person must re-arm first."""
        self._leased("/robo/arm")

    @override
    def observe(self) -> dict[str, npt.NDArray[np.generic]]:
        """Return the newest observation, pictures included; raises CameraFault if a picture is too old or of another size."""
        answer = self._leased("/robo/observe")
        self._stamp = float(answer["stamp"])
        self._success = answer["success"]
        self.mode, self.reason = str(answer["mode"]), str(answer["reason"])
        found: dict[str, npt.NDArray[np.generic]] = {}
        for name, array in self.spec.observation.items():
            if name in self._fresh:
                found[name] = self._fresh[name].checked(self.frame(name), self._stamp)
            elif name in answer["observation"]:
                found[name] = np.asarray(answer["observation"][name], array.dtype)
        return found

    @property
    def measured_at(self) -> float:
        """Stamp [s] of the newest observation, by the server's clock."""
        return self._stamp

    @property
    def cameras(self) -> list[str]:
        """Names of the server's cameras."""
        return [str(name) for name in self.client.json("/robo/health", method="GET")["cameras"]]

    @property
    def picture_ages(self) -> list[float]:
        """Age [s] of every picture that was observed so far, of all cameras."""
        return [age for fresh in self._fresh.values() for age in fresh.ages]

    def frame(self, name: str) -> Frame:
        """Return a camera's newest picture without a check of its age."""
        return self.client.frame(name, timeout=self._limit)

    @override
    def apply(self, action: npt.ArrayLike) -> Executed:
        wanted = self.spec.action.validate(action)
        self._moves = True
        answer = self._leased("/robo/apply", action=np.asarray(wanted, np.float64).tolist(), answers=self._stamp)
        return Executed(np.asarray(answer["executed"], np.float32), tuple(answer["reasons"]))

    def judge(self, action: npt.ArrayLike) -> Executed:
        """Return the command that `apply` would execute; nothing is sent to the arm (GuardedArm.judge)."""
        wanted = np.asarray(self.spec.action.validate(action), np.float64)
        answer = self._leased("/robo/judge", action=wanted.tolist(), answers=self._stamp)
        return Executed(np.asarray(answer["executed"], np.float32), tuple(answer["reasons"]))

    def tare(self) -> Tare:
        """Zero the force sensor of a standing arm that touches nothing; raises RobotError if it moves or is in contact."""
        return Tare(**self._leased("/robo/tare"))

    @override
    def pause(self) -> None:
        try:
            self._leased("/robo/pause")
        finally:  # if this did not arrive, the server's watchdog holds the arm
            self._moves = False

    def enable(self) -> None:
        """Report that the dead-man switch is pressed."""
        self._leased("/robo/enable")

    @override
    def stop(self, by: str = "") -> None:
        """Stop the arm until a person re-arms. Raises nothing: without a connection the server's watchdog stops the arm.

        by: origin and reason of the stop, which the robot shows; by default the name of this process.
        """
        with contextlib.suppress(RobotError):
            self._stop_client.json("/robo/stop", {"by": by or self._owner}, timeout=self._timeout)
            self._moves = False

    @property
    def stops(self) -> int:
        """Number of stop requests and faults so far, requested from the server."""
        return int(self.client.json("/robo/health", method="GET")["stops"])

    def rearm(self, by: str, stops: int | None = None) -> None:
        """Clear the stops that a person has seen; `arm` must follow before a motion.

        Args:
            by: Name of the person, for the robot's log.
            stops: Value of `stops` when the person looked at the robot; None for the present value.

        Raises:
            RobotStopped: There was another stop since.
        """
        seen = self.stops if stops is None else stops
        with self._lock:
            self.client.json("/robo/rearm", {"by": by, "stops": seen})

    @override
    def reset(self, seed: int) -> None:
        self._moves = False
        with self._lock:
            self.client.json("/robo/scene/reset", {"lease": self._lease, "seed": seed}, timeout=RESET)

    @override
    def success(self) -> bool | None:
        return self._success

    @override
    def close(self) -> None:
        """Release the lease and close the connections; the server then holds the arm in place."""
        if self._lease:
            with contextlib.suppress(RobotError):
                self.client.json("/robo/release", {"lease": self._lease}, timeout=self._limit)
            self._lease = ""
        self.client.close()
        self._stop_client.close()

    @property
    def _limit(self) -> float | None:
        """Timeout [s] of a call now; None for the client's default."""
        return self._timeout if self._moves else None

    def _leased(self, path: str, **body: Any) -> dict[str, Any]:
        with self._lock:
            return self.client.json(path, {"lease": self._lease, **body}, timeout=self._limit)


@cache
def _key(process: int, owner: str) -> str:
    """Return the secret that identifies an owner of this process to a server; a forked process has another one."""
    return secrets.token_hex(16)
