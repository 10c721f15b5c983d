"""Two-finger Robotiq grippers at a Universal Robot, through the socket server of Robotiq's URCap (port 63352).

The server takes lines of ASCII: `SET POS 128 SPE 255 FOR 0 GTO 1` is answered by `ack`, `GET POS` by `POS 128`. Positions are 0
(open) to 255 (closed). One thread does all input and output, so that the control loop never waits for the gripper.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from robo_rl.errors import RobotUnavailable, require_allowed

PORT = 63352
PERIOD = 0.02
"""Period [s] of the exchange of messages with the gripper."""
ACTIVATION = 10.0
"""[s] longest time of an activation, in which the fingers open and close once"""
RESET, ACTIVE = 0, 3
"""values of the gripper's status STA"""
FAULTS = {
    5: "gripper: action delayed, it is being activated",
    7: "gripper: not activated",
    8: "gripper: too hot",
    9: "gripper: no communication for a second",
    10: "gripper: low voltage",
    11: "gripper: automatic release in progress",
    12: "gripper: internal fault",
    13: "gripper: activation fault",
    14: "gripper: overcurrent",
    15: "gripper: automatic release completed",
}
"""fault code FLT -> name; faults with codes from 8 on need a new activation"""


@dataclass(frozen=True)
class RobotiqOptions:
    """Options of a two-finger Robotiq gripper."""

    stroke: float = 0.085
    """[m] opening when fully open, above 0, to 0.5: 0.085 for a 2F-85, 0.14 for a 2F-140, 0.05 for a Hand-E"""
    speed: float = 1.0
    """speed of the fingers as a share of the gripper's range, 0 to 1; 0 is the lowest speed, not none"""
    force: float = 0.0
    """force of the grip as a share of the gripper's range, 0 to 1; 0 is the least force, not none"""
    timeout: float = 1.0
    """[s] longest wait for an answer, above 0, to 20"""

    def __post_init__(self) -> None:
        allowed = {
            "stroke": (0 < self.stroke <= 0.5, "above 0, to 0.5 [m]"),
            "speed": (0 <= self.speed <= 1, "0 to 1"),
            "force": (0 <= self.force <= 1, "0 to 1"),
            "timeout": (0 < self.timeout <= 20, "above 0, to 20 [s]"),
        }
        require_allowed(self, allowed)


class Robotiq:
    """Gripper that moves to its newest target; `connect` opens the link and starts the thread."""

    def __init__(self, address: str, options: RobotiqOptions | None = None, port: int = PORT) -> None:
        self._address, self._options = (address, port), options or RobotiqOptions()
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._target: int | None = None
        self._sent: int | None = None
        self._position, self._fault, self._read_at = 0, 0, 0.0
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """Open the link. If the gripper is not active, activate it: the fingers open and close once.

        Raises RobotUnavailable if the gripper does not answer or cannot be activated.
        """
        if self._thread is not None:
            return
        with self._unavailable_if_it_fails("does not answer"):
            self._socket = socket.create_connection(self._address, self._options.timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._activate()
            self._read()
        self._closing.clear()
        self._thread = threading.Thread(target=self._exchange, name="gripper", daemon=True)
        self._thread.start()

    @property
    def opening(self) -> float:
        """Newest measured distance [m] between the fingers; raises RobotUnavailable if the link is lost."""
        self._require_link()
        return self._options.stroke * (1.0 - self._position / 255)

    @property
    def fault(self) -> str | None:
        """Fault that the gripper itself reports, in words; None while the gripper works."""
        return FAULTS.get(self._fault, f"gripper: fault {self._fault}") if self._fault else None

    def go(self, opening: float) -> None:
        """Start to move the fingers to an opening [m], clipped to the stroke. Raises RobotUnavailable if the link is lost."""
        self._require_link()
        share = min(max(opening / self._options.stroke, 0.0), 1.0)
        self._target = round(255 * (1.0 - share))

    def recover(self) -> None:
        """Activate the gripper again after a fault, which moves the fingers; called only at a person's request.

        Raises RobotUnavailable if the link is lost or the activation fails.
        """
        self._require_link()
        with self._lock, self._unavailable_if_it_fails("does not recover"):
            self._ask("SET ACT 0")
            self._activate()
            self._target = self._sent = None  # the fingers stay until the next command
            self._read()

    def close(self) -> None:
        """Close the link; the fingers keep their position."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        if self._socket is not None:
            self._socket.close()
        self._socket = self._thread = None

    def _exchange(self) -> None:
        """Send new targets and read positions until the link is closed or lost."""
        with contextlib.suppress(OSError, ValueError):
            while not self._closing.wait(PERIOD):
                with self._lock:
                    target = self._target
                    if target is not None and target != self._sent:
                        speed, force = (round(255 * share) for share in (self._options.speed, self._options.force))
                        self._ask(f"SET POS {target} SPE {speed} FOR {force} GTO 1")
                        self._sent = target
                    self._read()

    def _activate(self) -> None:
        if self._get("STA") == ACTIVE and not self._get("FLT"):
            return
        self._ask("SET ACT 0 ATR 0")
        self._wait("STA", RESET)
        self._ask("SET ACT 1")
        self._wait("STA", ACTIVE)

    def _wait(self, name: str, value: int) -> None:
        end = time.monotonic() + ACTIVATION
        while self._get(name) != value:
            if time.monotonic() > end:
                raise TimeoutError(f"{name} is {self._get(name)} after {ACTIVATION:g} s, not {value}")
            time.sleep(PERIOD)

    def _read(self) -> None:
        position, fault = self._get("POS"), self._get("FLT")
        if not 0 <= position <= 255:
            raise ValueError(f"POS {position}")
        self._position, self._fault, self._read_at = position, fault & 0x0F, time.monotonic()

    def _get(self, name: str) -> int:
        answer = self._ask(f"GET {name}").split()
        if len(answer) != 2 or answer[0] != name:
            raise ValueError(f"the answer {answer} to GET {name}")
        return int(answer[1])

    def _ask(self, request: str) -> str:
        """Send a request and return the line that answers it; raises OSError, ValueError."""
        if self._socket is None:
            raise OSError("the link is closed")
        self._socket.sendall(f"{request}\n".encode())
        text = ""
        while not text:  # answers come one at a time, a packet each, with or without a line feed behind them
            answer = self._socket.recv(256)
            if not answer:
                raise ConnectionResetError(f"the connection was closed after {request!r}")
            text = answer.decode("ascii", "replace").strip()
        if request.startswith("SET") and text != "ack":
            raise ValueError(f"the answer {text!r} to {request!r}")
        return text

    def _require_link(self) -> None:
        age = time.monotonic() - self._read_at
        if self._thread is None or not self._thread.is_alive() or age > self._options.timeout + 0.5:
            raise RobotUnavailable(
                "The link to the gripper is lost.",
                got=f"{self._address[0]}:{self._address[1]}",
                fix="look at cable and pendant",
            )

    @contextlib.contextmanager
    def _unavailable_if_it_fails(self, problem: str) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise RobotUnavailable(
                f"The gripper {problem}.",
                got=f"{self._address[0]}:{self._address[1]}: {error}",
                fix="install and start Robotiq's URCap at the pendant; it listens at port 63352",
            ) from error
