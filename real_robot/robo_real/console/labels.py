"""Ends an episode when the operator labels it."""

from __future__ import annotations

from typing import Any

import gymnasium

from robo_real.console.desk import Desk
from robo_real.console.human import LOST, OPERATOR, Still
from robo_real.environment import RobotEnv


class LabelledByPerson(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A robot whose operator may end the episode: success terminates with reward 1, failure and discard cut it."""

    def __init__(self, environment: gymnasium.Env[Any, Any], desk: Desk, still: Still) -> None:
        super().__init__(environment)
        bare = environment.unwrapped
        assert isinstance(bare, RobotEnv)
        self._desk, self._bare, self._robot, self._still = desk, bare, bare.robot, still
        self.is_discarded = False
        """whether the operator does not want the newest episode kept"""

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        self.is_discarded = False
        self._still.reset()
        return super().reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Commands an action; the operator's label counts more than the environment's own."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._still.note(info["executed_action"])
        if self._still.why:
            info["guard"] = [*info["guard"], self._still.why]
        label = self._desk.take_label()
        if not label:
            if info.get("stop_reason") == "safety" and self._desk.is_lost:
                info["stop_reason"] = LOST
            return observation, reward, terminated, truncated, info
        if not terminated and not truncated:
            self._robot.pause()
        is_success = label == "success"
        self.is_discarded = label == "discard"
        info |= {"success": is_success, "stop_reason": "goal" if is_success else OPERATOR}
        info["reward_terms"] = {"success": float(is_success)}
        return observation, float(is_success), is_success, not is_success, info
