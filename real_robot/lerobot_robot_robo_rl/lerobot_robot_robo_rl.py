"""LeRobot plugin: a robot served by `robo-rl robot serve` as a LeRobot `Robot`, for lerobot-record, -replay and -teleoperate.

Guard, watchdog and lease stay in the server. Observations and actions have the names and units of datasets that
`robo-rl data convert --to lerobot` exports: numbers `joint_position.0`, ..., pictures `camera_front`, ..., actions in [-1, 1].
So a policy that LeRobot trained on such a dataset can drive the robot. Objects, goals and privileged entries are left out.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from lerobot.robots import Robot, RobotConfig
from lerobot.utils.errors import DeviceAlreadyConnectedError, DeviceNotConnectedError

PROTOCOL = 1
"""version of the server's routes"""
TIMEOUT, SCENE_TIMEOUT = 2.0, 30.0
"""[s] longest time of a call, and of a reset of a simulated scene"""
MOST_AGE = 0.5
"""[s] largest age of a picture, by the robot's clock"""
PAUSE = 0.3
"""[s] without an action after which the arm is paused, as between two episodes; a longer silence would stop it until a person
re-arms it"""
RENEW = 1.0
"""[s] between two requests that renew the lease while the arm is paused. A lease lasts 5 s, but LeRobot may encode a film for
minutes"""
GRIPPER_CLOSES, GRIPPER_OPENS = 0, 2
"""commands to the gripper of LeRobot's gamepad and keyboard; 1 leaves the gripper as it is"""
GRIPPER = "gripper_opening"
DELTAS = {"delta_x": "dx", "delta_y": "dy", "delta_z": "dz"}


@RobotConfig.register_subclass("robo_rl")
@dataclass
class RoboRLConfig(RobotConfig):
    """LeRobot's config of a robot that `robo-rl robot serve` serves."""

    url: str = "http://127.0.0.1:5000"
    """address that `robo-rl robot serve` printed"""
    actions: str = "normalized"
    """normalized for actions of the robot itself, in [-1, 1]; delta for actions of LeRobot's gamepad and keyboard_ee"""
    scene_seed: int | None = None
    """seed with which a simulated scene is reset on connecting; None for no reset"""

    def __post_init__(self) -> None:
        super_init = getattr(super(), "__post_init__", None)
        if super_init is not None:
            super_init()
        if self.actions not in ("normalized", "delta"):
            raise ValueError(f"actions is {self.actions!r}; allowed: normalized, delta")


class RoboRL(Robot):
    """LeRobot `Robot` that moves a robot served by `robo-rl robot serve`."""

    config_class = RoboRLConfig
    name = "robo_rl"

    def __init__(self, config: RoboRLConfig) -> None:
        super().__init__(config)
        self.config = config
        self._server = _Server(config.url)
        self._lease = ""
        self._stamp = 0.0
        self._opening = 0.0
        self._sent_at: float | None = None  # None while the arm is paused
        self._lock = threading.Lock()
        self._done = threading.Event()

    @cached_property
    def _spec(self) -> dict[str, Any]:
        version = self._server.json("GET", "/robo/version")
        if version.get("protocol") != PROTOCOL:
            raise ConnectionError(f"{self.config.url} speaks protocol {version.get('protocol')}; this plugin speaks {PROTOCOL}")
        return self._server.json("GET", "/robo/spec")

    @property
    def _vectors(self) -> dict[str, int]:
        """Name -> size of the arm's measurements."""
        arrays = self._spec["observation"]["arrays"]
        return {a["name"]: int(np.prod(a["shape"])) for a in arrays if a["role"] == "proprioception"}

    @property
    def cameras(self) -> dict[str, tuple[int, ...]]:
        """Name of a camera -> shape (H, W, 3) of its pictures, as LeRobot expects this property."""
        return {a["name"]: tuple(a["shape"]) for a in self._spec["observation"]["arrays"] if a["role"] == "image"}

    @cached_property
    def observation_features(self) -> dict[str, Any]:
        """Name -> float, or the shape (H, W, 3) of a picture; requested from the server once."""
        return {f"{name}.{index}": float for name, size in self._vectors.items() for index in range(size)} | self.cameras

    @cached_property
    def action_features(self) -> dict[str, type]:
        """Name of each element of an action -> float; requested from the server once."""
        if self.config.actions == "delta":
            return dict.fromkeys((*DELTAS, "gripper"), float)
        return dict.fromkeys(self._spec["action"]["names"], float)

    @property
    def is_connected(self) -> bool:
        """True while this robot holds the lease."""
        return bool(self._lease)

    @property
    def is_calibrated(self) -> bool:
        """True, since the server's driver needs no calibration by LeRobot."""
        return True

    def connect(self, calibrate: bool = True) -> None:
        """Take the lease and allow motion; raises ConnectionError if another owner has it or a person must re-arm first."""
        if self._lease:
            raise DeviceAlreadyConnectedError(f"{self} is already connected")
        owner = f"lerobot {socket.gethostname()}:{os.getpid()}"
        body = {"owner": owner, "key": secrets.token_hex(16)}
        self._lease = str(self._server.json("POST", "/robo/lease", body)["lease"])
        try:
            if self.config.scene_seed is not None:
                self._post("/robo/scene/reset", timeout=SCENE_TIMEOUT, seed=self.config.scene_seed)
            self._post("/robo/arm")
            self._opening = self.get_observation().get(f"{GRIPPER}.0", 0.0)
        except BaseException:
            self.disconnect()
            raise
        self._done.clear()
        threading.Thread(target=self._pause_between_episodes, daemon=True).start()

    def calibrate(self) -> None:
        """Do nothing."""

    def configure(self) -> None:
        """Do nothing: the server is configured where it is started."""

    def get_observation(self) -> dict[str, Any]:
        """Return name -> number of the measurements, and name -> newest picture; raises ConnectionError if one is too old."""
        self._require_connection()
        with self._lock:
            answer = self._server.json("POST", "/robo/observe", {"lease": self._lease})
            self._stamp = float(answer["stamp"])
            found: dict[str, Any] = {}
            for name in self._vectors:
                values = np.asarray(answer["observation"][name], np.float64).reshape(-1)
                found |= {f"{name}.{index}": float(value) for index, value in enumerate(values)}
            for name, shape in self.cameras.items():
                found[name] = self._server.picture(name, shape, self._stamp)
            return found

    def send_action(self, action: dict[str, Any]) -> dict[str, Any]:
        """Send an action, which passes the guard, and return the executed action.

        Args:
            action: Name -> number, with the names of `action_features`.

        Returns:
            The executed action, with the same names.

        Raises:
            ValueError: The action lacks an element.
            ConnectionError: The server does not answer, or refuses the action.
        """
        self._require_connection()
        wanted = self._from_delta(action) if self.config.actions == "delta" else action
        names = self._spec["action"]["names"]
        if missing := [name for name in names if name not in wanted]:
            raise ValueError(f"the action lacks {', '.join(missing)}; the robot takes {', '.join(self.action_features)}")
        numbers = [float(wanted[name]) for name in names]
        with self._lock:
            answer = self._post("/robo/apply", action=numbers, answers=self._stamp)
            self._sent_at = time.monotonic()
        executed = dict(zip(names, map(float, answer["executed"]), strict=True))
        if self.config.actions == "normalized":
            return executed
        return {name: executed[own] for name, own in DELTAS.items()} | {"gripper": float(action.get("gripper", 1))}

    def disconnect(self) -> None:
        """Release the lease; the server then holds the arm in place."""
        if not self._lease:
            raise DeviceNotConnectedError(f"{self} is not connected")
        self._done.set()
        with self._lock:
            with contextlib.suppress(ConnectionError):  # without a connection the server's watchdog holds the arm
                self._post("/robo/release")
            self._lease, self._sent_at = "", None
            self._server.close()

    def _from_delta(self, action: dict[str, Any]) -> dict[str, float]:
        """Return the robot's action for an action of LeRobot's gamepad or keyboard.

        The hand does not turn. The gripper is closed, opened or left as it is.
        """
        names, low, high = (self._spec["action"][key] for key in ("names", "low", "high"))
        found = dict.fromkeys(names, 0.0) | {own: float(action[name]) for name, own in DELTAS.items()}
        if GRIPPER in names:
            least, most = (limits[names.index(GRIPPER)] for limits in (low, high))
            wanted = {GRIPPER_CLOSES: least, GRIPPER_OPENS: most}
            self._opening = wanted.get(int(action.get("gripper", 1)), self._opening)
            found[GRIPPER] = min(max(2 * (self._opening - least) / (most - least) - 1, -1.0), 1.0)
        return found

    def _pause_between_episodes(self) -> None:
        """Pause the arm while LeRobot encodes, waits or resets, and keep its lease."""
        renewed = time.monotonic()
        while not self._done.wait(PAUSE / 3):
            with self._lock, contextlib.suppress(ConnectionError):
                now = time.monotonic()
                if not self._lease:
                    continue
                if self._sent_at is not None and now - self._sent_at > PAUSE:
                    self._sent_at, renewed = None, now
                    self._post("/robo/pause")
                elif self._sent_at is None and now - renewed > RENEW:
                    renewed = now
                    self._post("/robo/observe")  # which moves nothing, and is not logged

    def _post(self, path: str, *, timeout: float = TIMEOUT, **body: Any) -> dict[str, Any]:
        return self._server.json("POST", path, {"lease": self._lease, **body}, timeout)

    def _require_connection(self) -> None:
        if not self._lease:
            raise DeviceNotConnectedError(f"{self} is not connected; call connect() first")


class _Server:
    """HTTP client of the robot's server with one connection. No request is repeated: a motion may have begun."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a robot; allowed: http://HOST:PORT")
        self._url, self._address = url, (parts.hostname, parts.port or 80)
        self._connection: http.client.HTTPConnection | None = None

    def json(self, method: str, path: str, body: dict[str, Any] | None = None, timeout: float = TIMEOUT) -> dict[str, Any]:
        """Send a request and return the answer's JSON; raises ConnectionError with the server's words if it refuses."""
        content = self._request(method, path, body, timeout)[1]
        found = json.loads(content)
        if not isinstance(found, dict):
            raise ConnectionError(f"{self._url}{path} answers no JSON object; is it a robot's server?")
        return found

    def picture(self, name: str, shape: tuple[int, ...], now: float) -> np.ndarray:
        """Return a camera's newest picture; raises ConnectionError if it is old or of another size. now: [s] of the robot."""
        headers, content = self._request("GET", f"/robo/camera/{name}", None, TIMEOUT)
        found = tuple(int(side) for side in headers["X-Robo-Shape"].split(","))
        age = now - float(headers["X-Robo-Stamp"])
        if found != shape or age > MOST_AGE:
            raise ConnectionError(f"the picture of {name} is {age:.2f} s old, {found}; allowed: {MOST_AGE} s, {shape}")
        return np.frombuffer(content, np.uint8).reshape(shape)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> tuple[Any, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._address)
        self._connection.timeout = timeout
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        content = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if token := os.environ.get("ROBO_RL_ROBOT_TOKEN"):
            headers["X-Robo-Token"] = token
        try:
            self._connection.request(method, path, content, headers)
            answer = self._connection.getresponse()
            found = answer.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise ConnectionError(f"{self._url}{path} gives no answer: {why}; does `robo-rl robot serve` run there?") from None
        if answer.status != http.HTTPStatus.OK:
            raise ConnectionError(self._refusal(path, answer.status, found))
        return answer.headers, found

    def _refusal(self, path: str, status: int, content: bytes) -> str:
        facts: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            facts = json.loads(content)
        if status == http.HTTPStatus.LOCKED:
            fix = f"look at the robot, then robo-rl robot rearm {self._url}"
            return f"the robot is {facts.get('mode')}: {facts.get('reason')}; {fix}"
        return f"{self._url}{path} refuses: {facts.get('message', f'status {status}')}"
