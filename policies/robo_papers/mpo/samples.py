"""Scored episodes as a meta judge is shown them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robo_papers.mpo.rubrics import RubricReward, Sample
from robo_rl.rewards.images.picture_reward import pictures_of
from robo_rl.types import Episode, RewardLabels


def sample_of(model: RubricReward, episode: Episode, labels: RewardLabels) -> Sample:
    """Return the clip of an episode that the judge saw, with its score."""
    pictures = pictures_of(episode.observations, model.camera)
    instruction = model.instruction or episode.instruction or ""
    return Sample(pictures[model.places(len(pictures))], instruction, float(labels.values[-1]), episode.success)


def agreement(samples: Sequence[Sample]) -> str:
    """Return one line: how often a success has a higher score than a failure, ties counting half."""
    good = np.array([each.score for each in samples if each.success is True])
    poor = np.array([each.score for each in samples if each.success is False])
    if not len(good) or not len(poor):
        return f"scores: mean {np.mean([each.score for each in samples]):.2f}; no successes and failures to compare with"
    wins = (good[:, None] > poor).mean() + 0.5 * (good[:, None] == poor).mean()
    return f"scores: a success is above a failure in {wins:.0%} of pairs; means {good.mean():.2f} and {poor.mean():.2f}"
