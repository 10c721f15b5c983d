"""Robot as a Gymnasium environment: one action per control period, on the robot's clock.

If the robot ends an episode (guard, lost connection, old picture), the episode is truncated with the reason and the last
complete observation, and the arm holds. This module never clears an error and never re-arms.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_real.arm import Scene
from robo_real.arm_spec import GRIP, gripper_control, hold_action
from robo_real.clock import Clock, ControlLoop
from robo_real.shadow import SHADOW, VERDICT, Commands
from robo_rl.errors import (
    CameraChanged,
    CameraFault,
    CameraFrozen,
    CameraStale,
    InvalidSetting,
    RobotBusy,
    RobotStopped,
    RobotUnavailable,
)
from robo_rl.protocols.components import Policy, Robot
from robo_rl.spec.environment import ActionSpec
from robo_rl.types import MEASURED_AT, METADATA, Executed

Observations = dict[str, npt.NDArray[Any]]
log = logging.getLogger(__name__)

ENDS: tuple[tuple[type[Exception], str], ...] = (
    (CameraStale, "camera_stale"),
    (CameraFrozen, "camera_frozen"),
    (CameraChanged, "camera_changed"),
    (CameraFault, "camera_lost"),
    (RobotStopped, "safety"),
    (RobotBusy, "lease_lost"),
    (RobotUnavailable, "robot_lost"),
)
"""Error -> stop reason of the episode"""
RESET_TIME = 10.0
"""[s] for a person to prepare the next episode of a real robot"""
RETRY = 0.2
"""[s] between two attempts to take the lease of a robot"""
LATE_CYCLES = 20
"""number of overruns allowed in one episode; with more the episode is truncated, since a policy depends on its control rate"""


class ArmableRobot(Robot, Protocol):
    """Robot as a `RobotEnv` drives it: it has a clock, and must be armed before a motion."""

    @property
    def clock(self) -> Clock:
        """Clock by which the environment waits for the end of a control period."""

    @property
    def measured_at(self) -> float:
        """Stamp [s] of the newest observation, by the clock of the arm."""

    def arm(self) -> None:
        """Allow motion from the next action on; raises RobotStopped if a person must re-arm first."""

    def stop(self, why: str = ..., /) -> None:
        """Stop the arm until a person re-arms; why: reason, in words."""

    def judge(self, action: npt.ArrayLike, /) -> Executed:
        """Return what `apply` would execute for an action (A,); nothing is sent."""


class RobotEnv(gymnasium.Env[Any, Any]):
    """Gymnasium environment of a robot. A scene provides success, reset and the observations of objects."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)
    replays = False
    """False: the same actions lead elsewhere, so an interrupted episode cannot be replayed."""

    def __init__(
        self,
        robot: ArmableRobot,
        scene: Scene,
        *,
        control: str = "end_effector_delta",
        action_repeat: int = 1,
        max_steps: int | None = None,
        reset_time: float = RESET_TIME,
    ) -> None:
        """Create the environment; only the first reset connects to the robot.

        Args:
            robot: Robot that executes the actions.
            scene: Scene of the task.
            control: "end_effector_delta", or "end_effector_delta_closed", which keeps the gripper closed and leaves it out of
                the action.
            action_repeat: Control periods of the robot per action, from 1; a displacement is divided among them.
            max_steps: Number of actions until the time limit; None for the time limit of the task.
            reset_time: Time [s] between two episodes in which a person prepares a scene that cannot be reset by itself.

        Raises:
            InvalidSetting: A setting is out of range, or the robot states no control period.
            UnknownName: There is no such control mode.
        """
        if not isinstance(action_repeat, int) or action_repeat < 1:
            raise InvalidSetting("action_repeat is out of range.", got=action_repeat, allowed="integer from 1")
        if not 0.0 <= reset_time < np.inf:
            raise InvalidSetting("reset_time is out of range.", got=reset_time, allowed="seconds, 0 or more")
        self._robot, self._scene, self._repeat, self._control = robot, scene, action_repeat, control
        self._reset_time = float(reset_time)
        self.is_attended = False
        """True if someone else waits for a person before each reset, as the console does"""
        spec = robot.spec
        self._gripper = gripper_control(control, spec.action)
        limit = None if spec.max_steps is None else -(-spec.max_steps // action_repeat)
        self.environment_spec = replace(
            spec, action=repeat_action(self._gripper.spec, action_repeat), max_steps=limit if max_steps is None else max_steps
        )
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        if spec.action.control_period is None:
            raise InvalidSetting("The robot states no control period.", got=None, allowed="seconds")
        self._loop = ControlLoop(robot.clock, spec.action.control_period)
        self._observation: Observations = {}
        self._measured_at: float | None = None  # stamp [s] of an observation of this step
        self._sent = np.zeros(spec.action.size, np.float32)  # last action executed by the robot, in [-1, 1]
        self._is_connected = False
        self._steps = self._overruns = 0
        self._camera_fault: CameraFault | None = None  # that ended the episode
        self.commands: Commands | None = None
        """Source of the actions that are sent in a shadow run; None outside of one. The actions given to `step` are then
        judged by the guard and never sent."""

    @property
    def robot(self) -> ArmableRobot:
        """Robot behind the environment, for experiments and tests."""
        return self._robot

    @property
    def loop(self) -> ControlLoop:
        """Control loop that times the actions."""
        return self._loop

    @property
    def metrics(self) -> dict[str, float]:
        """Statistics of the control loop and the pictures since the start: tag -> count or time [ms]."""
        ages: list[float] = getattr(self._robot, "picture_ages", [])
        pictures = {"robot/picture_age_p99_ms": 1000 * float(np.percentile(ages, 99))} if ages else {}
        return pictures | {
            "robot/cycles": float(len(self._loop.lateness)),
            "robot/overruns": float(self._loop.overruns),
            "robot/late_p99_ms": 1000 * self._loop.percentile(99),
            "robot/late_worst_ms": 1000 * self._loop.percentile(100),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Start an episode; raises RobotStopped if a person must re-arm first, RobotBusy if the lease is taken."""
        super().reset(seed=seed)
        self._wait_for_person()
        seed = int(self.np_random.integers(1 << 31)) if seed is None else seed
        self._take()
        self._scene.reset(seed)
        self._robot.arm()
        self._observation = self._observe()
        self._sent = hold_action(self._robot.spec.action, self._observation)
        self._steps, self._overruns = 0, 0
        info = self._info(self._scene.success())
        if self.commands is not None:
            self.commands.reset(seed, self._observation)
            info |= {METADATA: {SHADOW: self.commands.name}}
        self._loop.start()
        return dict(self._observation), info

    def _wait_for_person(self) -> None:
        """Wait between two episodes of a scene that cannot be reset by itself; the arm is held meanwhile."""
        is_real = not getattr(self._robot, "is_simulated", True)
        if is_real and self._steps and self._reset_time and not self.is_attended:
            log.warning("Prepare the scene: the arm moves again in %g s (reset_time).", self._reset_time)
            time.sleep(self._reset_time)

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Execute an action and wait for the end of its period; raises InvalidAction before any motion."""
        if not self._observation:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        spec = self.environment_spec.action
        wanted = np.asarray(spec.validate(action), np.float32)
        shadow: dict[str, Any] = {}
        if self.commands is not None:
            proposed = self._gripper.to_robot(wanted)
            command, source = self.commands.command(self._observation, wanted)
            wanted = np.asarray(spec.validate(command), np.float32)
            shadow = {"action_source": source, VERDICT: self._judge(proposed)}
        self._measured_at = None
        executed, reasons, end = self._execute(self._gripper.to_robot(wanted))
        self._steps += 1
        success = self._scene.success() if end is None else None
        done = {"executed_action": self._gripper.to_policy(executed), "guard": reasons}
        info: dict[str, Any] = self._info(success) | shadow | done
        terminated = bool(success)
        if end is None and not terminated and self._steps >= (self.environment_spec.max_steps or np.inf):
            end = "time_limit"
        if terminated or end is not None:
            info["stop_reason"] = "goal" if terminated else end
            self._hold_arm(end)
            last, self._observation = self._observation, {}
            return last, float(terminated), terminated, not terminated, info
        return dict(self._observation), 0.0, False, False, info

    def hold(self) -> None:
        """Hold the robot until the next reset; ends a running episode."""
        self._observation = {}
        if self._is_connected:
            self._hold_arm(None)

    def render(self) -> None:
        """Draw nothing: look at the robot."""

    def close(self) -> None:
        """Hold the robot and release it."""
        if self._is_connected:
            self._is_connected = False
            self._observation = {}
            self._robot.close()

    def scripted_policy(self, seed: int, noise: float = 0.0) -> Policy:
        """Return the scripted expert of the simulated task of the same name.

        Args:
            seed: Seed of the expert.
            noise: Standard deviation of its noise, in actions of [-1, 1].

        Raises:
            InvalidSetting: There is no simulated task of this name.
        """
        from robo_rl.environments.make import make_environment
        from robo_rl.errors import UnknownName

        try:
            task = make_environment(self.environment_spec.name, control=self._control, action_repeat=self._repeat)
        except (UnknownName, TypeError):
            task = None
        if task is None or isinstance(task.unwrapped, RobotEnv):
            raise InvalidSetting(
                f"There is no simulated task, and so no expert, for {self.environment_spec.name}.", fix="name a run as policy"
            )
        expert: Policy = task.get_wrapper_attr("scripted_policy")(seed=seed, noise=noise)
        return expert

    def take(self, timeout: float) -> None:
        """Take the robot, waiting up to `timeout` [s] for the lease of a dead process; raises RobotBusy after that."""
        end = time.monotonic() + timeout
        while True:
            try:
                return self._take()
            except RobotBusy:
                if time.monotonic() > end:
                    raise
                time.sleep(RETRY)

    def _take(self) -> None:
        """Connect, or take the lease again if another environment of this process has used the robot meanwhile."""
        if not self._is_connected:
            self._robot.connect()
            self._is_connected = True
            return
        try:
            self._robot.pause()
        except RobotBusy:
            self._robot.connect()

    def _execute(self, wanted: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], list[str], str | None]:
        """Execute an action of the robot, in all of its control periods.

        Returns:
            The executed action (A,), the guard's reasons to change it, and the reason to end the episode or None.
        """
        done: list[npt.NDArray[np.float32]] = []
        reasons: list[str] = []
        try:
            for _ in range(self._repeat):
                found = self._robot.apply(wanted)  # in [-1, 1] a part of a displacement equals the whole
                done.append(found.action)
                reasons += [reason for reason in found.reasons if reason not in reasons]
                self._overruns += self._loop.wait() >= self._loop.period
                self._observation = self._observe()
                if self._scene.success():
                    break
        except (RobotUnavailable, RobotStopped, RobotBusy) as error:
            self._camera_fault = error if isinstance(error, CameraFault) else None
            end = next(words for kind, words in ENDS if isinstance(error, kind))
            why = error.reason if isinstance(error, RobotStopped) else end
            return self._average(done), [*reasons, why], end
        except KeyboardInterrupt:
            self._hold_arm("operator")
            raise
        except Exception as error:  # unforeseen: the arm must not move meanwhile
            self._robot.stop(f"the environment: {type(error).__name__} in an episode")
            raise
        return self._average(done), reasons, "control_late" if self._overruns > LATE_CYCLES else None

    def _judge(self, proposed: npt.NDArray[np.float32]) -> list[str]:
        """Return the guard's reasons to change an action that is not sent."""
        try:
            return list(self._robot.judge(proposed).reasons)
        except (RobotUnavailable, RobotStopped, RobotBusy):  # the command that follows ends the episode with its reason
            return []

    def _observe(self) -> Observations:
        observation = dict(self._robot.observe())
        self.environment_spec.observation.validate(observation)
        self._measured_at = self._robot.measured_at
        return observation

    def _average(self, done: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Return the mean action (A,) of the control periods; a period without an action counts as a hold.

        The gripper's element is the last command.
        """
        spec = self._robot.spec.action
        mean = np.mean([*done, *([hold_action(spec, self._observation)] * (self._repeat - len(done)))], axis=0)
        is_position = np.array([name == GRIP for name in spec.names])
        self._sent = np.where(is_position, done[-1] if done else self._sent, mean).astype(np.float32)
        return self._sent

    def _hold_arm(self, end: str | None) -> None:
        """Hold the arm after an episode; stop it if a camera has failed, which a person must check."""
        try:
            if self._camera_fault is not None:
                fault, self._camera_fault = self._camera_fault, None
                self._robot.stop(f"the environment: {str(fault).splitlines()[0]}")
            else:
                self._robot.pause()
        except (RobotUnavailable, RobotStopped, RobotBusy):
            pass  # lost, stopped or taken by another owner: its own watchdog holds it

    def _info(self, success: bool | None) -> dict[str, Any]:
        known: dict[str, Any] = {} if success is None else {"success": bool(success)}
        known |= {} if self._measured_at is None else {MEASURED_AT: self._measured_at}
        return known | {"reward_terms": {"success": float(bool(success))}}


def repeat_action(action: ActionSpec, count: int) -> ActionSpec:
    """Return the spec of actions that last `count` control periods: the limits of displacements are multiplied by `count`.

    The limits of the gripper's opening stay, because it is a position.
    """
    scale = np.array([1 if name == GRIP else count for name in action.names])
    low, high = (tuple((scale * limits).tolist()) for limits in (action.low, action.high))
    period = None if action.control_period is None else round(action.control_period * count, 9)
    return replace(action, low=low, high=high, control_period=period)
