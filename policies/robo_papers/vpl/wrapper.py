"""The wrapper `personal`: the policy observes the latent vector of the user whom it is to please (reward `vpl`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from typing_extensions import override

from robo_papers.vpl.reward import USER, SavedUsers
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.spec.environment import EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import METADATA

ANY = ""


class PersonalEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper in which each episode belongs to a user, whose latent vector is observed."""

    def __init__(self, environment: gymnasium.Env[Any, Any], users: SavedUsers, user: str = ANY) -> None:
        """user: name, or "average"; empty draws one of all for each episode. Raises UnknownName."""
        super().__init__(environment)
        self._users, self._user = users, user
        if user:
            users.latent(user)
        self.environment_spec = personal_spec(specification(environment), users)
        self.observation_space = self.environment_spec.observation.space
        self._latent = np.zeros(users.config.latent, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the seed also determines its user."""
        observation, info = super().reset(seed=seed, options=options)
        random = self.unwrapped.np_random if seed is None else np.random.default_rng([seed, 2])
        name = self._user or self._users.names[int(random.integers(len(self._users.names)))]
        self._latent = self._users.latent(name)
        info[METADATA] = {**info.get(METADATA, {}), USER: name}
        return {**observation, USER: self._latent.copy()}, info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Take a step in the environment; the user's latent is added to the observation."""
        observation, *rest = super().step(action)
        return ({**observation, USER: self._latent.copy()}, *rest)  # type: ignore[return-value]


def personal_spec(spec: EnvironmentSpec, users: SavedUsers) -> EnvironmentSpec:
    """Return the spec with the entry for the user's latent added."""
    arrays = (*spec.observation.arrays, users.array)
    return replace(spec, name=f"personal:{spec.name}", observation=ObservationSpec(arrays))


@dataclass(frozen=True)
class PersonalWrapper(EnvironmentWrapper):
    """Settings of the wrapper `personal`: observe the latent vector of a user."""

    changes = ("name", "observation")

    users: str
    """Folder that `robo-rl reward fit vpl` wrote."""
    user: str = ANY
    """Name of a user, or "average"; empty draws a user for each episode."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> PersonalEnv:
        return PersonalEnv(environment, SavedUsers(self.users), self.user)
