"""Vector environments out of single ones, for families that offer no batched simulation of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from robo_rl.spec import specification


class SequentialEnvironments(SyncVectorEnv):
    """Single environments stepped one after the other, with the spec and the errors of the batched ones."""

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        super().__init__([make] * num_envs, autoreset_mode=autoreset_mode)
        self.environment_spec = specification(self.envs[0])

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Steps every environment once all actions are known to be sound."""
        return super().step(self.environment_spec.action.validate_batch(actions, self.num_envs))
