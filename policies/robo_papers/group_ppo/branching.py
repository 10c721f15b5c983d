"""Episodes that begin in the middle of another episode."""

from __future__ import annotations

from typing import Any

import gymnasium
from typing_extensions import override

from robo_rl.environments.restored_states import restored
from robo_rl.spec.environment import Observation
from robo_rl.types import Episode


class BranchingEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper whose episodes begin in a state of another episode, as long as one is named in `branch`."""

    branch: tuple[Episode, int] | None = None
    """A recorded episode of this environment, and the number of its steps before the state. None: episodes begin as the task
    does."""

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        if self.branch is None:
            found: tuple[Observation, dict[str, Any]] = self.env.reset(seed=seed, options=options)
            return found
        return restored(self.env, *self.branch, options)
