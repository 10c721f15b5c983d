"""A robot: an arm's driver behind its guard. Nothing moves the arm but through here."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Scene
from robo_real.arm_spec import HandMotion, arm_spec, observed
from robo_real.audit_log import AuditLog
from robo_real.guard import LATCHED, Guard, Mode, Verdict
from robo_real.limits import Limits
from robo_rl.errors import InvalidAction, RobotStopped, RobotUnavailable
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Executed

WATCH = 0.01
"""[s] of wall time between two looks of the watchdog."""


class GuardedArm:
    """Implements robo_rl.protocols.Robot over any ArmDriver; without limits there is none."""

    def __init__(
        self,
        driver: ArmDriver,
        limits: Limits,
        *,
        spec: EnvironmentSpec | None = None,
        scene: Scene | None = None,
        log: AuditLog | None = None,
    ) -> None:
        """spec: of the task, where there is one; its action is that of the arm. scene: what the task needs around the arm."""
        self.driver, self.limits, self.scene = driver, limits, scene
        self.spec = spec or arm_spec(driver.name, len(limits.joint_low))
        self.log = log or AuditLog()
        self.motion = HandMotion(self.spec.action)
        self.guard = Guard(limits, self.spec.action.control_period or 0.05, self.log)
        self.clock = driver.clock
        self._lock = threading.RLock()  # of everything but stop
        self._opening = limits.opening
        self._commanded = -np.inf  # [s] when the arm was last told to go somewhere
        self._observed = -np.inf  # [s] stamp of the newest observation
        self._holding = True
        self._pauses = False  # whether who commands may fall silent
        self._done = threading.Event()
        self._watchdog: threading.Thread | None = None

    def connect(self) -> None:
        """Opens the link; the arm may not move before `arm`."""
        self.driver.connect()
        self.guard.connected()
        self._done.clear()
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._watchdog.start()

    def arm(self) -> None:
        """Allows motion from the next command on; raises RobotStopped where a person must re-arm first."""
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
            self.driver.recover()
            self.guard.reset(seen)

    def measure(self) -> ArmState:
        """Returns the newest measurement; what a command answers if it names no other."""
        state = self.driver.read()
        self._observed = state.stamp
        return state

    def observe(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the newest measurement as the spec describes it."""
        return self.observation(self.measure())

    def observation(self, state: ArmState) -> dict[str, npt.NDArray[np.generic]]:
        """Returns a measurement with what is seen of the scene; raises RobotUnavailable unless it is finite."""
        if not state.is_finite:
            raise RobotUnavailable("The robot measures what is no number.", got=state, fix="look at its sensors")
        found = {**observed(state), **(self.scene.observe() if self.scene else {})}
        return {name: found[name] for name in self.spec.observation if name in found}

    def apply(self, action: npt.ArrayLike, *, answers: float | None = None) -> Executed:
        """Commands an action in [-1, 1]; answers: stamp of the measurement that it was chosen for, the newest if None."""
        with self._lock:
            state = self.driver.read()
            self._pauses = False
            try:
                target = self.motion.target(action, state)
            except InvalidAction:
                self._halt_for("not_finite")
                raise
            verdict = self._send(target, state, self._observed if answers is None else answers)
            sent = verdict.target or ArmTarget(state.position, state.quaternion, self._opening)
            return Executed(self.motion.action(sent, state), verdict.reasons)

    def move(self, target: ArmTarget) -> Verdict:
        """Sends the hand to a pose, judged as any command is; for clients that command poses, and pause between them."""
        with self._lock:
            state = self.driver.read()
            self._pauses = True
            return self._send(replace(target, opening=self._opening), state, state.stamp)

    def grip(self, opening: float) -> None:
        """Opens the fingers as wide [m] while the hand stays on its way; for clients that command grippers apart."""
        with self._lock:
            state = self.driver.read()
            last = self.guard.target
            place = ArmTarget(state.position, state.quaternion, opening) if last is None else replace(last, opening=opening)
            self._send(place, state, state.stamp)

    def pause(self) -> None:
        """Holds still until the next command."""
        with self._lock:
            self.guard.pause()
            self._hold()

    def stop(self, reason: str = "stop") -> None:
        """Stops the arm until a person re-arms; takes no lock of ours and raises nothing."""
        self.guard.stop(reason)
        self._hold()

    def close(self) -> None:
        """Holds still and closes the link."""
        self._done.set()
        if self._watchdog is not None and self._watchdog is not threading.current_thread():
            self._watchdog.join()
            self._watchdog = None
        if self.guard.mode is not Mode.DISCONNECTED:
            self._hold()
            self.driver.close()
            self.guard.disconnected()
        self.log.close()

    def _send(self, target: ArmTarget, state: ArmState, answers: float) -> Verdict:
        if self.guard.mode is Mode.ARMED:  # the first command after a pause: the watchdog counts from here
            self._commanded = self.driver.clock.now()
        try:
            verdict = self.guard.judge(target, state, observed=answers, now=self.driver.clock.now())
        except RobotStopped:
            self._hold()
            raise
        if verdict.target is None:
            self._hold()
            return verdict
        self._opening = verdict.target.opening
        self._commanded, self._holding = self.driver.clock.now(), False
        self.driver.move(verdict.target)
        if self.guard.mode in LATCHED:  # stopped meanwhile by another thread, whose hold may have come before the move
            self._hold()
        return verdict

    def _halt_for(self, reason: str) -> None:
        self.guard.fault(reason)
        self._hold()

    def _hold(self) -> None:
        """Makes the arm stay; whatever goes wrong here, neither the watchdog nor who stops the arm may end by it."""
        self._holding = True
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
        if silent > self.limits.stop_after:
            self.pause() if self._pauses else self.stop("watchdog")
        elif silent > self.limits.hold_after and not self._holding:
            self.log.add("held", silent=silent)
            self._hold()
