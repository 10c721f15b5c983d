"""Variational preference learning: rewards r(s, a, z) with a latent z of each user (Poddar et al. 2024, arXiv:2408.10075).

"Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning".

    q(z | answers)  =  N(0, 1) times one Gaussian factor for each answer: precisions add
    P(second is better | z)  =  sigmoid( sum_t r(second_t, z) - sum_t r(first_t, z) )
    loss  =  cross entropy on other answers of the same user  +  beta KL( q || N(0, 1) )

Differs from the published code in three points. The code flattens a fixed set of answers, so their order changes z, and more
answers do not make z more certain; here factors are multiplied. The loss is on answers that the encoder has not seen, for else
even coin flips are learned by heart. The KL divergence is the textbook one, with its factor 1/2.

Shapes: P answers, L steps of a segment, D numbers of a step, Z numbers of the latent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.fitting import Best, fit
from robo_rl.rewards.preferences.preference_reward import Pairs
from robo_rl.types import Array

CHECK = 50
"""Number of updates between two measurements of the loss on held-out answers."""


@dataclass(frozen=True)
class UsersConfig:
    """Settings of a reward model of several users and of its fit to their answers: latent, networks, batches."""

    latent: int = 4
    """Z, size of a user's latent vector."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of the hidden layers of both networks."""
    most_answers: int = 16
    """Largest number of answers from which z is inferred; each batch draws a number from 0 to this."""
    targets: int = 16
    """Number of other answers of the same user that are predicted."""
    users: int = 16
    """Number of users in one update, drawn with replacement."""
    updates: int = 2000
    """Number of Adam's steps."""
    lr: float = 1e-3
    """Learning rate of Adam."""
    beta: float = 0.1
    """Weight of the divergence from the prior, per predicted answer."""
    held_out: float = 0.2
    """Share of each user's answers that is not learned from: one half chooses the best update, the other measures it."""
    compared: int = 256
    """Number of states of the dataset with which each state is compared, which gives all users one scale."""
    seed: int = 0
    """Seed of the initial weights and of all draws."""

    def __post_init__(self) -> None:
        counts = ("latent", "most_answers", "targets", "users", "updates", "compared")
        least = {name: (getattr(self, name) >= 1, "1 or more") for name in counts}
        shares = {"held_out": (0 < self.held_out < 1, "between 0 and 1, both excluded"), "beta": (self.beta >= 0, "0 or more")}
        layers = {"hidden": (min(self.hidden, default=0) >= 1, "1 or more, at least one layer"), "lr": (self.lr > 0, "above 0")}
        require_allowed(self, least | shares | layers)


class Answers(NamedTuple):
    """Answers of one or several users: pairs of segments, and which one is better. Leading axes are users."""

    first: Tensor
    """(..., P, L, D) steps of the first segments"""
    second: Tensor
    """(..., P, L, D) steps of the second segments"""
    labels: Tensor
    """(..., P) 0: the first is better, 1: the second is better, 0.5: they are equal"""

    @classmethod
    def of(cls, pairs: Pairs) -> Answers:
        """Return the answers as tensors, from pairs as arrays."""
        return cls(*(torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in pairs))

    def at(self, rows: Array) -> Answers:
        """Return the answers with these numbers (n,), for answers of one user (P, ...)."""
        return Answers(*(part[torch.from_numpy(rows)] for part in self))


class Posterior(NamedTuple):
    """What is known about a user's latent z: a Gaussian with a diagonal covariance."""

    mean: Tensor
    """(..., Z) mean of z"""
    precision: Tensor
    """(..., Z) 1 / variance; that of the prior is 1."""

    def sample(self, generator: torch.Generator, count: int | None = None) -> Tensor:
        """Return one draw of z (..., Z), or `count` draws (count, ..., Z)."""
        shape = self.mean.shape if count is None else (count, *self.mean.shape)
        return self.mean + torch.randn(shape, generator=generator) / self.precision.sqrt()

    @property
    def divergence(self) -> Tensor:
        """(...) KL divergence of this Gaussian from the prior N(0, 1) [nat]."""
        variance = 1.0 / self.precision
        return 0.5 * (variance + self.mean.square() - 1.0 + self.precision.log()).sum(-1)


class UserRewards(nn.Module):
    """Networks for the reward of a step for a user with latent z, and for the posterior of z; both standardise the steps."""

    mean: Tensor
    deviation: Tensor
    compared: Tensor

    def __init__(self, size: int, config: UsersConfig) -> None:
        super().__init__()
        self.latent = config.latent
        generator = torch.Generator().manual_seed(config.seed)
        self.reward = mlp((size + config.latent, *config.hidden, 1), generator)
        self.encoder = mlp((2 * size, *config.hidden, 2 * config.latent), generator)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("deviation", torch.ones(size))
        self.register_buffer("compared", torch.zeros(config.compared, size))

    def rewards(self, steps: Tensor, latent: Tensor) -> Tensor:
        """Return the rewards (...) of steps (..., D), not scaled, for latents that broadcast to (..., Z)."""
        scaled = (steps - self.mean) / self.deviation
        inputs = torch.cat([scaled, latent.expand(*scaled.shape[:-1], self.latent)], -1)
        found: Tensor = self.reward(inputs)[..., 0]
        return found

    def posterior(self, answers: Answers) -> Posterior:
        """Return the posterior q(z | answers) of a user; without answers it is the prior."""
        first, second = (((part - self.mean) / self.deviation).mean(-2) for part in (answers.first, answers.second))
        side = 2.0 * answers.labels[..., None] - 1.0  # an answer is the same if the segments change places
        factors = self.encoder(torch.cat([side * (second - first), (first + second) / 2.0], -1))
        centres, weights = factors[..., : self.latent], functional.softplus(factors[..., self.latent :]) * side.abs()
        precision = 1.0 + weights.sum(-2)
        return Posterior((weights * centres).sum(-2) / precision, precision)

    def logits(self, answers: Answers, latent: Tensor) -> Tensor:
        """Return the log odds (..., P) that the second segment is better, for latents (..., Z)."""
        each = latent[..., None, None, :]
        return self.rewards(answers.second, each).sum(-1) - self.rewards(answers.first, each).sum(-1)

    @torch.no_grad()
    def shares(self, steps: Array, latent: Array) -> Array:
        """Return the chance (B,) that a user prefers each step (B, D) to a step of the dataset; latent: (Z,) or (B, Z)."""
        kinds, places = np.unique(np.atleast_2d(np.asarray(latent, np.float32)), axis=0, return_inverse=True)
        whose = np.broadcast_to(places.ravel(), len(steps))
        rows, found = torch.from_numpy(np.ascontiguousarray(steps, np.float32)), np.zeros(len(steps), np.float32)
        for number, kind in enumerate(torch.from_numpy(kinds)):
            mine = whose == number
            others = self.rewards(self.compared, kind)
            own = self.rewards(rows[torch.from_numpy(mine)], kind)
            found[mine] = torch.sigmoid(own[:, None] - others[None]).mean(1).numpy()
        return found


def mlp(sizes: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Build an MLP with ReLU between the layers; sizes: numbers of units from input to output."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
        for parameter in (layer.weight, layer.bias):
            nn.init.uniform_(parameter, -(inputs**-0.5), inputs**-0.5, generator=generator)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class FittedUsers(NamedTuple):
    """A fitted model of several users, and how well it predicts their held-out answers."""

    model: UserRewards
    accuracies: dict[int, float]
    """Number n of known answers -> share of held-out answers that are predicted right from n others of the same user."""
    chance: float
    """Control: share of held-out answers predicted right from `most_answers` answers with random labels. It should be as
    without answers."""


def fit_users(answers: Mapping[str, Pairs], steps: Array, config: UsersConfig) -> FittedUsers:
    """Fit a model to the answers of several users.

    Args:
        answers: Name of a user -> their answers.
        steps: (B, D) steps of the whole dataset, which set mean, deviation and scale.
        config: Settings of the fit.

    Raises:
        InvalidSetting: A user has fewer than four answers, or there is no user.
    """
    few = {name: len(pairs.labels) for name, pairs in answers.items() if len(pairs.labels) < 4}
    if few or not answers:
        got = ", ".join(f"{name}: {count}" for name, count in few.items()) or "no users"
        raise InvalidSetting("A user has too few answers to learn from.", got=got, allowed="4 or more, better dozens")
    generator, random = torch.Generator().manual_seed(config.seed), np.random.default_rng(config.seed)
    model = UserRewards(steps.shape[1], config)
    model.mean.copy_(torch.from_numpy(steps.mean(0)))
    model.deviation.copy_(torch.from_numpy(steps.std(0)).clamp_min(1e-2))
    rows = random.choice(len(steps), config.compared)
    model.compared.copy_(torch.from_numpy(np.ascontiguousarray(steps[rows], np.float32)))
    taught, chosen, held = zip(*(_parted(pairs, config.held_out, random) for pairs in answers.values()), strict=True)
    optimizer = torch.optim.Adam(model.parameters(), config.lr)
    best = Best(model)

    def batches() -> Iterator[tuple[Answers, Answers]]:
        """Yield known answers, and others to be predicted, of some users; the number of known ones is the same for all."""
        for update in range(config.updates):
            if update % CHECK == 0:
                best.look(held_out_loss(model, taught, chosen, config.most_answers))
            count = int(random.integers(config.most_answers + 1))
            drawn = [taught[user] for user in random.integers(len(taught), size=config.users).tolist()]
            parts = [_drawn(pairs, count, config.targets, random) for pairs in drawn]
            context, targets = (Answers(*map(torch.stack, zip(*each, strict=True))) for each in zip(*parts, strict=True))
            yield context, targets

    def loss(answers: tuple[Answers, Answers]) -> Tensor:
        context, targets = answers
        posterior = model.posterior(context)
        logits = model.logits(targets, posterior.sample(generator))
        errors = functional.binary_cross_entropy_with_logits(logits, targets.labels, reduction="none").mean(1)
        return (errors + config.beta * posterior.divergence / config.targets).mean()

    fit(model, batches(), loss, optimizer, title="users")
    best.look(held_out_loss(model, taught, chosen, config.most_answers))
    best.restore()  # few answers are soon learned by heart
    counts = sorted({0, 1, 3, 8, config.most_answers})
    accuracies = {count: held_out_accuracy(model, taught, held, count, random) for count in counts}
    flipped = [each._replace(labels=torch.from_numpy(_coins(len(each.labels), random))) for each in taught]
    return FittedUsers(model, accuracies, held_out_accuracy(model, flipped, held, config.most_answers, random))


@torch.no_grad()
def held_out_loss(model: UserRewards, known: Sequence[Answers], asked: Sequence[Answers], count: int) -> float:
    """Return the mean cross entropy [nat] of the answers `asked`, given the first `count` of the answers `known`.

    Both have one entry for each user.
    """
    losses = []
    for own, other in zip(known, asked, strict=True):
        latent = model.posterior(own.at(np.arange(min(count, len(own.labels))))).mean
        losses.append(functional.binary_cross_entropy_with_logits(model.logits(other, latent), other.labels))
    return float(torch.stack(losses).mean())


@torch.no_grad()
def held_out_accuracy(
    model: UserRewards, known: Sequence[Answers], asked: Sequence[Answers], count: int, random: np.random.Generator
) -> float:
    """Return the share of the answers `asked` that are predicted right from `count` of the answers `known`.

    Both have one entry for each user. Known answers are drawn ten times; answers "equal" are not counted.
    """
    right: list[Tensor] = []
    for own, other in zip(known, asked, strict=True):
        decided = other.labels != 0.5
        for _ in range(10):
            context, _ = _drawn(own, count, 1, random)
            found = torch.gt(model.logits(other, model.posterior(context).mean), 0)
            right.append((found == torch.gt(other.labels, 0.5))[decided])
    return float(torch.cat(right).float().mean())


@torch.no_grad()
def information_gain(model: UserRewards, posterior: Posterior, pairs: Pairs, *, draws: int = 64, seed: int = 0) -> Array:
    """Return how much the answer to each pair would tell about the user [nat], (P,): H(mean of p) - mean of H(p).

    p: chance that the second segment is preferred, for each of `draws` latents from the posterior. H: entropy.
    """
    latents = posterior.sample(torch.Generator().manual_seed(seed), draws)
    asked = Answers.of(pairs)
    chances = torch.stack([torch.sigmoid(model.logits(asked, latent)) for latent in latents])
    return np.asarray(_entropy(chances.mean(0)) - _entropy(chances).mean(0))


def _entropy(chances: Tensor) -> Tensor:
    clipped = chances.clamp(1e-6, 1 - 1e-6)
    return -(clipped * clipped.log() + (1 - clipped) * (1 - clipped).log())


def _parted(pairs: Pairs, share: float, random: np.random.Generator) -> tuple[Answers, Answers, Answers]:
    """Return three parts of a user's answers: to learn from, to choose the best update by, and to measure with."""
    order, whole = random.permutation(len(pairs.labels)), Answers.of(pairs)
    half = max(1, round(share * len(order) / 2))
    return whole.at(order[2 * half :]), whole.at(order[:half]), whole.at(order[half : 2 * half])


def _drawn(answers: Answers, count: int, targets: int, random: np.random.Generator) -> tuple[Answers, Answers]:
    """Return `count` random answers, and `targets` others; answers repeat if there are too few."""
    order = random.permutation(len(answers.labels))
    there = min(count, len(order) - 1)
    return answers.at(np.resize(order[:there], count)), answers.at(np.resize(order[there:], targets))


def _coins(count: int, random: np.random.Generator) -> Array:
    return random.integers(2, size=count).astype(np.float32)
