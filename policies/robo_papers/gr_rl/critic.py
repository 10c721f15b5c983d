"""A critic of progress: a distribution over [0, 1] for each state, learned from successes and failures.

After GR-RL (ByteDance Seed 2025, "GR-RL: Going Dexterous and Precise for Long-Horizon Robotic Manipulation",
arXiv:2512.01801), section on filtering. T steps of an episode, D numbers of a state, K members, B rows.

    progress(s_t) = E[ gamma^(T - t) if the episode succeeds, else 0 ]

Differs from the paper: values are those of the recorded behaviour (Monte Carlo); the paper learns a critic of chunks of
actions by TD3+BC; states alone are read. A filter
that looks at the best outcomes alone is sharper: the mean of a state on a detour counts the rest of the detour.
Members are fitted to different episodes, because a network that has seen an episode
knows how long it will take, and finds no lost time in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from robo_rl import fitting
from robo_rl.ensemble import Ensemble
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.types import Array

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ProgressConfig:
    """Settings of a critic of progress and of its fit: number and size of networks, atoms, optimiser."""

    members: int = 3
    """K networks; each leaves out every K-th episode, whose progress it then measures."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers."""
    atoms: int = 51
    """Number of values between 0 and 1 whose probabilities are learned."""
    least: float = 0.1
    """Progress at the beginning of a successful episode of median length; it determines the discount."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    batch_size: int = 256
    """Number of states in one gradient step."""
    updates: int = 4000
    """Gradient steps of each network."""
    seed: int = 0
    """Seed of first weights and batches."""

    def __post_init__(self) -> None:
        least = {name: (getattr(self, name) >= 2, "2 or more") for name in ("members", "atoms")}
        positive = {name: (getattr(self, name) >= 1, "1 or more") for name in ("batch_size", "updates")}
        shares = {"least": (0 < self.least < 1, "between 0 and 1"), "lr": (self.lr > 0, "above 0")}
        layers = {"hidden": (min(self.hidden, default=0) >= 1, "1 or more, at least one layer")}
        require_allowed(self, least | positive | shares | layers)


class Track(NamedTuple):
    """States of an episode, and whether it succeeded."""

    states: Floats
    """(T + 1, D) states of D numbers, that before the first step included"""
    success: bool


class ProgressCritic(Ensemble):
    """K networks that estimate from a state the distribution of progress towards success."""

    values: Tensor
    discount: Tensor

    def __init__(self, size: int, config: ProgressConfig) -> None:
        super().__init__((size, *config.hidden, config.atoms), config.members, config.seed)
        self.register_buffer("values", torch.linspace(0, 1, config.atoms))
        self.register_buffer("discount", torch.ones(()))

    @torch.no_grad()
    def progress(self, states: Floats, *, member: int | None = None, best: float = 1.0) -> Floats:
        """Return the progress (B,) in [0, 1] of states (B, D).

        member: number of one network; None for the mean of all. best: share of outcomes, from the best on, whose mean is taken.
        """
        chances = self.outputs(torch.from_numpy(states)).softmax(-1)
        chances = (chances.mean(0) if member is None else chances[member]).flip(-1)
        above = chances.cumsum(-1)
        taken = above.clamp(max=best) - (above - chances).clamp(max=best)
        found: Floats = (taken @ self.values.flip(0) / taken.sum(-1)).numpy()
        return found


def targets(track: Track, discount: float) -> Floats:
    """Return gamma^(T - t) of each state (T + 1,), 0 for a failure."""
    count = len(track.states)
    left = np.arange(count - 1, -1, -1)
    return (discount**left if track.success else np.zeros(count)).astype(np.float32)


def two_hot(values: Tensor, atoms: int) -> Tensor:
    """Return probabilities (..., atoms) of the two neighbouring atoms of each value in [0, 1], whose mean is the value."""
    places = values.clamp(0, 1) * (atoms - 1)
    low = places.floor().clamp(max=atoms - 2).long()
    share = (places - low)[..., None]
    return functional.one_hot(low, atoms) * (1 - share) + functional.one_hot(low + 1, atoms) * share


def fit(parts: Sequence[Sequence[Track]], config: ProgressConfig) -> ProgressCritic:
    """Fit a critic to K parts of the tracks: member k leaves out part k. States that are not finite are left out.

    Raises InvalidSetting without successes.
    """
    tracks = [track for part in parts for track in part]
    lengths = [len(track.states) - 1 for track in tracks if track.success and len(track.states) > 1]
    if len(tracks) < config.members or not lengths:
        raise InvalidSetting(
            "There are too few episodes to learn progress from.",
            got=f"{len(tracks)} episodes, {len(lengths)} of them successes with steps",
            allowed=f"{config.members} or more, one success at least, better a hundred",
            fix="record more, of a task with success",
        )
    critic = ProgressCritic(tracks[0].states.shape[1], config)
    discount = config.least ** (1.0 / float(np.median(lengths)))
    states = np.concatenate([track.states for track in tracks])
    aims = np.concatenate([targets(track, discount) for track in tracks])
    folds = np.concatenate([np.full(sum(len(track.states) for track in part), number) for number, part in enumerate(parts)])
    known = np.isfinite(states).all(1)
    states, aims, folds = states[known], aims[known], folds[known]
    critic.mean.copy_(torch.from_numpy(states.mean(0)))
    critic.deviation.copy_(torch.from_numpy(states.std(0)).clamp_min(1e-2))
    critic.discount.fill_(discount)
    learned = [np.flatnonzero(folds != member) for member in range(config.members)]
    generator = np.random.default_rng(config.seed)
    optimizer = torch.optim.Adam(critic.parameters(), config.lr)
    rows, wanted = torch.from_numpy(states), torch.from_numpy(aims)

    def loss(drawn: Tensor) -> Tensor:
        """Return the cross entropy of states (K, B), summed over members."""
        return -(two_hot(wanted[drawn], config.atoms) * critic.outputs(rows[drawn]).log_softmax(-1)).sum(-1).mean(1).sum()

    batches = (np.stack([generator.choice(part, config.batch_size) for part in learned]) for _ in range(config.updates))
    fitting.fit(critic, map(torch.from_numpy, batches), loss, optimizer, title="progress")
    return critic


def lost_share(progress: Array, discount: float, window: int) -> npt.NDArray[np.float64]:
    """Return for each step the share of lost steps among the `window` steps around it, (T,).

    Progress p means that log p / log gamma steps are left. 0: each step made progress; 1: none did; above 1: progress fell. At
    both ends of the episode the window is shorter.

    Args:
        progress: (T + 1,) progress of the states.
        discount: gamma.
        window: Number of steps.
    """
    left = np.log(np.clip(progress, 1e-6, 1.0)) / np.log(discount)
    now, last = np.arange(len(progress) - 1), len(progress) - 1
    start, stop = np.maximum(now - window // 2, 0), np.minimum(now + 1 + (window - 1) // 2, last)
    return np.asarray(1.0 - (left[start] - left[stop]) / (stop - start))
