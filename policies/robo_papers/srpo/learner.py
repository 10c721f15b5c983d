"""SRPO: a clone that is refined by success; failures may be worth as much as they resemble successes (`score: progress`).

Fei et al. 2025, "SRPO: Self-Referential Policy Optimization for Vision-Language-Action Models", arXiv:2511.15605;
group-relative advantages of Shao et al. 2024 (GRPO), arXiv:2402.03300. E episodes of a batch, Z numbers of an embedding.

    d_i = distance of failure i to the nearest cluster of successes,   score_i = 0.6 sigmoid(10 (0.5 - n_i)),   success: 1
    A_i = (score_i - mean of its group) / deviation of its group,      the same for all steps of an episode

By default score_i = 0, which was as good or better on the arm (page.md). n_i is d_i scaled to [0, 1]. The authors' code scales
it by the least and the largest of the batch, and clusters with a radius in which, beyond a few dimensions, no two successes
lie: their centre is then the mean. `scale: running` and clusters by a quantile of distances are ours; `scale: batch` and
`clusters: official` are theirs.

Differs from the paper: episodes are embedded by their standardised states, the mean and the last one side by side, because the
mean alone forgets the order; the paper has a video network. The policy is cloned from demonstrations first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist
from typing_extensions import override

from robo_policies.learners.episodic import ClippedLearner, Cloning, EpisodeActor, Figures, Rule
from robo_policies.learners.episodic_settings import ClippedSettings
from robo_policies.learners.group_credit import group_advantages
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.contract import EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, StateDict

Floats = npt.NDArray[np.float64]
LARGEST, STEEPNESS = 0.6, 10.0
"""Largest score of a failure, and steepness of its sigmoid."""
RADIUS, LEAST_NEAR = 0.5, 2
"""Settings of DBSCAN in the authors' code: distance of standardised neighbours, and number of neighbours, oneself included, of
a core point."""
REMEMBERED = 256
"""Number of recent failures whose distances set the scale."""


@dataclass(frozen=True)
class SRPOConfig(ClippedSettings):
    """Settings of SRPO (Fei et al. 2025, arXiv:2511.15605): GRPO after cloning, with scores for failures.

    They set the cloning, and whether and how failures are compared with successes. `group` episodes begin in one state.
    """

    needs = Needs(
        (EPISODES,), frozenset({Feature.CONTINUOUS, Feature.DISCRETE}), {Feature.REWARD: "leave reward out; success counts"}
    )
    takes_demonstrations = True

    group: int = 8
    """Episodes of a group, which begin in the same state; divides `episodes`."""
    episodes: int = 32
    """Episodes between two updates."""
    cloning: Cloning = Cloning()
    """Cloning of demonstrations before the first episode."""
    score: Literal["outcome", "progress"] = "outcome"
    """outcome: 0 for each failure; progress: failures are compared with successes, as in the paper."""
    scale: Literal["running", "batch"] = "running"
    """Scale of distances: quantiles of recent failures, or least and largest of the batch as in the authors' code."""
    clusters: Literal["quantile", "official"] = "quantile"
    """Radius of DBSCAN: the 20 % quantile of distances between successes, or 0.5 as in the authors' code."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"group": (self.group >= 2, "2 or more: an episode is compared with its group")})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ClippedLearner:
        actor = self.actor(spec, seed)
        return ClippedLearner(actor, self, Resemblance(actor, self), cloning=self.cloning)


class Resemblance(Rule):
    """Rule of SRPO: the advantage of an episode is its score, standardised within its group."""

    def __init__(self, actor: EpisodeActor, config: SRPOConfig) -> None:
        self._actor, self._config = actor, config
        self.distances: deque[float] = deque(maxlen=REMEMBERED)

    @override
    def of(self, episodes: Sequence[Episode]) -> tuple[Floats, Figures]:
        if any(each.success is None for each in episodes):
            raise InvalidSetting("SRPO learns from success, and the environment has no notion of it.", got="success: None")
        share, scores = float(np.mean([each.success is True for each in episodes])), self.scores(episodes)
        advantages = group_advantages(scores, self._config.group)
        figures: Figures = {"score": float(scores.mean()), "success": share}
        return np.repeat(advantages, [len(each) for each in episodes]), figures

    def scores(self, episodes: Sequence[Episode]) -> Floats:
        """Return the score (E,) of each episode: 1 for a success, less for a failure the farther it is from the successes."""
        success = np.array([each.success is True for each in episodes])
        if self._config.score == "outcome" or success.all() or not success.any():
            return success.astype(np.float64)
        found = np.ones(len(episodes))
        embedded = self.embedded(episodes)
        distances = to_successes(embedded[~success], embedded[success], self._config.clusters)
        self.distances.extend(distances.tolist())
        low, high = (distances.min(), distances.max())
        if self._config.scale == "running":
            low, high = np.quantile(self.distances, [0.05, 0.95])
        found[~success] = failure_scores(distances, float(low), float(high))
        return found

    def embedded(self, episodes: Sequence[Episode]) -> Floats:
        """Return (E, Z): the mean state of each episode and its last one, standardised over the batch."""
        encoder = self._actor.parts.encoder
        seen = [{name: each.observations[name] for name in encoder.reads} for each in episodes]
        states = [encoder.stack(each).astype(np.float64) for each in seen]
        whole = np.concatenate(states)
        deviation = np.maximum(whole.std(0), 1e-6)
        rows = [np.concatenate([each.mean(0), each[-1]]) for each in states]
        return np.asarray((np.stack(rows) - np.tile(whole.mean(0), 2)) / np.tile(deviation, 2))

    @override
    def state_dict(self) -> StateDict:
        return {"distances": list(self.distances)}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.distances = deque((float(each) for each in state["distances"]), maxlen=REMEMBERED)


def failure_scores(distances: Floats, low: float, high: float) -> Floats:
    """Return the scores of failures, 0.6 sigmoid(10 (0.5 - n)), with n the place of a distance between low and high.

    n is 0.5 if low and high are equal.
    """
    places = np.clip((distances - low) / (high - low), 0.0, 1.0) if high - low >= 1e-6 else np.full(len(distances), 0.5)
    return np.asarray(LARGEST / (1.0 + np.exp(-STEEPNESS * (0.5 - places))))


def to_successes(failures: Floats, successes: Floats, kind: Literal["quantile", "official"]) -> Floats:
    """Return the distance of each failure (F,) to the nearest centre of a cluster of successes."""
    deviation = np.maximum(successes.std(0), 1e-6)
    scaled = (successes - successes.mean(0)) / deviation
    between = cdist(scaled, scaled)
    apart = between[np.triu_indices(len(between), 1)]
    radius = RADIUS if kind == "official" or not len(apart) else float(np.quantile(apart, 0.2))
    labels = density_clusters(between, radius, LEAST_NEAR)
    centres = [successes[labels == label].mean(0) for label in range(labels.max(initial=-1) + 1)] or [successes.mean(0)]
    return np.asarray(cdist(failures, np.stack(centres)).min(1))


def density_clusters(distances: Floats, radius: float, least: int) -> npt.NDArray[np.int64]:
    """Return the cluster (N,) of each point, -1 for noise, by DBSCAN (Ester et al. 1996), given distances (N, N)."""
    near = distances <= radius
    core = near.sum(1) >= least
    labels = np.full(len(distances), -1, np.int64)
    if not core.any():
        return labels
    _, labels[core] = connected_components(near[np.ix_(core, core)], directed=False)
    for point in np.flatnonzero(~core):
        if (neighbours := np.flatnonzero(near[point] & core)).size:
            labels[point] = labels[neighbours[distances[point, neighbours].argmin()]]
    return labels
