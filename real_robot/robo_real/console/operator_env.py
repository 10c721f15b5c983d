"""Environments of a robot whose episodes the operator starts, ends and labels at the console."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import gymnasium
from typing_extensions import override

from robo_real.console.episodes import Tally
from robo_real.console.human import LOST, OPERATOR, ConsoleHuman, HoldAction
from robo_real.console.operator_state import OperatorState
from robo_real.environment import RobotEnv
from robo_real.remote_robot import RemoteRobot
from robo_rl.errors import RobotError
from robo_rl.spec.environment import specification
from robo_rl.types import DISCARDED

Step = tuple[Any, float, bool, bool, dict[str, Any]]
HOLDS = "The arm holds: the learner is starting or catching up."
READY = "The learner is ready."
SHADOWING = "shadow run: the policy is asked and does not act"
JUDGING = "evaluation: if you take over, the episode ends and counts as a failure"
ENDS = {"safety": "the robot was stopped"}
"""stop reason of an episode -> words on the page; other stop reasons are shown as they are"""


class EpisodeStarter(Protocol):
    """Parts of an `Operator` that an environment needs."""

    operator_state: OperatorState
    hold_action: HoldAction
    tally: Tally

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Block until the operator starts an episode; raises KeyboardInterrupt if the wait is cancelled."""


class OperatorEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment of a robot whose `reset` waits until the operator starts an episode.

    The operator may end the episode by a label: success terminates the episode with reward 1, failure and discard truncate it
    with reward 0.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], operator: EpisodeStarter, doing: str) -> None:
        """Wrap the environment of a robot; doing: purpose of the episodes, shown on the page."""
        super().__init__(environment)
        bare = environment.unwrapped
        assert isinstance(bare, RobotEnv)
        bare.is_attended = True
        self._operator_state, self._bare, self._robot = operator.operator_state, bare, bare.robot
        self._hold_action = operator.hold_action
        self._doing = doing
        self.is_discarded = False
        """True if the operator discarded the newest episode"""
        self.is_stored_after = False
        """True if the caller calls `show_end` once it has stored an episode; False to show the end with the last step"""
        self._ending = ""
        self._operator, self._tally = operator, operator.tally
        assert isinstance(self._robot, RemoteRobot)
        self.may_begin: Callable[[], bool] = lambda: True
        """polled during the wait for the operator; an episode may start only if it returns True"""
        self.human = ConsoleHuman(operator.operator_state, self._robot, operator.hold_action)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Wait until the operator starts an episode and the robot is ready; until then the page shows the obstacle.

        Raises KeyboardInterrupt if the wait is cancelled.
        """
        while True:
            self._tally.doing = self._doing
            self._operator.wait_for_start(self.may_begin)
            try:
                self.is_discarded = False
                self._hold_action.reset()
                found = super().reset(**arguments)
                break
            except RobotError as error:
                self._finish(" ".join(str(error).split()))
        self._tally.begin()
        self._tell_time()
        return found

    def step(self, action: Any) -> Step:
        """Execute an action. A label of the operator overrides success and end of the wrapped environment."""
        try:
            observation, reward, terminated, truncated, info = self._step(action)
        except BaseException:
            self._finish("")
            raise
        self._tally.count(self.human.source, reward)
        self._tell_time()
        if terminated or truncated:
            self._keep(bool(info.get("success")))
            self._operator_state.end()
            self._ending = DISCARDED if self.is_discarded else f"ended: {ENDS.get(info['stop_reason'], info['stop_reason'])}"
            if not self.is_stored_after:
                self.show_end()
        return observation, reward, terminated, truncated, info

    def _tell_time(self) -> None:
        spec = specification(self.env)
        if spec.max_steps is not None and spec.action.control_period is not None:
            self._tally.time_left = (spec.max_steps - self._tally.steps) * spec.action.control_period

    def show_end(self) -> None:
        """Show on the page how the episode ended. The operator may then end the program, so the episode must be stored."""
        self._tally.state, self._tally.acts, self._tally.message = "waiting", "", self._ending

    def hold(self) -> None:
        """Hold the robot and end a running episode, because the training waits or ends."""
        self._finish(HOLDS)
        self._bare.hold()

    def close(self) -> None:
        """Hold the robot and end a running episode."""
        self._finish("")
        super().close()

    def _step(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = super().step(action)
        self._hold_action.note(info["executed_action"])
        if self._hold_action.why:
            info["guard"] = [*info["guard"], self._hold_action.why]
        label = self._operator_state.pop_label()
        if not label:
            if info.get("stop_reason") == "safety" and self._operator_state.is_lost:
                info["stop_reason"] = LOST
            return observation, float(reward), terminated, truncated, info
        if not terminated and not truncated:
            with suppress(RobotError):  # lost or stopped: its own watchdog holds it
                self._robot.pause()
        is_success = label == "success"
        self.is_discarded = label == "discard"
        reason = {"success": "goal", "discard": DISCARDED}.get(label, OPERATOR)
        info |= {"success": is_success, "stop_reason": reason}
        info["reward_terms"] = {"success": float(is_success)}
        return observation, float(is_success), is_success, not is_success, info

    def _keep(self, success: bool) -> None:
        if not self.is_discarded:
            self._tally.episodes += 1
            self._tally.recent.append(success)

    def _finish(self, message: str) -> None:
        self._operator_state.end()
        self._ending = message
        self.show_end()


class OperatorEvaluationEnv(OperatorEnv):
    """Environment of a robot for evaluations: an intervention of the operator ends the episode without success."""

    @override
    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._newest, info = super().reset(**arguments)
        self.human.reset()  # there is no supervisor to do it
        return self._newest, info

    @override
    def _step(self, action: Any) -> Step:
        commanded = self.human.command(self._newest, action)
        observation, reward, terminated, truncated, info = super()._step(action if commanded is None else commanded)
        self._newest = observation
        if commanded is None or terminated or truncated:
            return observation, reward, terminated, truncated, info
        with suppress(RobotError):  # lost or stopped: its own watchdog holds it
            self._robot.pause()
        return observation, 0.0, False, True, info | {"success": False, "stop_reason": OPERATOR}

    @override
    def _keep(self, success: bool) -> None:
        """Do not count the episode, since the page shows the rates of the training."""
