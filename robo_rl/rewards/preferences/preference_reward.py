"""Reward learned from comparisons of segments, and the reward model that reads it from its folder.

Bradley & Terry 1952; Christiano et al. 2017, arXiv:1706.03741; Wang et al. 2024 (RL-VLM-F), arXiv:2402.03681.

    P(second is better) = sigmoid( sum_t r(s_t, a_t of second) - sum_t r(s_t, a_t of first) )

Shapes: K members of the ensemble, P pairs, L steps of a segment, B steps, D elements of a step (observation and action).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_rl import fitting
from robo_rl.ensemble import Ensemble
from robo_rl.errors import InvalidSetting, SpecMismatch, require_allowed
from robo_rl.protocols.rewards import RewardModel
from robo_rl.replay.rows import columns_of
from robo_rl.rewards.fitted_folder import bytes_of, fitted, require_named, save_fitted, tensors_of
from robo_rl.rewards.identity import hash_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode, Labels, RewardLabels

FEW = 1000
"""Number of comparisons below which a learned reward is known to be poor if a fifth of the answers are wrong."""


@dataclass(frozen=True)
class BradleyTerryConfig:
    """Settings of a reward fitted to comparisons of segments (Bradley & Terry 1952): ensemble, optimiser, held-out pairs.

    Defaults follow RL-VLM-F as far as possible.
    """

    members: int = 3
    """Networks with different initial weights; their mean is the reward, their deviation its uncertainty."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer."""
    lr: float = 1e-3
    """Learning rate of Adam; the paper has 3e-4 with pictures."""
    batch_size: int = 64
    """Pairs of one update."""
    epochs: int = 30
    """Largest number of passes over the pairs; the weights of the pass with the lowest loss on held-out pairs are kept."""
    held_out: float = 0.1
    """Share of the pairs that is held out for early stopping and for the report; between 0 and 1."""
    seed: int = 0
    """Seed of the initial weights, the order of pairs, and the choice of held-out pairs."""

    def __post_init__(self) -> None:
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in ("members", "batch_size", "epochs")}
        shares = {"lr": (self.lr > 0, "above 0"), "held_out": (0 < self.held_out < 1, "between 0 and 1, both excluded")}
        require_allowed(self, least | shares | {"hidden": (min(self.hidden, default=0) >= 1, "1 or more, at least one layer")})


class Pairs(NamedTuple):
    """P pairs of segments, with labels that say which segment of a pair is better."""

    first: Array
    """(P, L, D) float32, first segment of each pair"""
    second: Array
    """(P, L, D) float32, second segment of each pair"""
    labels: Array
    """(P,) float32: 0 if the first segment is better, 1 if the second is better, 0.5 if they are equal"""


class Fitted(NamedTuple):
    """Result of a fit to comparisons: the reward, and a report of how well it predicts the labels."""

    reward: RewardEnsemble
    report: dict[str, float]
    """Accuracy on decided pairs: "train" and "held_out". Numbers of decided pairs: "train_decided" and "held_out_decided".
    Number of all pairs: "pairs"."""


class RewardEnsemble(Ensemble):
    """Ensemble of K networks whose mean is a reward, scaled to mean 0 and deviation 1 over the data."""

    offset: Tensor
    scale: Tensor

    def __init__(self, size: int, config: BradleyTerryConfig) -> None:
        super().__init__((size, *config.hidden, 1), config.members, config.seed)
        self.register_buffer("offset", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, steps: Tensor) -> Tensor:
        """Return the rewards of steps (B, D) by each of the K networks, (K, B), not yet scaled."""
        return self.outputs(steps)[..., 0]

    @torch.no_grad()
    def rewards(self, steps: Array) -> tuple[Array, Array]:
        """Return the rewards (B,) of steps (B, D), and their standard deviations (B,) over the members."""
        members = ((self(torch.from_numpy(steps)) - self.offset) / self.scale).numpy()
        return members.mean(0), members.std(0)

    @torch.no_grad()
    def calibrate(self, steps: Array) -> None:
        """Set offset and scale so that the rewards of steps (B, D) have mean 0 and deviation 1.

        Comparisons of segments do not determine offset and scale.
        """
        raw = self(torch.from_numpy(steps)).mean(0)
        self.offset.copy_(raw.mean())
        self.scale.copy_(raw.std().clamp_min(1e-6))


def fit(pairs: Pairs, steps: Array, config: BradleyTerryConfig) -> Fitted:
    """Fit an ensemble to comparisons; pairs and steps with a number that is not finite are left out.

    Args:
        pairs: The comparisons.
        steps: (B, D) steps of the whole dataset, from which the scales of inputs and rewards are computed.
        config: Settings of the fit.

    Raises:
        InvalidSetting: There are too few pairs to hold any out.
    """
    known = np.isfinite(pairs.first).all((1, 2)) & np.isfinite(pairs.second).all((1, 2))
    pairs, steps = Pairs(*(part[known] for part in pairs)), steps[np.isfinite(steps).all(1)]
    count = len(pairs.labels)
    held = max(1, round(count * config.held_out))
    if count - held < 1:
        raise InvalidSetting("There are too few comparisons to learn from.", got=count, allowed="2, better thousands")
    torch_generator, generator = torch.Generator().manual_seed(config.seed), np.random.default_rng(config.seed)
    reward = RewardEnsemble(steps.shape[1], config)
    reward.mean.copy_(torch.from_numpy(steps.mean(0)))
    reward.deviation.copy_(torch.from_numpy(steps.std(0)).clamp_min(1e-2))
    order = generator.permutation(count)
    tensors = [torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in pairs]
    train, test = ([tensor[order[part]] for tensor in tensors] for part in (slice(held, None), slice(held)))
    optimizer = torch.optim.Adam(reward.parameters(), config.lr)
    best = fitting.Best(reward)

    def batches() -> Iterator[Tensor]:
        for _ in range(config.epochs):
            yield from torch.split(torch.randperm(count - held, generator=torch_generator), config.batch_size)
            with torch.no_grad():
                best.look(float(loss(reward, *test)))  # wrong answers are learned by heart later than common patterns

    def loss_of(rows: Tensor) -> Tensor:
        return loss(reward, *(tensor[rows] for tensor in train))

    fitting.fit(reward, batches(), loss_of, optimizer, title="preference reward")
    best.restore()
    reward.calibrate(steps)
    sides = {"train": train, "held_out": test}
    report = {name: accuracy(reward, *side) for name, side in sides.items()}
    decided = {f"{name}_decided": float((side[-1] != 0.5).sum()) for name, side in sides.items()}
    return Fitted(reward, {"pairs": count} | report | decided)


def loss(reward: RewardEnsemble, first: Tensor, second: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy [nat] of the labels (P,), averaged over pairs and summed over members."""
    logits = logits_of(reward, first, second)
    each: Tensor = nn.functional.binary_cross_entropy_with_logits(logits, labels.expand_as(logits), reduction="none")
    return each.mean(1).sum()


def logits_of(reward: RewardEnsemble, first: Tensor, second: Tensor) -> Tensor:
    """Return each member's log odds (K, P) that the second segment of a pair is better; segments are (P, L, D)."""
    return _sums(reward, second) - _sums(reward, first)


def _sums(reward: RewardEnsemble, segments: Tensor) -> Tensor:
    each: Tensor = reward(segments.flatten(0, 1))
    return each.view(len(each), *segments.shape[:2]).sum(2)


@torch.no_grad()
def accuracy(reward: RewardEnsemble, first: Tensor, second: Tensor, labels: Tensor) -> float:
    """Return the share of decided pairs (label not 0.5) that the ensemble orders as labelled; NaN without decided pairs."""
    decided = labels != 0.5
    found = logits_of(reward, first, second).mean(0) > 0
    return float((found == (labels > 0.5))[decided].float().mean())


def require_vectors(spec: EnvironmentSpec) -> None:
    """Raise InvalidSetting unless the environment has float observations and continuous actions."""
    if not columns_of(spec) or spec.action.is_discrete:
        raise InvalidSetting(
            f"A reward of this kind reads vectors and continuous actions, and {spec.name} lacks one of them.",
            got=f"observations {', '.join(spec.observation)}; {spec.action.mode} actions",
        )


def inputs_of(spec: EnvironmentSpec, episode: Episode) -> Array:
    """Return the network's inputs (T, D) float32 for the T steps of an episode.

    An input is the float observations before the step, in the order of the spec, then the action.
    """
    sizes = {name: columns.stop - columns.start for name, columns in columns_of(spec).items()}
    parts = [episode.observations[name][:-1].reshape(len(episode), size) for name, size in sizes.items()]
    return np.concatenate([*parts, episode.actions], axis=1, dtype=np.float32)


def save(
    folder: Path, reward: RewardEnsemble, config: BradleyTerryConfig, spec: EnvironmentSpec, facts: Mapping[str, Any]
) -> None:
    """Write a fitted reward durably into a new folder.

    Args:
        folder: The folder, which must be empty or not exist.
        reward: The fitted networks.
        config: Settings of the fit.
        spec: Spec of the environment of the training data.
        facts: Plain values about the training data, such as the identities of its episodes.
    """
    state = {"arrays": dict(reward.state_dict()), "config": asdict(config), "spec": spec.to_json(), "facts": dict(facts)}
    save_fitted(folder, "reward", state)


@dataclass(frozen=True)
class PreferenceReward(RewardModel):
    """Reward of observation and action, learnt from comparisons of segments by `robo-rl reward fit preference`."""

    folder: str = ""
    """Folder that `robo-rl reward fit preference` wrote."""

    def __post_init__(self) -> None:
        require_named(self.folder, "preference")

    @property
    @override
    def identity(self) -> tuple[str, str]:
        return "preference", hash_of(*bytes_of(self._saved["arrays"]))

    @property
    def fitted_to(self) -> frozenset[str]:
        """Identities of the episodes whose segments were compared; empty if they are unknown."""
        return frozenset(self._saved["facts"].get("identities", ()))

    def label(self, episode: Episode) -> RewardLabels:
        """Return the rewards, with deviation 1 over the data of the fit; confidence is 1 / (1 + deviation over the members).

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
