"""The wrapper `time_limit`, for environments without a time limit or with a longer one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import specification


class TimeLimitEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment whose episodes are truncated after `steps` steps, or at its own limit if that is earlier."""

    def __init__(self, environment: gymnasium.Env[Any, Any], steps: int) -> None:
        super().__init__(environment)
        spec = specification(environment)
        self.environment_spec = replace(spec, max_steps=min(steps, spec.max_steps or steps))
        self._taken = 0

    @override
    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        self._taken = 0
        return super().reset(**arguments)

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        self._taken += 1
        if self._taken == self.environment_spec.max_steps and not terminated:
            truncated, info = True, {"stop_reason": "time_limit", **info}
        return observation, reward, terminated, truncated, info


@dataclass(frozen=True)
class TimeLimitWrapper(EnvironmentWrapper):
    """Settings of the wrapper `time_limit`: truncate episodes after some steps; an earlier limit of the environment stays."""

    changes = ("max_steps",)

    steps: int
    """Steps of an episode, 1 or more."""

    def __post_init__(self) -> None:
        require_allowed(self, {"steps": (self.steps >= 1, "1 or more")})

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> TimeLimitEnv:
        return TimeLimitEnv(environment, self.steps)
