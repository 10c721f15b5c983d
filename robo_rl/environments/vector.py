"""Vector environments made of single environments, for families without a batched simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from typing_extensions import override

from robo_rl.environments import stepping
from robo_rl.environments.stepping import executed_action
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import specification
from robo_rl.types import Metrics


def autoreset_mode_of(mode: AutoresetMode | str) -> AutoresetMode:
    """Return Gymnasium's autoreset mode for a value such as "SameStep"; raises InvalidSetting."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        allowed = [mode.value for mode in AutoresetMode]
        raise InvalidSetting("Unknown autoreset_mode.", got=repr(mode), allowed=allowed) from None


class LocatedErrors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that turns failures inside an environment into errors with the environment's name; attributes pass through."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        spec = specification(environment)
        self._action = spec.action
        self._name = spec.name  # the last of our own attributes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the wrapped environment, so that restoring its state works through the wrapper."""
        is_ours = "_name" not in self.__dict__ or name in self.__dict__
        super().__setattr__(name, value) if is_ours else setattr(self.env, name, value)

    @override
    def reset(self, **options: Any) -> Any:
        return stepping.reset(self.env, self._name, **options)

    @override
    def step(self, action: Any) -> Any:
        found = stepping.step(self.env, self._name, action)
        executed_action(self._name, found[4], self._action)
        return found


class SequentialEnvironments(SyncVectorEnv):
    """Vector environment that steps single environments one by one, with spec and errors as batched simulations have."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        super().__init__([lambda: self.located(make())] * num_envs, autoreset_mode=autoreset_mode_of(autoreset_mode))
        self.environment_spec = specification(self.envs[0])

    def located(self, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Return the environment in a wrapper whose errors name their origin."""
        return LocatedErrors(environment)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment, after all actions were validated; raises InvalidAction."""
        return super().step(self.environment_spec.action.validate_batch(actions, self.num_envs))


def metrics_of(environments: Any) -> Metrics:
    """Return the metrics that an environment counts itself, summed over a vector environment; empty if there are none."""
    if not isinstance(environments, SyncVectorEnv):
        return getattr(environments.unwrapped, "metrics", None) or {}
    sums: Counter[str] = Counter()
    for environment in environments.envs:
        sums.update(getattr(environment.unwrapped, "metrics", None) or {})
    return {tag: float(value) for tag, value in sums.items()}
