"""Episodes of a training at a robot: each begins when its operator asks for it, and the page tells how it goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import gymnasium

from robo_real.console.desk import Desk
from robo_real.console.episodes import Tally
from robo_real.console.human import LOST, OPERATOR, ConsoleHuman, Still
from robo_real.environment import RobotEnv
from robo_real.remote import RemoteRobot
from robo_rl.errors import RobotError
from robo_rl.types import DISCARDED

Step = tuple[Any, float, bool, bool, dict[str, Any]]
HOLDS = "The arm holds: the learner is starting or catching up."
READY = "The learner is ready."
JUDGING = "evaluation: to take over ends the episode as no success"


class EpisodeStarter(Protocol):
    """The operator as an environment needs it."""

    desk: Desk
    still: Still
    tally: Tally

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Returns when the operator wants an episode to begin; raises KeyboardInterrupt once nobody waits any more."""


class AskedFor(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A robot's environment whose episodes the operator begins, for which a reset waits, and may end by a label.

    Success terminates with reward 1, failure and discard cut the episode.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], operator: EpisodeStarter, doing: str) -> None:
        """doing: what the page says that the episodes are for."""
        super().__init__(environment)
        bare = environment.unwrapped
        assert isinstance(bare, RobotEnv)
        self._desk, self._bare, self._robot, self._still = operator.desk, bare, bare.robot, operator.still
        self._doing = doing
        self.is_discarded = False
        """True if the operator does not want the newest episode kept."""
        self._operator, self._tally = operator, operator.tally
        assert isinstance(self._robot, RemoteRobot)
        self.may_begin: Callable[[], bool] = lambda: True
        """Whether an episode may begin, as far as the training is concerned; asked while the operator is waited for."""
        self.human = ConsoleHuman(operator.desk, self._robot, operator.still)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode once the operator wants one and the robot is ready; what is in the way stands on the page."""
        while True:
            self._tally.doing = self._doing
            self._operator.wait_for_start(self.may_begin)
            try:
                self.is_discarded = False
                self._still.reset()
                found = super().reset(**arguments)
                break
            except RobotError as error:
                self._over(" ".join(str(error).split()))
        self._tally.begin()
        return found

    def step(self, action: Any) -> Step:
        """Commands an action; the operator's label counts more than the environment's own."""
        try:
            observation, reward, terminated, truncated, info = self._stepped(action)
        except BaseException:
            self._over("")
            raise
        self._tally.count(self.human.source, reward)
        if terminated or truncated:
            self._keep(bool(info.get("success")))
            self._over(DISCARDED if self.is_discarded else f"ended: {info['stop_reason']}")
        return observation, reward, terminated, truncated, info

    def hold(self) -> None:
        """Leaves the robot still for the training, which waits or ends; an episode that is under way is over."""
        self._over(HOLDS)
        self._bare.hold()

    def close(self) -> None:
        """Leaves the robot still; an episode that is under way is over."""
        self._over("")
        super().close()

    def _stepped(self, action: Any) -> Step:
        observation, reward, terminated, truncated, info = super().step(action)
        self._still.note(info["executed_action"])
        if self._still.why:
            info["guard"] = [*info["guard"], self._still.why]
        label = self._desk.take_label()
        if not label:
            if info.get("stop_reason") == "safety" and self._desk.is_lost:
                info["stop_reason"] = LOST
            return observation, float(reward), terminated, truncated, info
        if not terminated and not truncated:
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

    def _over(self, message: str) -> None:
        self._desk.end()
        self._tally.state, self._tally.acts, self._tally.message = "waiting", "", message


class Judged(AskedFor):
    """A robot's environment in an evaluation: the operator begins, stops and labels; to take over ends it as no success."""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; no supervisor tells the desk so."""
        self._newest, info = super().reset(**arguments)
        self.human.reset()
        return self._newest, info

    def _stepped(self, action: Any) -> Step:
        commanded = self.human.command(self._newest, action)
        observation, reward, terminated, truncated, info = super()._stepped(action if commanded is None else commanded)
        self._newest = observation
        if commanded is None or terminated or truncated:
            return observation, reward, terminated, truncated, info
        with suppress(RobotError):  # lost or stopped: its own watchdog holds it
            self._robot.pause()
        return observation, 0.0, False, True, info | {"success": False, "stop_reason": OPERATOR}

    def _keep(self, success: bool) -> None:
        """Counts no episode: the page's rates are those of the training."""
