"""A robot: an arm's driver behind its guard. Nothing moves the arm but through here."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Scene
from robo_real.arm_spec import HandMotion, arm_spec, observed
from robo_real.audit_log import AuditLog
from robo_real.course import Course
from robo_real.guard import LATCHED, Guard, Mode, Verdict, stopped
from robo_real.limits import Limits
from robo_real.ticker import Ticker
from robo_rl.errors import InvalidAction, RobotStopped, RobotUnavailable
from robo_rl.protocols.components import Robot
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Executed

WATCH = 0.01
"""[s] of wall time between two looks of the watchdog."""
SECOND_LINE = 0.05
"""[s] after `hold_after` at which a course without a newer command ends by itself, should the watchdog be late"""


class GuardedArm(Robot):
    """Robot over any ArmDriver; without limits there is none."""

    def __init__(
        self,
        driver: ArmDriver,
        limits: Limits,
        *,
        spec: EnvironmentSpec | None = None,
        scene: Scene | None = None,
        log: AuditLog | None = None,
    ) -> None:
        """spec: of the task if there is one; its action is that of the arm. scene: what the task needs around the arm."""
        self.driver, self.limits, self.scene = driver, limits, scene
        self.spec = spec or arm_spec(driver.name, len(limits.joint_low))
        self.log = log or AuditLog()
        self.motion = HandMotion(self.spec.action)
        self.guard = Guard(limits, self.spec.action.control_period or 0.05, self.log)
        self.course = Course(self.guard, driver)
        self.clock = driver.clock
        self._has_gripper: bool = getattr(driver, "has_gripper", True)
        self._lock = threading.RLock()  # of everything but stop
        self._opening = limits.opening
        self._commanded = -np.inf  # [s] when the arm was last told to go somewhere
        self._observed = -np.inf  # [s] stamp of the newest observation
        self._holding = True
        self._pauses = False  # whether who commands may fall silent
        self._done = threading.Event()
        self._watchdog: threading.Thread | None = None
        self._ticker: Ticker | None = None

    @override
    def connect(self) -> None:
        """Opens the link; the arm may not move before `arm`."""
        attach = getattr(self.driver, "attach", None)
        if attach is not None:
            attach(self.course)
        self.driver.connect()
        self.guard.connected()
        self._done.clear()
        if attach is None and self._ticker is None:
            self._ticker = Ticker(
                self.driver, self.course, watches=lambda: self.guard.is_ready, hold=self._hold, lost=self._lose
            )
            self._ticker.start()
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._watchdog.start()

    def arm(self) -> None:
        """Allows motion from the next command on; raises RobotStopped if a person must re-arm first."""
        with self._lock:
            self.guard.arm()

    def rearm(self, stops: int | None = None) -> None:
        """Clear the robot's own error and the guard's latch after a person has looked; `arm` must follow before it moves.

        stops: `guard.stops` when they looked, the present one by default. Raises RobotStopped if the arm was stopped since,
        also while the robot recovers, which may take seconds: it stays stopped.
        """
        seen = self.guard.stops if stops is None else stops
        if seen != self.guard.stops:
            raise RobotStopped(self.guard.mode, self.guard.reason)
        with self._lock:
            self.recover()
            self.guard.reset(seen)

    def recover(self) -> None:
        """Clear the robot's own error; the latch of the guard stays."""
        self.course.rest()  # an arm that goes on where it was interrupted would move
        self.driver.recover()

    def measure(self) -> ArmState:
        """Returns the newest measurement; what a command answers if it names no other."""
        state = self.driver.read()
        self._observed = state.stamp
        return state

    @override
    def observe(self) -> dict[str, npt.NDArray[np.generic]]:
        return self.observation(self.measure())

    def observation(self, state: ArmState) -> dict[str, npt.NDArray[np.generic]]:
        """Returns a measurement with what is seen of the scene; raises RobotUnavailable unless it is finite."""
        if not state.is_finite:
            raise RobotUnavailable("The robot measures what is no number.", got=state, fix="look at its sensors")
        found = {**observed(state), **(self.scene.observe() if self.scene else {})}
        return {name: found[name] for name in self.spec.observation if name in found}

    @override
    def apply(self, action: npt.ArrayLike, *, answers: float | None = None) -> Executed:
        """Commands an action in [-1, 1]; answers: stamp of the measurement that it was chosen for, the newest if None."""
        with self._lock:
            state = self.driver.read()
            self._pauses = False
            wanted = self._numbers(action)
            target = self.motion.target(wanted, state)
            verdict = self._send(target, state, self._observed if answers is None else answers)
            sent = verdict.target or ArmTarget(state.position, state.quaternion, self._opening)
            if not self._has_gripper:
                sent = replace(sent, opening=state.opening)
            is_clipped = bool((np.abs(wanted) > 1 + 1e-6).any())
            return Executed(self.motion.action(sent, state), (*(("action",) if is_clipped else ()), *verdict.reasons))

    def move(self, target: ArmTarget) -> Verdict:
        """Send the hand all the way to a pose, within the limits, for clients that command poses and pause between them.

        A pose is a command like any other: the guard may change or refuse it.
        """
        with self._lock:
            state = self.driver.read()
            self._pauses = True
            return self._send(replace(target, opening=self._opening), state, state.stamp, whole=True)

    def grip(self, opening: float) -> Verdict:
        """Open the fingers as wide [m] while the hand stays on its way; for clients that command grippers apart."""
        if not self._has_gripper:
            raise RobotUnavailable("This robot has no gripper.", got=self.driver.name)
        with self._lock:
            state = self.driver.read()
            self._pauses = True
            last = self.course.goal
            place = ArmTarget(state.position, state.quaternion, opening) if last is None else replace(last, opening=opening)
            return self._send(place, state, state.stamp, whole=True)

    def reset_joints(self, timeout: float) -> str:
        """Lead the joints to the arm's nominal posture, watched and within the limits; return why it ended before, "" if not.

        timeout: [s]. Raises RobotStopped unless the arm may be moved, RobotUnavailable if it takes no targets of joints.
        """
        home = getattr(self.driver, "home", None)
        if home is None:
            raise RobotUnavailable("This robot resets no joints within its limits.", got=self.driver.name)
        with self._lock:
            self.guard.begin()
            self._pauses, self._holding, self._commanded = True, False, self.clock.now()
            self.log.add("joint_reset", home=[round(float(angle), 6) for angle in home])
            self.course.go_joints(np.asarray(home, np.float64))
        end = self.clock.now() + timeout
        try:
            while self.course.moves_joints and self.clock.now() < end and not self._done.is_set():
                self.clock.sleep(self.course.period)
                self._commanded = self.clock.now()
                self.driver.read()
        finally:
            why = self._end_reset()
        return why

    def forward_joint_reset(self, timeout: float) -> str:
        """Let the robot's own server move the joints, outside the limits; return why the arm was stopped meanwhile, "" if not.

        timeout: [s]. Raises RobotStopped unless the arm may be moved, RobotUnavailable if the driver cannot.
        """
        reset = getattr(self.driver, "joint_reset", None)
        if reset is None:
            raise RobotUnavailable("This robot resets no joints.", got=self.driver.name)
        with self._lock:
            self._hold()
            self.guard.begin()
            self._pauses, self._commanded = True, self.clock.now() + timeout
            self.log.add("joint_reset", forwarded=True)
        try:
            reset(timeout)
        finally:
            self._commanded = self.clock.now()
            why = self._end_reset()
        return why

    def _end_reset(self) -> str:
        why = self.guard.reason or ("timeout" if self.course.moves_joints else self.course.ended)
        with self._lock:
            if self.course.goal is None:  # or another command moves the arm already
                self.guard.pause()
                self._hold()
        self.log.add("joint_reset_ended", reason=why)
        return why

    def reset_scene(self, seed: int) -> None:
        """Put the simulated scene where an episode begins, arm included; raises RobotStopped if a person must look first."""
        if self.guard.mode in LATCHED:
            raise stopped(self.guard)
        assert self.scene is not None
        self.pause()
        self.scene.reset(seed)
        self.guard.pause()

    @override
    def pause(self) -> None:
        with self._lock:
            self.guard.pause()
            self._hold()

    @override
    def stop(self, reason: str = "stop") -> None:
        """Stops the arm until a person re-arms; takes no lock of ours and raises nothing."""
        self.guard.stop(reason)
        self._hold()

    @override
    def close(self) -> None:
        """Holds still and closes the link."""
        self._done.set()
        if self._watchdog is not None and self._watchdog is not threading.current_thread():
            self._watchdog.join()
            self._watchdog = None
        if self._ticker is not None:
            self._ticker.close()
            self._ticker = None
        if self.guard.mode is not Mode.DISCONNECTED:
            self._hold()
            self.driver.close()
            self.guard.disconnected()
        self.log.close()

    def _numbers(self, action: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return an action (A,) of finite numbers; another one stops the arm and raises InvalidAction."""
        reason = "wrong_type"
        try:
            numbers = np.asarray(action, np.float64)
            reason = "wrong_shape" if numbers.shape != self.spec.action.shape else "not_finite"
            return np.asarray(self.spec.action.validate(numbers), np.float64)
        except (InvalidAction, TypeError, ValueError) as error:
            self._halt_for(reason)
            if isinstance(error, InvalidAction):
                raise
            allowed = f"{self.spec.action.size} numbers"
            raise InvalidAction("The action is no list of numbers.", got=repr(action)[:100], allowed=allowed) from None

    def _send(self, target: ArmTarget, state: ArmState, answers: float, *, whole: bool = False) -> Verdict:
        now = self.driver.clock.now()
        failure = None if self._ticker is None else self._ticker.failure
        if failure is not None and self.guard.is_ready and state.fault is None:  # else the guard says what is wrong
            raise failure
        if self.guard.mode is Mode.ARMED:  # the first command after a pause: the watchdog counts from here
            self._commanded = now
        try:
            verdict = self.guard.judge(target, state, observed=answers, now=now, whole=whole)
        except RobotStopped:
            self._hold()
            raise
        if verdict.target is None:
            self._hold()
            return verdict
        self._opening = verdict.target.opening
        self._commanded, self._holding = self.driver.clock.now(), False
        patience = self.course.patience(verdict.target, state) if whole else self.limits.hold_after + SECOND_LINE
        self.course.go(verdict.target, now + patience)
        if self.guard.mode in LATCHED:  # stopped meanwhile by another thread, whose hold may have come before
            self._hold()
        return verdict

    def _lose(self, seconds: float) -> None:
        """The arm could not be measured for so long: hold it at once, stop it if that lasts."""
        self._hold()
        if seconds > self.limits.stop_after:
            self.guard.fault("robot_lost")

    def _halt_for(self, reason: str) -> None:
        self.guard.fault(reason)
        self._hold()

    def _hold(self) -> None:
        """Makes the arm stay; whatever goes wrong here, neither the watchdog nor who stops the arm may end by it."""
        self._holding = True
        self.course.rest()
        try:
            self.driver.hold()
        except Exception as error:
            self.log.add("hold_failed", error=f"{type(error).__name__}: {error}")

    def _watch(self) -> None:
        """Holds, then stops an arm whose commands have ceased; runs where the driver runs, whatever becomes of the policy."""
        while not self._done.wait(WATCH):
            if self.guard.mode is Mode.RUNNING:
                self.check_silence()

    def check_silence(self) -> None:
        """Does what is due when no command came for long."""
        silent = self.driver.clock.now() - self._commanded
        if self._pauses:
            self._check_pause(silent)
        elif silent > self.limits.stop_after:
            self.stop("watchdog")
        elif silent > self.limits.hold_after and not self._holding:
            self.log.add("held", silent=silent)
            self._hold()

    def _check_pause(self, silent: float) -> None:
        """Pause an arm that has arrived, or does not get further, once its client has been silent for long."""
        if silent <= self.limits.stop_after or self.course.moves_joints:
            return
        with contextlib.suppress(Exception):  # a driver that fails must not end the watchdog: the arm is paused then
            state = self.driver.read()
            if self.course.is_under_way and not self.course.arrived(state):
                return  # the course gives it up by itself
        self.pause()
