"""Driver of a Universal Robot through ur_rtde: measurements by Real-Time Data Exchange, targets by servoL.

Poses are (x, y, z, rotation vector) of the tool that is set at the pendant, in the frame of the base. Speed and external force
are those of this tool, too. The z axis of the tool must point out of the hand. Without the option `gripper` the opening is
always 0. There is no Jacobian, so commands are not shortened for joint limits or joint speeds: fast measured joints slow the
arm, and a measured joint beyond its limit stops it.

The controller's watchdog ends the control program after 1 / `watchdog` seconds without a message. While the arm moves, only the
set points are such messages, and they end with the commands. While the arm stands, this driver sends a message regularly.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget
from robo_real.clock import Clock, MonotonicClock
from robo_real.drivers.robotiq import Robotiq, RobotiqOptions
from robo_real.rotations import from_rotation_vector, rotation_vector
from robo_rl.errors import MissingExtra, RobotUnavailable, require_allowed

MOST_READS = 50
"""number of attempts to read values that are all of one package of measurements"""
VARIABLES = (
    *("timestamp", "actual_q", "actual_qd", "actual_TCP_pose", "actual_TCP_speed", "actual_TCP_force"),
    *("robot_mode", "robot_status_bits", "safety_status_bits"),
)
EXCHANGE = 30004
"""port of the Real-Time Data Exchange"""
RUNNING = 7
"""robot mode that allows motion"""
PROGRAM_RUNS = 1 << 1
"""bit of the robot status that is set while the control program runs"""
SAFETY = {
    7: "emergency stop",
    2: "protective stop",
    4: "safeguard stop",
    8: "safety violation",
    9: "safety fault",
    10: "stopped for safety",
}
"""bit of the safety status -> name, most severe first"""
SERVO_TIME = 0.008
"""[s] duration of one servo step, as on the slower controllers"""
KEEP_ALIVE = 0.05
"""Period [s] of the messages that keep the robot's program alive while the arm stands."""
UNUSED = 0.1
"""speed and acceleration in a call of servoL, which ur_rtde documents as not used"""


@dataclass(frozen=True)
class UROptions:
    """Options of the driver: address, servo parameters and gripper."""

    address: str = "192.168.1.10"
    """IP address or host name of the robot's controller"""
    rate: float = 125.0
    """[1/s] rate of the measurements, 10 to 500"""
    lookahead: float = 0.1
    """[s] time over which servoL smooths the motion, 0.03 to 0.2"""
    gain: float = 300.0
    """gain of servoL, 100 to 2000; a higher one follows the set points more stiffly"""
    deceleration: float = 10.0
    """[m/s^2] deceleration of a stop, above 0, to 40"""
    watchdog: float = 5.0
    """[1/s] least rate of messages, 2 to 50; at a lower rate the controller ends the control program"""
    timeout: float = 0.3
    """[s] longest time of a call, above 0, to 20"""
    gripper: Literal["none", "robotiq"] = "none"
    """gripper at the tool: none, or robotiq for a two-finger gripper of Robotiq with its URCap"""
    gripper_stroke: float = 0.085
    """[m] opening of the gripper when fully open, above 0, to 0.5"""

    def __post_init__(self) -> None:
        allowed = {
            "rate": (10 <= self.rate <= 500, "10 to 500"),
            "lookahead": (0.03 <= self.lookahead <= 0.2, "0.03 to 0.2, as ur_rtde says"),
            "gain": (100 <= self.gain <= 2000, "100 to 2000, as ur_rtde says"),
            "deceleration": (0 < self.deceleration <= 40, "above 0, to 40"),
            "watchdog": (2 <= self.watchdog <= 50, "2 to 50"),
            "timeout": (0 < self.timeout <= 20, "above 0, to 20"),
            "gripper": (self.gripper in ("none", "robotiq"), "none or robotiq"),
            "gripper_stroke": (0 < self.gripper_stroke <= 0.5, "above 0, to 0.5 [m]"),
        }
        require_allowed(self, allowed)


class UR(ArmDriver):
    """Driver of a Universal Robot."""

    name = "robot/UR"
    options = UROptions
    period = 0.01
    """Time [s] between two set points."""

    def __init__(self, options: UROptions | None = None, clock: Clock | None = None) -> None:
        self._options = options or UROptions()
        stroke = RobotiqOptions(stroke=self._options.gripper_stroke)
        self._gripper = Robotiq(self._options.address, stroke) if self._options.gripper == "robotiq" else None
        self.has_gripper = self._gripper is not None
        self.width = self._options.gripper_stroke
        self.clock = clock or MonotonicClock()
        self._receive: Any = None
        self._program: _Program | None = None
        self._seen = (-1.0, 0.0)  # controller time of the newest measurement, and local time of its first read

    @override
    def connect(self) -> None:
        """Open the connections for measurements and commands, and start the control program.

        Raises:
            MissingExtra: ur_rtde is not installed.
            RobotUnavailable: The robot or its gripper does not answer.
        """
        if self._receive is not None:
            return
        try:
            import rtde_control  # noqa: F401
            import rtde_receive
        except ImportError:
            raise MissingExtra("The driver ur", "ur_rtde", "ur") from None
        options = self._options
        with _translate_errors("does not answer"):
            socket.create_connection((options.address, EXCHANGE), options.timeout).close()  # ur_rtde would wait for minutes
            self._receive = rtde_receive.RTDEReceiveInterface(options.address, options.rate, list(VARIABLES))
            self._program = _Program(options)
        if self._gripper is not None:
            self._gripper.connect()

    @override
    def read(self) -> ArmState:
        """Return the newest measurement; raises RobotUnavailable if the connection is lost.

        Its stamp is the time at which it was read first. So the age of a measurement grows if no new one comes.
        """
        receive = self._receive
        if receive is None:
            raise RobotUnavailable("The arm is not connected.", fix="connect() first")
        if not receive.isConnected():
            raise RobotUnavailable("The link to the arm is lost.", got=self._options.address, fix="look at cable and pendant")
        for _ in range(MOST_READS):  # until all values are of one package
            time = receive.getTimestamp()
            pose, speed = np.array(receive.getActualTCPPose()), np.array(receive.getActualTCPSpeed())
            wrench = np.array(receive.getActualTCPForce())
            joints, rates = np.array(receive.getActualQ()), np.array(receive.getActualQd())
            fault = _fault(receive.getSafetyStatusBits(), receive.getRobotMode(), receive.getRobotStatus())
            if time == receive.getTimestamp():
                break
        else:  # a time that is no number equals nothing
            raise RobotUnavailable("The arm's measurements are of no one time.", got=f"time {time}", fix="look at its clock")
        if time != self._seen[0]:
            self._seen = (time, self.clock.now())
        return ArmState(
            stamp=self._seen[1],
            position=pose[:3],
            quaternion=from_rotation_vector(pose[3:]),
            velocity=speed,
            force=wrench[:3],
            torque=wrench[3:],
            joint_position=joints,
            joint_velocity=rates,
            jacobian=np.zeros((6, len(joints))),
            opening=0.0 if self._gripper is None else self._gripper.opening,
            fault=fault if fault is not None or self._gripper is None else self._gripper.fault,
        )

    @override
    def move(self, target: ArmTarget) -> None:
        self._running().servo([*target.position.tolist(), *rotation_vector(target.quaternion)])
        if self._gripper is not None and target.opening is not None:
            self._gripper.go(target.opening)

    @override
    def hold(self) -> None:
        if self._program is not None:
            self._program.stop()

    def tare(self) -> None:
        """Zero the force sensor in the robot (zeroFtSensor). The robot keeps this offset after the end of this process."""
        self._running().zero()

    def freedrive(self, is_on: bool) -> None:
        """Let a person move the arm by hand, or hold the arm again. Freedrive ends when this process ends."""
        self._running().teach(is_on)

    @override
    def recover(self) -> None:
        """Unlock a protective stop, and restart the control program if it has ended; called only after a person has looked.

        An emergency stop can be released only at the robot. Until then the measurements report it as a fault.
        """
        import dashboard_client

        with _translate_errors("does not recover"):
            if self._receive.isProtectiveStopped():
                dashboard = dashboard_client.DashboardClient(self._options.address)
                dashboard.connect()
                dashboard.unlockProtectiveStop()
                dashboard.disconnect()
            if not self._running().runs:
                self._running().close()
                self._program = _Program(self._options)
        if self._gripper is not None and self._gripper.fault is not None:
            self._gripper.recover()

    @override
    def close(self) -> None:
        if self._gripper is not None:
            self._gripper.close()
        program, receive, self._program, self._receive = self._program, self._receive, None, None
        if program is not None:
            program.close()
        if receive is not None and receive.isConnected():
            receive.disconnect()
        else:
            _abandon(receive)

    def _running(self) -> _Program:
        if self._program is None:
            raise RobotUnavailable("The arm is not connected.", fix="connect() first")
        return self._program


class _Program:
    """Control program of the robot. One thread makes all calls, so that a call that hangs never blocks the driver's threads."""

    def __init__(self, options: UROptions) -> None:
        import rtde_control

        self._control, self._options = rtde_control.RTDEControlInterface(options.address, options.rate), options
        control = self._control
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._moves = False
        self._thread = threading.Thread(target=self._run, name="ur", daemon=True)
        self._thread.start()
        self._call(lambda: control.setWatchdog(options.watchdog), "sets no watchdog")

    def servo(self, pose: list[float]) -> None:
        self._moves = True  # from here on only commands keep the program alive
        options, control = self._options, self._control
        arguments = (pose, UNUSED, UNUSED, SERVO_TIME, options.lookahead, options.gain)
        self._call(lambda: control.servoL(*arguments), "takes no target")

    def stop(self) -> None:
        self._call(self._stop, "does not stop")

    def zero(self) -> None:
        self._call(self._control.zeroFtSensor, "does not zero its force sensor")

    def teach(self, is_on: bool) -> None:
        self._call(self._control.teachMode if is_on else self._control.endTeachMode, "does not change freedrive")

    @property
    def runs(self) -> bool:
        """True while the controller runs the control program."""
        return bool(self._control.isProgramRunning())

    def close(self) -> None:
        """End the program and close the connection. A connection that is lost is neither closed nor freed (`_abandon`)."""
        answers = self._control.isConnected()
        if answers and self.runs:
            try:
                self.stop()
            except RobotUnavailable:
                answers = False
        self._calls.put(None)
        self._thread.join(self._options.timeout)
        if not answers or self._thread.is_alive():
            _abandon(self._control)
            return
        if self.runs:
            self._control.stopScript()
        self._control.disconnect()

    def _stop(self) -> bool:
        stopped = bool(self._control.servoStop(self._options.deceleration))
        self._moves = not stopped
        return stopped

    def _call(self, call: Callable[[], Any], refused: str) -> None:
        answer: Future[Any] = Future()
        self._calls.put((call, answer))
        with _translate_errors(refused):
            if not answer.result(self._options.timeout):
                raise RobotUnavailable(f"The arm {refused}.", got="its control program refuses", fix="look at the pendant")

    def _run(self) -> None:
        while True:
            try:
                item = self._calls.get(timeout=KEEP_ALIVE)
            except queue.Empty:
                if not self._moves and self.runs:
                    with contextlib.suppress(Exception):  # measurements report that the program has ended
                        self._control.kickWatchdog()
                continue
            if item is None:
                return
            call, answer = item
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)


def _abandon(link: Any) -> None:
    """Keep a lost connection in memory for ever: ur_rtde reconnects it, and freeing it meanwhile crashes the process."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(link))


@contextlib.contextmanager
def _translate_errors(failure: str) -> Iterator[None]:
    """Turn errors of ur_rtde and sockets inside the context into RobotUnavailable, "The arm {failure}."."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        got = " ".join(str(error).split()) or type(error).__name__
        raise RobotUnavailable(f"The arm {failure}.", got=got, fix="look at cable and pendant; is remote control on?") from None


def _fault(safety: int, mode: int, status: int) -> str | None:
    for bit, word in SAFETY.items():
        if safety & (1 << bit):
            return word
    if mode != RUNNING:
        return f"robot mode {mode}"
    return None if status & PROGRAM_RUNS else "the control program has ended"
