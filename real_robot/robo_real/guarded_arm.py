"""Robot that moves an arm through its driver and behind its guard: the only way to move the arm."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Scene
from robo_real.arm_spec import HandMotion, arm_spec, observed, plain_numbers
from robo_real.audit_log import AuditLog
from robo_real.deadline import CLOSES, CONNECTS, DRIVER_HANGS, GLANCE, HANGS, TURN, DriverHangs, HoldThread, within
from robo_real.guard import LATCHED, Guard, Mode, Verdict, stopped_error
from robo_real.limits import Limits
from robo_real.motion_generator import MotionGenerator
from robo_real.rotations import between
from robo_real.tare import ForceTare, Tare
from robo_real.ticker import Ticker
from robo_real.watchdog import Watchdog
from robo_rl.errors import InvalidAction, RobotError, RobotStopped, RobotUnavailable
from robo_rl.protocols.components import Robot
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Executed

NEAR, STUCK = 0.1, 0.2
"""[s] `come_near` ends when the rest of the motion takes at most this long at full speed; [s] without coming nearer after which
it gives up"""
SECOND_LINE = 0.05
"""[s] after `hold_after`, a motion without a newer command ends even if the watchdog is late"""


class Turn:
    """Reentrant lock, used in `with`; raises DriverHangs if another thread keeps it for longer than TURN."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(timeout=TURN):
            raise DriverHangs("another command", TURN)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lock.release()


class GuardedArm(Robot):
    """Robot that moves an arm through its driver, with the guard in front of every command.

    A robot's server has one of these; tests and experiments make their own.
    """

    def __init__(
        self,
        driver: ArmDriver,
        limits: Limits,
        *,
        spec: EnvironmentSpec | None = None,
        scene: Scene | None = None,
        log: AuditLog | None = None,
    ) -> None:
        """Put a driver behind a guard; nothing is connected yet.

        Args:
            driver: Driver of the arm.
            limits: Limits that the guard enforces.
            spec: Spec of the task, with the arm's action; by default that of the arm alone.
            scene: Scene of the task, which observes and resets the objects around the arm; None for an arm alone.
            log: Audit log; by default one in memory, without a file.
        """
        self.driver, self.limits, self.scene = driver, limits, scene
        self.spec = spec or arm_spec(driver.name, len(limits.joint_low))
        self.log = log or AuditLog()
        self.motion = HandMotion(self.spec.action)
        period = self.spec.action.control_period or 0.05
        self.guard = Guard(limits, period, self.log, getattr(driver, "width", None))
        self.motion_generator = MotionGenerator(self.guard, driver)
        self.clock = driver.clock
        self._has_gripper: bool = getattr(driver, "has_gripper", True)
        self._lock = Turn()  # for all methods but stop
        self._holding = HoldThread(driver, self.log)
        self._opening: float | None = None  # [m] newest command; None before the first: a pose leaves the gripper as it is
        self._observed = -np.inf  # [s] stamp of the newest observation
        self.watchdog = Watchdog(self, self._glance, self._hanging)
        self._ticker: Ticker | None = None
        self._force = ForceTare(driver, limits)

    @override
    def connect(self) -> None:
        """Open the connection; the arm cannot move before `arm`."""
        attach = getattr(self.driver, "attach", None)
        if attach is not None:
            attach(self.motion_generator)
        within(CONNECTS, self.driver.connect, "connect")
        self.guard.connected()
        if attach is None and self._ticker is None:
            self._ticker = Ticker(
                self.driver,
                self.motion_generator,
                watches=lambda: self.guard.is_ready,
                is_unheld=lambda: self._holding.failed,
                hold=self._hold,
                lost=self._lose,
            )
            self._ticker.start()
        self.watchdog.start()

    def arm(self) -> None:
        """Allow motion from the next command on; raises RobotStopped if a person must clear a stop first (`rearm`)."""
        with self._lock:
            self.guard.arm()

    def rearm(self, stops: int | None = None) -> None:
        """Clear the robot's own error and the guard's stop, after a person has looked. `arm` must follow before a motion.

        Args:
            stops: Value of `guard.stops` when the person looked; None for the present value.

        Raises:
            RobotStopped: There was another stop since, also during the robot's recovery, which may take seconds. The arm
                stays stopped.
        """
        seen = self.guard.stops if stops is None else stops
        if seen != self.guard.stops:
            raise RobotStopped(self.guard.mode, self.guard.reason)
        with self._lock:
            self.recover()
            self.guard.reset(seen)

    def recover(self) -> None:
        """Clear the robot's own error; the guard's stop stays."""
        self.motion_generator.cancel()  # an arm that resumes its motion would move
        self._opening = None  # and so would a gripper that repeats its last command
        self.driver.recover()

    def read(self) -> ArmState:
        """Return the newest measurement; raises DriverHangs if the driver takes too long over a set point."""
        if (seconds := self._hanging()) > HANGS:
            raise DriverHangs("a set point", seconds)
        return self.driver.read()

    def measure(self) -> ArmState:
        """Return the newest measurement, and remember its stamp as that of the newest observation.

        `apply` and `judge` count the age of an action from this stamp, unless their argument `answers` gives another one.
        """
        state = self.driver.read()
        self._observed = state.stamp
        return state

    @property
    def measured_at(self) -> float:
        """Stamp [s] of the newest observation, by the driver's clock."""
        return self._observed

    @override
    def observe(self) -> dict[str, npt.NDArray[np.generic]]:
        return self.observation(self.measure())

    def observation(self, state: ArmState) -> dict[str, npt.NDArray[np.generic]]:
        """Return the observation of arm and scene for a measurement; raises RobotUnavailable unless it is finite."""
        if not state.is_finite:
            raise RobotUnavailable("A measurement of the robot is not finite.", got=state, fix="look at its sensors")
        found = {**observed(state), **(self.scene.observe() if self.scene else {})}
        return {name: found[name] for name in self.spec.observation if name in found}

    @override
    def apply(self, action: npt.ArrayLike, *, answers: float | None = None) -> Executed:
        """Execute an action as far as the guard allows.

        Args:
            action: (A,) in [-1, 1].
            answers: [s] Stamp of the measurement that the action answers; None for the one that was last returned.

        Returns:
            The action that was executed, and the reasons for which it differs.
        """
        with self._lock:
            state = self.driver.read()
            self.watchdog.pauses = False
            wanted = self._numbers(action)
            target = self.motion.target(wanted, state)
            verdict = self._send(target, state, self._observed if answers is None else answers)
            return self._executed(wanted, verdict, state)

    def judge(self, action: npt.ArrayLike, *, answers: float | None = None) -> Executed:
        """Return what `apply` would execute; nothing is sent, and nothing changes, not even the guard's state.

        Raises InvalidAction, RobotStopped if the arm may not move or this measurement stops it.
        """
        wanted = np.asarray(self.spec.action.validate(_plain(action)), np.float64)
        with self._lock:
            state, answered = self.driver.read(), self._observed if answers is None else answers
            target = self.motion.target(wanted, state)
            verdict = self.guard.trial().judge(target, state, observed=answered, now=self.clock.now())
            return self._executed(wanted, verdict, state)

    def move(self, target: ArmTarget) -> Verdict:
        """Start to move the hand all the way to a pose, within the limits, and return at once.

        This is for clients that send one pose and then pause. One that sends a stream of poses calls `come_near` after each,
        so that the poses do not come faster than the arm may move.

        Args:
            target: Pose of the hand; its opening is ignored, and the gripper keeps its last command.

        Returns:
            The verdict of the guard, which may change or refuse the pose.
        """
        with self._lock:
            state = self.driver.read()
            self.watchdog.pauses = True
            return self._send(replace(target, opening=self._opening), state, state.stamp, whole=True)

    def come_near(self, target: ArmTarget) -> bool:
        """Wait until the hand is near its goal: at full speed less than `NEAR` seconds are left.

        The wait ends early if the motion ends, another goal comes, the hand touches something, or it comes no nearer.

        Args:
            target: The goal, as in the verdict of `move`.

        Returns:
            True if the hand is near its goal.
        """
        motion, limits, clock = self.motion_generator, self.limits, self.clock
        least, since = np.inf, clock.now()
        while motion.goal is target:
            state = self.driver.read()
            turn = float(np.linalg.norm(between(state.quaternion, target.quaternion)))
            left = max(float(np.linalg.norm(target.position - state.position)) / limits.speed, turn / limits.turn_speed)
            if left <= NEAR:
                return True
            if left < least - NEAR / 10:
                least, since = left, clock.now()
            if clock.now() - since > STUCK or np.linalg.norm(state.force) > limits.soft_force / 2:
                return False
            clock.sleep(motion.period)
        return False

    def grip(self, opening: float) -> Verdict:
        """Move the gripper to an opening [m] without changing the motion of the hand.

        This is for clients that command the gripper apart from the hand. Raises RobotUnavailable if there is no gripper.
        """
        if not self._has_gripper:
            raise RobotUnavailable("This robot has no gripper.", got=self.driver.name)
        with self._lock:
            state = self.driver.read()
            self.watchdog.pauses = True
            last = self.motion_generator.goal
            place = ArmTarget(state.position, state.quaternion, opening) if last is None else replace(last, opening=opening)
            return self._send(place, state, state.stamp, whole=True)

    def reset_joints(self, timeout: float) -> str:
        """Move the joints to the home posture of the driver, within the limits, and wait for the end of the motion.

        Args:
            timeout: [s] Longest duration, by the robot's clock.

        Returns:
            The reason of an early end, such as "soft_force" or "timeout"; "" if the posture was reached.

        Raises:
            RobotStopped: The arm is not armed.
            RobotUnavailable: The driver has no home posture.
        """
        home = getattr(self.driver, "home", None)
        if home is None:
            raise RobotUnavailable("This robot resets no joints within its limits.", got=self.driver.name)
        with self._lock:
            self.guard.begin()
            self.watchdog.pauses, self.watchdog.is_holding, self.watchdog.commanded = True, False, self.clock.now()
            self.log.add("joint_reset", home=[round(float(angle), 6) for angle in home])
            self.motion_generator.move_joints(np.asarray(home, np.float64))
        end = self.clock.now() + timeout
        try:
            while self.motion_generator.is_moving_joints and self.clock.now() < end and not self.watchdog.closing.is_set():
                self.clock.sleep(self.motion_generator.period)
                self.watchdog.commanded = self.clock.now()
                self.driver.read()
        finally:
            why = self._end_reset()
        return why

    def forward_joint_reset(self, timeout: float) -> str:
        """Let the robot's own server move the joints, which no limit and no stop of this guard can end, and wait.

        A dead-man switch must be pressed at the start. Its release does not end the motion either. A measurement that breaks a
        limit meanwhile, such as a hand outside the workspace, enters the mode FAULT.

        Args:
            timeout: [s] Duration that is allowed for the motion.

        Returns:
            The reason of a stop or fault meanwhile, "dead_man" if the switch was not pressed at the start; else "".

        Raises:
            RobotStopped: The arm is not armed.
            RobotUnavailable: The driver has no joint reset.
        """
        reset = getattr(self.driver, "joint_reset", None)
        if reset is None:
            raise RobotUnavailable("This robot resets no joints.", got=self.driver.name)
        with self._lock:
            self._hold()
            if self.guard.is_ready and not self.guard.is_enabled(self.clock.now()):
                return "dead_man"
            self.guard.begin()
            self.guard.is_foreign = True
            self.watchdog.pauses, self.watchdog.commanded = True, self.clock.now() + timeout
            self.log.add("joint_reset", forwarded=True)
        try:
            reset(timeout)
        finally:
            self.guard.is_foreign = False
            self.watchdog.commanded = self.clock.now()
            why = self._end_reset()
        return why

    def _end_reset(self) -> str:
        why = self.guard.reason or ("timeout" if self.motion_generator.is_moving_joints else self.motion_generator.ended)
        with self._lock:
            if self.motion_generator.goal is None:  # else another command already moves the arm
                self.guard.pause()
                self._hold()
        self.log.add("joint_reset_ended", reason=why)
        return why

    def reset_scene(self, seed: int) -> None:
        """Pause the arm, and reset the simulated scene, arm included, for an episode; a real scene is reset by hand.

        Raises RobotStopped if a person must re-arm first.
        """
        if self.guard.mode in LATCHED:
            raise stopped_error(self.guard)
        self.pause()
        if self.scene is None:
            return
        self._opening = None
        self.scene.reset(seed)
        self.guard.pause()

    def tare(self) -> Tare:
        """Zero the force sensor of a standing arm that touches nothing; raises RobotError if it moves or is in contact."""
        with self._lock:
            if self.guard.mode is Mode.RUNNING or self.motion_generator.is_moving or self.motion_generator.is_moving_joints:
                raise RobotError("The arm is under way: no tare.", got=self.guard.mode, fix="pause it, and tare again")
            found = self._force.tare()
        self.log.add("tare", **found.to_json())
        return found

    @override
    def pause(self) -> None:
        try:
            with self._lock:
                self.guard.pause()
                self._hold()
        except DriverHangs:
            self._hang()
            self._hold()

    @override
    def stop(self, reason: str = "stop") -> None:
        """Stop the arm until a person re-arms; takes no lock of this object and raises nothing."""
        self.guard.stop(reason)
        self._hold()

    @override
    def close(self) -> None:
        """Hold the arm and close the connection."""
        self.watchdog.close()
        if self._ticker is not None:
            self._ticker.close()
            self._ticker = None
        if self.guard.mode is not Mode.DISCONNECTED:
            self._hold()
            try:
                within(CLOSES, self.driver.close, "close")
            except DriverHangs as error:
                self.log.add("close_failed", error=str(error))
            self.guard.disconnected()
        self._holding.close()
        self.log.close()

    def _executed(self, wanted: npt.NDArray[np.float64], verdict: Verdict, state: ArmState) -> Executed:
        sent = verdict.target or ArmTarget(state.position, state.quaternion, self._opening)
        if not self._has_gripper:
            sent = replace(sent, opening=None)
        is_clipped = bool((np.abs(wanted) > 1 + 1e-6).any())
        return Executed(self.motion.action(sent, state), (*(("action",) if is_clipped else ()), *verdict.reasons))

    def _numbers(self, action: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return an action (A,) as finite numbers; for anything else enter the mode FAULT and raise InvalidAction."""
        reason = "wrong_type"
        try:
            numbers = plain_numbers(action)
            reason = "wrong_shape" if numbers.shape != self.spec.action.shape else "not_finite"
            return np.asarray(self.spec.action.validate(numbers), np.float64)
        except (InvalidAction, TypeError, ValueError) as error:
            self.guard.fault(reason)
            self._hold()
            if isinstance(error, InvalidAction):
                raise
            allowed = f"{self.spec.action.size} numbers"
            raise InvalidAction("The action is no list of numbers.", got=repr(action)[:100], allowed=allowed) from None

    def _send(self, target: ArmTarget, state: ArmState, answers: float, *, whole: bool = False) -> Verdict:
        now = self.driver.clock.now()
        failure = None if self._ticker is None else self._ticker.failure
        if failure is not None and self.guard.is_ready and state.fault is None:  # else the guard names the fault
            raise failure
        if self.guard.mode is Mode.ARMED:  # first command after a pause: the watchdog counts from here
            self.watchdog.commanded = now
        try:
            goal = self.motion_generator.goal if whole else None
            verdict = self.guard.judge(target, state, observed=answers, now=now, whole=whole, goal=goal)
        except RobotStopped:
            self._hold()
            raise
        if verdict.target is None:
            self._hold()
            return verdict
        self._opening = verdict.target.opening
        self.watchdog.commanded, self.watchdog.is_holding = self.driver.clock.now(), False
        limit = self.motion_generator.time_limit(verdict.target, state) if whole else self.limits.hold_after + SECOND_LINE
        self.motion_generator.move_to(verdict.target, now + limit)
        if self.guard.mode in LATCHED:  # stopped meanwhile by another thread, whose hold may have come first
            self._hold()
        return verdict

    def _lose(self, seconds: float) -> None:
        """Hold an arm whose measurements have failed for `seconds` [s]; after `stop_after` enter the mode FAULT."""
        self._hold()
        if seconds > self.limits.stop_after:
            self.guard.fault("robot_lost")

    def _hold(self) -> None:
        """Make the arm stay; raises nothing and never hangs, so that neither the watchdog nor a stopping thread ends."""
        self.watchdog.is_holding = True
        self.motion_generator.cancel()
        if not self._holding.hold():
            self._hang()

    def _glance(self) -> None:
        """Make the arm stay, but wait for the driver for at most GLANCE; the watchdog calls this and must go on watching."""
        self.watchdog.is_holding = True
        self.motion_generator.cancel()
        self._holding.hold(GLANCE)

    def _hang(self) -> None:
        if self.guard.mode not in LATCHED:
            self.guard.fault(DRIVER_HANGS)

    def _hanging(self) -> float:
        """Return the time [s] since the thread that moves the arm entered its driver; 0 if it is not in there."""
        return 0.0 if self._ticker is None else self._ticker.seconds_in_driver


def _plain(action: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return an action as numbers; raises InvalidAction if it holds anything else."""
    try:
        return plain_numbers(action)
    except (TypeError, ValueError) as error:
        raise InvalidAction("The action is no list of numbers.", got=repr(action)[:100], allowed=str(error)) from None
