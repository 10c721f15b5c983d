"""The reward `progress`: change of progress, without the steps that lost it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from robo_papers.gr_rl.critic import Floats, ProgressConfig, ProgressCritic, Track, lost_share
from robo_rl.errors import InvalidSetting, SpecMismatch, require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.replay.rows import columns_of
from robo_rl.rewards.fitted_folder import bytes_of, fitted, require_named, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Labels, RewardLabels

RETRIES = "retries"
"""Key of an episode's metadata: numbers of the steps at which a try had failed and another one began."""


def states_of(spec: EnvironmentSpec, episode: Episode) -> Floats:
    """Return the states (T + 1, D) of an episode: all float observations side by side."""
    names = columns_of(spec)
    if not names:
        raise InvalidSetting(f"Progress is read from vectors, and {spec.name} observes none.", got=", ".join(spec.observation))
    rows = [np.asarray(episode.observations[name], np.float32).reshape(len(episode) + 1, -1) for name in names]
    return np.concatenate(rows, axis=1)


_RETRY = re.compile(r"\s*+retry\s*+(?:at)?+\s*+(\d++(?:\.\d++)?+)s?\b.*+", re.DOTALL | re.IGNORECASE)
"""As with remarks on spans of time, nothing goes back."""


def retries_in(notes: Iterable[str], episode: Episode) -> list[int]:
    """Return the step numbers of the remarks on an episode that mark a retry, such as "retry at 3.2 s: slipped"."""
    times = episode.timestamps[:-1] - episode.timestamps[0]
    found = (_RETRY.fullmatch(note) for note in notes)
    return [int(np.searchsorted(times, float(each[1]) - 1e-9)) for each in found if each is not None and len(times)]


def tracks_of(spec: EnvironmentSpec, episode: Episode, notes: Iterable[str] = ()) -> list[Track]:
    """Return the tracks of an episode: one as it ended, and for each retry a failure that ends there.

    Retries are in the episode's metadata and in the remarks `notes`.
    """
    states = states_of(spec, episode)
    retries = [*episode.metadata.get(RETRIES, ()), *retries_in(notes, episode)]
    failed = [Track(states[: int(step) + 1], False) for step in retries]
    return [Track(states, episode.success is True), *failed]


def save(folder: Path, critic: ProgressCritic, config: ProgressConfig, spec: EnvironmentSpec, facts: Mapping[str, Any]) -> None:
    """Write a fitted critic durably into a new folder; facts: `folds`, key of an episode -> member."""
    state = {"arrays": dict(critic.state_dict()), "config": asdict(config), "spec": spec.to_json(), "facts": dict(facts)}
    save_fitted(folder, "progress", state)


def key_of(episode: Episode) -> str:
    """Return a hash of an episode's actions and times, by which a critic knows the episodes that it learned from."""
    return hash_of(np.ascontiguousarray(episode.actions).tobytes(), np.ascontiguousarray(episode.timestamps).tobytes())


@dataclass(frozen=True)
class ProgressReward(RewardModel):
    """Reward that is the gain of progress in each step, by a critic of `robo-rl reward fit progress`.

    Steps that lose time have no label, so that no learner sees them.
    """

    folder: str = ""
    """Folder that `robo-rl reward fit progress` wrote."""
    best: float = 0.1
    """Share of the possible outcomes, from the best on, whose mean is the progress; 1 for all."""
    window: int = 10
    """Number of steps around each step in which progress must be made."""
    lost: float = 0.7
    """Largest share of the steps in a window that may be lost. Above 1 only falling progress counts, GR-RL's rule; 2 keeps
    almost all steps."""

    def __post_init__(self) -> None:
        require_named(self.folder, "progress")
        require_allowed(
            self,
            {
                "window": (self.window >= 1, "1 or more"),
                "lost": (self.lost > 0, "above 0"),
                "best": (0 < self.best <= 1, "above 0, to 1"),
            },
        )

    @property
    @override
    def identity(self) -> tuple[str, str]:
        rule = f"{self.best} {self.window} {self.lost}".encode()
        return "progress", hash_of(rule, *bytes_of(self._saved["arrays"]))

    @property
    def fitted_to(self) -> frozenset[str]:
        """Identities of the episodes that the critic learned from; empty if none are known."""
        return frozenset(self._saved["facts"].get("identities", ()))

    @property
    def discount(self) -> float:
        """Discount with which the critic was fitted, 0 to 1."""
        return float(self._critic.discount)

    def label(self, episode: Episode) -> RewardLabels:
        """Return the gains of progress (T,); a step that loses more than allowed, or is not finite, has no label.

        Raises SpecMismatch for an episode of another environment.
        """
        found = self.progress(episode)
        with np.errstate(invalid="ignore"):
            gains = np.diff(found)
            kept = lost_share(found, self.discount, self.window) <= self.lost
        return Labels.finite(np.where(kept, gains, np.nan)).by(self.identity)

    def progress(self, episode: Episode) -> Floats:
        """Return progress (T + 1,) in [0, 1], by the member that has not seen the episode; NaN for unknown states."""
        if episode.spec_fingerprint != self._spec.fingerprint:
            difference = (
                f"fingerprint: {episode.spec_fingerprint!r} of the episode, {self._spec.fingerprint!r} of {self._spec.name}"
            )
            raise SpecMismatch("Critic and episode", [difference], fix="fit a critic to this environment's data")
        states = states_of(self._spec, episode)
        known = np.asarray(np.isfinite(states).all(1))
        member = self._saved["facts"].get("folds", {}).get(key_of(episode))
        found = self._critic.progress(np.where(known[:, None], states, 0.0).astype(np.float32), member=member, best=self.best)
        return np.where(known, found, np.nan).astype(np.float32)

    @cached_property
    def _saved(self) -> dict[str, Any]:
        return fitted(self.folder, "progress", options="--dataset DATASET")

    @cached_property
    def _spec(self) -> EnvironmentSpec:
        return EnvironmentSpec.from_json(self._saved["spec"])

    @cached_property
    def _critic(self) -> ProgressCritic:
        settings = self._saved["config"]
        config = ProgressConfig(**(settings | {"hidden": tuple(settings["hidden"])}))
        arrays = tensors_of(self._saved["arrays"])
        critic = ProgressCritic(len(arrays["mean"]), config)
        critic.load_state_dict(arrays)
        return critic
