"""Episodes of a training at a robot: each begins when its operator asks for it, and the page tells how it goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import gymnasium

from robo_real.console.desk import Desk
from robo_real.console.episodes import Tally
from robo_real.console.human import OPERATOR, ConsoleHuman, Still
from robo_real.console.labels import LabelledByPerson
from robo_real.remote import RemoteRobot
from robo_rl.errors import RobotError
from robo_rl.types import DISCARDED

Step = tuple[Any, float, bool, bool, dict[str, Any]]
HOLDS = "The arm holds: the learner is starting or catching up."
READY = "The learner is ready."


class EpisodeStarter(Protocol):
    """The operator as an environment needs it."""

    desk: Desk
    still: Still
    tally: Tally

    def wait_for_start(self, may_begin: Callable[[], bool]) -> None:
        """Returns when the operator wants an episode to begin; raises KeyboardInterrupt once nobody waits any more."""


class AskedFor(LabelledByPerson):
    """A robot's environment in training; a reset waits for the operator."""

    doing = "training"
    """what the page says"""

    def __init__(self, environment: gymnasium.Env[Any, Any], operator: EpisodeStarter) -> None:
        super().__init__(environment, operator.desk, operator.still)
        self._operator, self._tally = operator, operator.tally
        assert isinstance(self._robot, RemoteRobot)
        self.may_begin: Callable[[], bool] = _always
        """Whether an episode may begin, as far as the training is concerned; asked while the operator is waited for."""
        self.human = ConsoleHuman(operator.desk, self._robot, operator.still)

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode once the operator wants one and the robot is ready; what is in the way stands on the page."""
        while True:
            self._tally.doing = self.doing
            self._operator.wait_for_start(self.may_begin)
            try:
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
        if self.is_discarded:
            info["stop_reason"] = DISCARDED
        if terminated or truncated:
            self._keep(bool(info.get("success")))
            self._over(f"ended: {info['stop_reason']}")
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
        return super().step(action)

    def _keep(self, success: bool) -> None:
        if not self.is_discarded:
            self._tally.episodes += 1
            self._tally.recent.append(success)

    def _over(self, message: str) -> None:
        self._desk.end()
        self._tally.state, self._tally.acts, self._tally.message = "waiting", "", message


def _always() -> bool:
    return True


class Judged(AskedFor):
    """A robot's environment in an evaluation: the operator begins, stops and labels; to take over ends it as no success."""

    doing = "evaluation: to take over ends the episode as no success"

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
