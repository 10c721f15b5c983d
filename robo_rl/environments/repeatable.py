"""Single environments, stepped one by one, that are saved as seeds and actions of their running episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from typing_extensions import override

from robo_rl.environments.vector import LocatedErrors, SequentialEnvironments
from robo_rl.protocols.components import Stateful
from robo_rl.types import Array, StateDict

SeedOf = Callable[[int, int], int]
"""Function from (number of the environment, number of the episode) to the reset seed of the episode."""


class RememberedEpisode(LocatedErrors):
    """Wrapper that gives each episode its own seed, and remembers seed and actions of the running episode."""

    def __init__(self, environment: gymnasium.Env[Any, Any], seed_of: SeedOf) -> None:
        self._seed_of, self._first, self._number = seed_of, 0, 0
        self._sent: list[Array] = []
        super().__init__(environment)

    @override
    def reset(self, *, seed: int | None = None, **options: Any) -> Any:
        self._first, self._number = (self._first, self._number + 1) if seed is None else (seed, 0)
        self._sent = []
        return super().reset(seed=self._seed, **options)

    @override
    def step(self, action: Any) -> Any:
        self._sent.append(np.array(action))
        return super().step(action)

    @property
    def _seed(self) -> int:
        """Reset seed of the running episode; the first episode has the seed of the environment."""
        return self._seed_of(self._first, self._number) if self._number else self._first

    def episode(self) -> StateDict:
        """Return seed, number and actions of the running episode."""
        shape = (len(self._sent), *self._sent[0].shape) if self._sent else (0,)
        return {"first": self._first, "number": self._number, "sent": np.array(self._sent).reshape(shape)}

    def repeat(self, state: StateDict) -> Any:
        """Play a saved episode again, and return its newest observation."""
        self._first, self._number, self._sent = int(state["first"]), int(state["number"]) - 1, []
        if self._number < 0:
            observation, _ = self.reset(seed=self._first)
        else:
            observation, _ = self.reset()
        for action in state["sent"]:
            observation = self.step(action)[0]
        return observation


class RepeatableEnvironments(SequentialEnvironments, Stateful):
    """Vector environment that is saved as the seeds and actions of its running episodes, and restored by repeating them."""

    def __init__(self, environments: SequentialEnvironments, seed_of: SeedOf) -> None:
        made = [RememberedEpisode(each.env, seed_of) for each in environments.envs]  # type: ignore[attr-defined]
        self.remembered = tuple(made)
        waiting = iter(made)
        super().__init__(lambda: next(waiting), len(made), autoreset_mode=environments.autoreset_mode)
        self.is_exact = True
        """False if an episode went another way when it was repeated after a resume."""
        self._newest: dict[str, Array] = {}

    @override
    def located(self, environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        return environment

    @override
    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observations, infos = super().reset(**options)
        self._newest = observations
        return observations, infos

    @override
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        found = super().step(actions)
        self._newest = found[0]
        return found

    @override
    def state_dict(self) -> StateDict:
        episodes = {str(index): each.episode() for index, each in enumerate(self.remembered)}
        return {"episodes": episodes, "observations": {name: values.copy() for name, values in self._newest.items()}}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        saved = state["observations"]
        for index, each in enumerate(self.remembered):
            newest = each.repeat(state["episodes"][str(index)])
            same = (np.asarray(newest[name]).tobytes() == values[index].tobytes() for name, values in saved.items())
            self.is_exact &= all(same)
        self._newest = {name: np.array(values) for name, values in saved.items()}


def repeatable(environments: VectorEnv[Any, Any, Any], seed_of: SeedOf) -> VectorEnv[Any, Any, Any]:
    """Return a vector environment that can be saved as seeds and actions, if the same actions repeat its episodes exactly.

    Otherwise the environment is returned unchanged.
    """
    can = isinstance(environments, SequentialEnvironments) and not isinstance(environments, Stateful)
    if not can or not all(getattr(each.unwrapped, "replays", True) for each in environments.envs):  # type: ignore[attr-defined]
        return environments
    return RepeatableEnvironments(environments, seed_of)  # type: ignore[arg-type]
