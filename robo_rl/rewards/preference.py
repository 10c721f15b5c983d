"""The reward that was fitted to comparisons, as a reward model: what `robo-rl reward fit` leaves in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.reward_protocols import RewardModel
from robo_rl.rewards.bradley_terry import BradleyTerryConfig, RewardEnsemble
from robo_rl.rewards.fitted_folder import bytes_of, fitted, require_named, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.rows import columns_of
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import Array, Episode, Labels, RewardLabels


def require_vectors(spec: EnvironmentSpec) -> None:
    """Raises InvalidSetting unless there are float observations and continuous actions."""
    if not columns_of(spec) or spec.action.is_discrete:
        raise InvalidSetting(
            f"A reward of this kind reads vectors and continuous actions, and {spec.name} lacks one of them.",
            got=f"observations {', '.join(spec.observation)}; {spec.action.mode} actions",
        )


def inputs_of(spec: EnvironmentSpec, episode: Episode) -> Array:
    """Returns (T, D) float32: for each step all float observations side by side, in the order of the spec, then the action."""
    sizes = {name: columns.stop - columns.start for name, columns in columns_of(spec).items()}
    parts = [episode.observations[name][:-1].reshape(len(episode), size) for name, size in sizes.items()]
    return np.concatenate([*parts, episode.actions], axis=1, dtype=np.float32)


def save(
    folder: Path, reward: RewardEnsemble, config: BradleyTerryConfig, spec: EnvironmentSpec, facts: Mapping[str, Any]
) -> None:
    """Writes a fitted reward durably into a new folder; `facts` say what it was fitted to."""
    state = {"arrays": dict(reward.state_dict()), "config": asdict(config), "spec": spec.to_json(), "facts": dict(facts)}
    save_fitted(folder, "reward", state)


@dataclass(frozen=True)
class PreferenceReward(RewardModel):
    """A reward fitted to comparisons (robo-rl reward fit preference), of state and action."""

    folder: str = ""
    """What `robo-rl reward fit` wrote."""

    def __post_init__(self) -> None:
        require_named(self.folder, "preference")

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of all parameters."""
        return "preference", hash_of(*bytes_of(self._saved["arrays"]))

    @property
    def fitted_to(self) -> frozenset[str]:
        """Identities of the episodes of which segments were compared; empty where none are known."""
        return frozenset(self._saved["facts"].get("identities", ()))

    def label(self, episode: Episode) -> RewardLabels:
        """Returns rewards that have deviation 1 over the data it was fitted to, and the agreement of the members as confidence.

        Raises SpecMismatch for an episode of another environment.
        """
        if episode.spec_fingerprint != self._spec.fingerprint:
            difference = (
                f"fingerprint: {episode.spec_fingerprint!r} of the episode, {self._spec.fingerprint!r} of {self._spec.name}"
            )
            raise SpecMismatch("Reward and episode", [difference], fix="fit a reward to this environment's data")
        values, doubt = self._ensemble.rewards(inputs_of(self._spec, episode))
        valid = np.isfinite(values)
        confidence = np.where(valid, 1 / (1 + np.where(valid, doubt, 0)), 0).astype(np.float32)
        return Labels.finite(values).by(self.identity, confidence=confidence)

    @cached_property
    def _saved(self) -> dict[str, Any]:
        return fitted(self.folder, "reward", kind="preference")

    @cached_property
    def _spec(self) -> EnvironmentSpec:
        return EnvironmentSpec.from_json(self._saved["spec"])

    @cached_property
    def _ensemble(self) -> RewardEnsemble:
        settings = self._saved["config"]
        config = BradleyTerryConfig(**(settings | {"hidden": tuple(settings["hidden"])}))
        arrays = tensors_of(self._saved["arrays"])
        ensemble = RewardEnsemble(len(arrays["mean"]), config)
        ensemble.load_state_dict(arrays)
        return ensemble
