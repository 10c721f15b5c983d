"""A robot as a Gymnasium environment: one action per control period, on the robot's clock.

An episode that the robot ends (guard, lost link, old picture) is truncated with the reason, keeps the last observation that is
whole, and leaves the arm still. Nothing is cleared or re-armed here.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_real.arm import Scene
from robo_real.clock import Clock
from robo_real.control_loop import ControlLoop
from robo_real.fingers import GRIP, fingers
from robo_rl.errors import CameraStale, InvalidSetting, RobotBusy, RobotStopped, RobotUnavailable
from robo_rl.protocols.components import Policy
from robo_rl.protocols.components import Robot as AnyRobot
from robo_rl.spec.environment import ActionSpec

Observations = dict[str, npt.NDArray[Any]]
ENDS: tuple[tuple[type[Exception], str], ...] = (
    (CameraStale, "camera_stale"),
    (RobotStopped, "safety"),
    (RobotBusy, "lease_lost"),
    (RobotUnavailable, "robot_lost"),
)
"""Error -> why the episode was cut."""
LOOK = 0.2
"""[s] between two tries to take a robot that somebody has"""
LATE_CYCLES = 20
"""overruns in one episode after which it is cut: time is part of what a policy has learnt"""


class Robot(AnyRobot, Protocol):
    """A robot that must be armed, with a clock."""

    @property
    def clock(self) -> Clock:
        """Clock of the environment."""

    def arm(self) -> None:
        """Allows motion."""

    def stop(self, why: str = ..., /) -> None:
        """Stop until a person re-arms; why: in words."""


class RobotEnv(gymnasium.Env[Any, Any]):
    """Runs episodes on a robot; the observation, success and reset of its task come from a scene."""

    metadata = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own style)
    replays = False
    """The same actions lead elsewhere the next time: an episode that was interrupted is not gone through again."""

    def __init__(
        self,
        robot: Robot,
        scene: Scene,
        *,
        control: str = "end_effector_delta",
        action_repeat: int = 1,
        max_steps: int | None = None,
    ) -> None:
        """Takes the robot at the first reset.

        control: "end_effector_delta", or "end_effector_delta_closed", whose actions leave the fingers closed.
        action_repeat: control periods of the robot that one action lasts; a displacement is divided among them.
        max_steps: actions until the time limit; None takes that of the task.
        """
        if not isinstance(action_repeat, int) or action_repeat < 1:
            raise InvalidSetting("action_repeat is out of range.", got=action_repeat, allowed="integer from 1")
        self._robot, self._scene, self._repeat, self._control = robot, scene, action_repeat, control
        spec = robot.spec
        self._fingers = fingers(control, spec.action)
        limit = None if spec.max_steps is None else -(-spec.max_steps // action_repeat)
        self.environment_spec = replace(
            spec, action=repeated(self._fingers.spec, action_repeat), max_steps=limit if max_steps is None else max_steps
        )
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        if spec.action.control_period is None:
            raise InvalidSetting("The robot states no control period.", got=None, allowed="seconds")
        self._loop = ControlLoop(robot.clock, spec.action.control_period)
        self._observation: Observations = {}
        self._sent = np.zeros(spec.action.size, np.float32)  # what the robot executed last, in [-1, 1]
        self._is_connected = False
        self._steps = self._overruns = 0

    @property
    def robot(self) -> Robot:
        """Robot behind the environment, for experiments and tests."""
        return self._robot

    @property
    def loop(self) -> ControlLoop:
        """Timing of the control loop."""
        return self._loop

    @property
    def metrics(self) -> dict[str, float]:
        """Timing of the control loop so far, by tag."""
        return {
            "robot/cycles": float(len(self._loop.lateness)),
            "robot/overruns": float(self._loop.overruns),
            "robot/late_p99_ms": 1000 * self._loop.percentile(99),
            "robot/late_worst_ms": 1000 * self._loop.percentile(100),
        }

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observations, dict[str, Any]]:
        """Begins an episode; raises RobotStopped if a person must re-arm first, RobotBusy where somebody else has it."""
        super().reset(seed=seed)
        seed = int(self.np_random.integers(1 << 31)) if seed is None else seed
        self._take()
        self._scene.reset(seed)
        self._robot.arm()
        self._observation = self._observe()
        self._sent = self._still()
        self._steps, self._overruns = 0, 0
        self._loop.start()
        return dict(self._observation), self._info(self._scene.success())

    def step(self, action: npt.NDArray[np.float32]) -> tuple[Observations, float, bool, bool, dict[str, Any]]:
        """Commands an action and waits until the next is due; raises InvalidAction before anything moves."""
        if not self._observation:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        spec = self.environment_spec.action
        wanted = np.asarray(spec.validate(action), np.float32)
        executed, reasons, end = self._execute(self._fingers.sent(wanted))
        self._steps += 1
        success = self._scene.success() if end is None else None
        info: dict[str, Any] = self._info(success) | {"executed_action": self._fingers.seen(executed), "guard": reasons}
        terminated = bool(success)
        if end is None and not terminated and self._steps >= (self.environment_spec.max_steps or np.inf):
            end = "time_limit"
        if terminated or end is not None:
            info["stop_reason"] = "goal" if terminated else end
            self._rest(end)
            last, self._observation = self._observation, {}
            return last, float(terminated), terminated, not terminated, info
        return dict(self._observation), 0.0, False, False, info

    def hold(self) -> None:
        """Leaves the robot still until the next reset: the episode, if one was under way, is over."""
        self._observation = {}
        if self._is_connected:
            self._rest(None)

    def render(self) -> None:
        """Draws nothing: look at the robot."""

    def close(self) -> None:
        """Leaves the robot still and gives it back."""
        if self._is_connected:
            self._is_connected = False
            self._observation = {}
            self._robot.close()

    def scripted_policy(self, seed: int, noise: float = 0.0) -> Policy:
        """Returns the expert of the simulated task of the same name; raises InvalidSetting if there is none."""
        from robo_rl.environments.discovery import make_environment
        from robo_rl.errors import UnknownName

        try:
            task = make_environment(self.environment_spec.name, control=self._control, action_repeat=self._repeat)
        except (UnknownName, TypeError):
            raise InvalidSetting(
                f"There is no simulated task, and so no expert, for {self.environment_spec.name}.", fix="name a run as policy"
            ) from None
        expert: Policy = task.get_wrapper_attr("scripted_policy")(seed=seed, noise=noise)
        return expert

    def take(self, patience: float) -> None:
        """Takes the robot, waiting [s] for the lease of a process that died with it to end; raises RobotBusy after that."""
        end = time.monotonic() + patience
        while True:
            try:
                return self._take()
            except RobotBusy:
                if time.monotonic() > end:
                    raise
                time.sleep(LOOK)

    def _take(self) -> None:
        """Connects, or, where another environment of this process has used the robot meanwhile, takes it again."""
        if not self._is_connected:
            self._robot.connect()
            self._is_connected = True
            return
        try:
            self._robot.pause()
        except RobotBusy:
            self._robot.connect()

    def _execute(self, wanted: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], list[str], str | None]:
        """Returns the robot's action that was executed, why it differs, and why the episode is cut, if it is."""
        done: list[npt.NDArray[np.float32]] = []
        reasons: list[str] = []
        try:
            for _ in range(self._repeat):
                found = self._robot.apply(wanted)  # in [-1, 1] the part of a displacement is the same as the whole
                done.append(found.action)
                reasons += [reason for reason in found.reasons if reason not in reasons]
                self._overruns += self._loop.wait() >= self._loop.period
                self._observation = self._observe()
                if self._scene.success():
                    break
        except (RobotUnavailable, RobotStopped, RobotBusy) as error:
            end = next(words for kind, words in ENDS if isinstance(error, kind))
            why = error.reason if isinstance(error, RobotStopped) else end
            return self._together(done), [*reasons, why], end
        except KeyboardInterrupt:
            self._rest("operator")
            raise
        except Exception as error:  # unforeseen: the arm must not go on meanwhile
            self._robot.stop(f"the environment: {type(error).__name__} in an episode")
            raise
        return self._together(done), reasons, "control_late" if self._overruns > LATE_CYCLES else None

    def _observe(self) -> Observations:
        observation = dict(self._robot.observe())
        self.environment_spec.observation.validate(observation)
        return observation

    def _together(self, done: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        """Returns what the actions of the robot's own periods come to: their mean, with nothing for those that never came.

        Where none came the fingers stay where they were sent last.
        """
        mean = np.mean([*done, *([self._still()] * (self._repeat - len(done)))], axis=0)
        is_position = np.array([name == GRIP for name in self._robot.spec.action.names])
        self._sent = np.where(is_position, done[-1] if done else self._sent, mean).astype(np.float32)
        return self._sent

    def _still(self) -> npt.NDArray[np.float32]:
        """Returns an action of the robot that moves nothing, with the fingers where they are."""
        spec = self._robot.spec.action
        physical = np.clip(np.zeros(spec.size), spec.low, spec.high)
        if GRIP in spec.names and GRIP in self._observation:
            physical[spec.names.index(GRIP)] = self._observation[GRIP][0]
        still: npt.NDArray[np.float32] = np.clip(spec.to_normalized(physical), -1.0, 1.0).astype(np.float32)
        return still

    def _rest(self, end: str | None) -> None:
        """Leaves the arm still after an episode; a camera that is gone is for a person to look at."""
        try:
            if end == "camera_stale":
                self._robot.stop("the environment: a camera's newest picture was too old")
            else:
                self._robot.pause()
        except (RobotUnavailable, RobotStopped, RobotBusy):
            pass  # lost, stopped or given away: its own watchdog holds it

    def _info(self, success: bool | None) -> dict[str, Any]:
        known = {} if success is None else {"success": bool(success)}
        return known | {"reward_terms": {"success": float(bool(success))}}


def repeated(action: ActionSpec, count: int) -> ActionSpec:
    """Returns the spec of actions that last several control periods: displacements grow, positions stay."""
    is_position = [name == GRIP for name in action.names]

    def grown(limits: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(limit if stays else limit * count for limit, stays in zip(limits, is_position, strict=True))

    period = None if action.control_period is None else round(action.control_period * count, 9)
    return replace(action, low=grown(action.low), high=grown(action.high), control_period=period)
