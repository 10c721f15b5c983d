"""Policies in the environment of a dataset and in a world learned from it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Protocol

import gymnasium

from robo_app.display.display import counted
from robo_app.recording.actors import Actor, ActorSettings, actor
from robo_datasets.dataset import Dataset
from robo_papers.world_models.check import PolicyTrial
from robo_rl.environments.make import make_environment
from robo_rl.rollout.episode import rollout
from robo_rl.types import Episode


class TrialSettings(ActorSettings, Protocol):
    """Choice of policies and episodes."""

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies to try, as `robo-rl record --policy` takes them."""

    @property
    def episodes(self) -> int:
        """Number of episodes that each policy plays, once in the real environment and once in the learned world."""

    @property
    def seed(self) -> int:
        """Reset seed of the first episode."""


def policy_trials(folder: Path, dataset: Dataset, settings: TrialSettings) -> list[PolicyTrial]:
    """Return the trials of each policy; raises the errors of `make_environment` and `actor`."""
    if not settings.policies:
        return []
    name, arguments = dataset.card.get("environment") or dataset.spec.name, dataset.card.get("arguments", {})
    found = []
    with closing(make_environment(name, **arguments)) as real, closing(make_environment(f"world:{folder}")) as imagined:
        for policy in settings.policies:
            acting = actor(policy, real, settings)
            sides = (
                [_played(side, acting(seed), seed) for seed in counted(f"{policy} {where}", "episodes", _seeds(settings))]
                for side, where in ((real, "real"), (imagined, "imagined"))
            )
            found.append(PolicyTrial(policy, *sides))
    return found


def _seeds(settings: TrialSettings) -> range:
    return range(settings.seed, settings.seed + settings.episodes)


def _played(environment: gymnasium.Env[object, object], acting: Actor, seed: int) -> Episode:
    return rollout(environment, acting.policy, seed=seed, deterministic=acting.deterministic)
