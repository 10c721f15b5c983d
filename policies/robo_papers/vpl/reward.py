"""The reward `vpl`: that of one user, or of the user whose latent vector is observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from typing_extensions import override

from robo_papers.vpl.model import Answers, FittedUsers, UserRewards, UsersConfig
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.replay.rows import columns_of
from robo_rl.rewards.fitted_folder import bytes_of, fitted, require_named, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.preferences.preference_reward import Pairs
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import Array, Labels

USER = "user"
"""Name of the observation entry with the latent vector of the user whom a policy is to please."""
OPTIONS = "--dataset DATASET --preferences NAME"
"""Options of `robo-rl reward fit vpl`, besides --out."""
AVERAGE = "average"
"""Name of the user about whom nothing is known, with the latent 0."""


def save(
    folder: Path,
    found: FittedUsers,
    answers: Mapping[str, Pairs],
    config: UsersConfig,
    spec: EnvironmentSpec,
    facts: Mapping[str, Any],
) -> None:
    """Write a fitted model, and the latents of its users, durably into a new folder."""
    users = {name: latent_of(found.model, pairs) for name, pairs in answers.items()}
    state = {"arrays": dict(found.model.state_dict()), "config": asdict(config), "spec": spec.to_json(), "users": users}
    save_fitted(folder, "vpl", state | {"facts": dict(facts)})


def latent_of(model: UserRewards, pairs: Pairs) -> list[float]:
    """Return the mean of the posterior (Z,) of a user's answers."""
    found: list[float] = model.posterior(Answers.of(pairs)).mean.tolist()
    return found


class SavedUsers:
    """Fitted model of several users from a folder, with the latents of its users."""

    def __init__(self, folder: str) -> None:
        """Raise CheckpointCorrupt, InvalidSetting if the folder has no such model."""
        saved = fitted(folder, "vpl", options=OPTIONS)
        settings = saved["config"]
        self.config = UsersConfig(**(settings | {"hidden": tuple(settings["hidden"])}))
        self.spec = EnvironmentSpec.from_json(saved["spec"])
        self.latents: dict[str, list[float]] = saved["users"]
        self.facts: Mapping[str, Any] = saved["facts"]
        arrays = tensors_of(saved["arrays"])
        self.model = UserRewards(len(arrays["mean"]), self.config)
        self.model.load_state_dict(arrays)
        self.hash = hash_of(*bytes_of(saved["arrays"]))

    @property
    def names(self) -> list[str]:
        """Names of the users, without their raters' settings."""
        return list(self.latents)

    @property
    def array(self) -> ArraySpec:
        """Spec of the observation entry with a user's latent."""
        meaning = "what is known of the user; 0 is the average"
        return ArraySpec(USER, (self.config.latent,), unit="1", role="goal", meaning=meaning)

    def latent(self, user: str) -> Array:
        """Return the latent (Z,) of a user by name, or by its beginning if no other begins so; raises UnknownName."""
        if user == AVERAGE:
            return np.zeros(self.config.latent, np.float32)
        found = [name for name in self.latents if name == user] or [name for name in self.latents if name.startswith(user)]
        if len(found) != 1 or not user:
            raise UnknownName("user", user, [*self.latents, AVERAGE])
        return np.asarray(self.latents[found[0]], np.float32)


@dataclass(frozen=True)
class UserReward(StepReward):
    """Reward of one of several people: the probability that the person prefers a step to one of the data (VPL).

    The command `robo-rl reward fit vpl` fits the model.
    """

    name: ClassVar[str] = "vpl"

    folder: str = ""
    """Folder that `robo-rl reward fit vpl` wrote."""
    user: str = ""
    """Name of a user, as the fit printed them, or "average"; empty for the user whose latent is observed (wrapper personal)."""

    def __post_init__(self) -> None:
        require_named(self.folder, "vpl")

    @property
    @override
    def identity(self) -> tuple[str, str]:
        latent = self.saved.latent(self.user) if self.user else np.zeros(0, np.float32)
        return self.name, hash_of(self.saved.hash.encode(), latent.tobytes())

    @property
    def fitted_to(self) -> frozenset[str]:
        """Identities of the episodes whose segments were compared; empty if they are unknown."""
        return frozenset(self.saved.facts.get("identities", ()))

    @cached_property
    def saved(self) -> SavedUsers:
        """The fitted model with its users, read from the folder."""
        return SavedUsers(self.folder)

    @override
    def entries(self, place: Place) -> list[str]:
        return [*columns_of(self.saved.spec), *([] if self.user else [USER])]

    @override
    def require(self, place: Place) -> None:
        """Raise SpecMismatch for another environment, InvalidSetting if no user is named or observed."""
        known = self.saved.spec.observation
        there = place.spec.observation
        wrong = [
            f"{name}: {there[name].shape if name in there else 'missing'} here, {known[name].shape} of {self.saved.spec.name}"
            for name in columns_of(self.saved.spec)
            if name not in there or there[name].shape != known[name].shape
        ]
        if wrong:
            raise SpecMismatch("Reward and environment", wrong, fix="fit a reward to this environment's data")
        if self.user:
            self.saved.latent(self.user)
        elif USER not in there:
            raise InvalidSetting(
                "Whose reward?",
                got="no user",
                allowed=", ".join([*self.saved.names, AVERAGE]),
                fix="set user, or add the wrapper personal, by which one is observed",
            )

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the person's preferences for K steps, in (0, 1); a step that is not finite has no label."""
        self.require(place)
        parts = [np.asarray(steps.before[name], np.float32).reshape(len(steps), -1) for name in columns_of(self.saved.spec)]
        rows = np.concatenate([*parts, np.asarray(steps.actions, np.float32)], axis=1)
        latent = self.saved.latent(self.user) if self.user else np.asarray(steps.before[USER], np.float32)
        known = np.isfinite(rows).all(1)
        values = self.saved.model.shares(np.where(known[:, None], rows, 0.0), latent)
        return StepScores(Labels.finite(np.where(known, values, np.nan), dtype=np.float64), {})
