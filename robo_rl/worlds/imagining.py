"""Imagined steps, drawn from an ensemble of learned dynamics.

N rows, S elements of a state, A of an action, C = S + 1 columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.worlds.dynamics import Dynamics
from robo_rl.worlds.steps import limits_of

Floats = npt.NDArray[np.float32]

BLOCK = 64
"""Number of rows that are computed at once: a row gives the same bits, however many others are computed beside it."""


class Imagined(NamedTuple):
    """N steps that a world model predicts; the numbers of a row that diverged are not finite."""

    states: Floats
    """(N, S) states after the step, clipped to the limits of the spec"""
    rewards: Floats
    """(N,) less the penalty"""
    ends: npt.NDArray[np.bool_]
    """(N,) True if the task ended, drawn with its probability"""
    successes: npt.NDArray[np.bool_]
    """(N,) True if the step was a success, drawn by the same number: an end that is a success comes with it"""
    disagreement: Floats
    """(N,) uncertainty: largest distance of a network's mean from the mean of all, divided by sqrt(C), in deviations of the
    data"""


class Draw(NamedTuple):
    """Random numbers of N imagined steps: the member that predicts, its noise, and the draws of ends and successes."""

    elites: npt.NDArray[np.intp]
    """(N,) place of the member that predicts, among the elites"""
    noise: Floats
    """(N, C) standard normal noise for the change of the state and the reward"""
    chance: Floats
    """(N,) uniform in [0, 1), for ends and successes"""

    @classmethod
    def none(cls, dynamics: Dynamics, count: int) -> Draw:
        """Return the draw without randomness: each prediction is then the mean of the first elite network."""
        noise, chance = np.zeros((count, dynamics.states + 1), np.float32), np.full(count, 0.5, np.float32)
        return cls(np.zeros(count, np.intp), noise, chance)

    @classmethod
    def of(cls, random: np.random.Generator, dynamics: Dynamics, count: int) -> Draw:
        """Draw the random numbers for `count` imagined steps."""
        elites = random.integers(dynamics.config.elites, size=count)
        noise = random.standard_normal((count, dynamics.states + 1), np.float32)
        return cls(elites, noise, random.random(count, np.float32))


class Imagination:
    """Simulator of steps by an ensemble of learned dynamics, in which doubtful steps may cost reward.

    Yu et al. 2020, "MOPO: Model-based Offline Policy Optimization", arXiv:2005.13239, equation 6: r - lambda u(s, a). Differs
    from the paper: u is the disagreement of the members, in deviations of the data; there it is the largest norm of their own
    deviations, in units of reward.
    """

    def __init__(self, spec: EnvironmentSpec, dynamics: Dynamics, penalty: float = 0.0) -> None:
        """penalty: lambda, deviations of reward that one of disagreement costs; raises InvalidSetting if none can disagree."""
        if penalty and dynamics.config.elites < 2:
            what, fix = "A penalty needs members that can disagree.", "fit with 2 elites or more, or set the penalty to 0"
            raise InvalidSetting(what, got="1 elite", allowed="2 elites or more", fix=fix)
        self.spec, self.dynamics, self.penalty = spec, dynamics, penalty
        self._low, self._high = limits_of(spec)

    def step(self, states: Floats, actions: Floats, draw: Draw) -> Imagined:
        """Imagine the steps that follow from actions (N, A), coded as vectors, in states (N, S)."""
        parts = [self._step(*part) for part in _blocks(states, actions, *draw)]
        joined = (np.concatenate(values)[: len(states)] for values in zip(*parts, strict=True))
        return Imagined(*joined)

    @torch.no_grad()
    def _step(self, states: Floats, actions: Floats, *chosen_by: npt.NDArray[Any]) -> Imagined:
        elites, noise, chance = Draw(*chosen_by)
        dynamics, device = self.dynamics, self.dynamics.scale.device
        inputs = torch.from_numpy(np.concatenate([states, actions], 1)).to(device)
        means, log_variances, logits = (each[dynamics.elites] for each in dynamics(inputs))
        spread = (means - means.mean(0)).square().mean(-1).sqrt().amax(0)
        chosen, row = torch.from_numpy(elites).to(device), torch.arange(len(inputs), device=device)
        drawn = means[chosen, row] + torch.exp(0.5 * log_variances[chosen, row]) * torch.from_numpy(noise).to(device)
        targets = (drawn * dynamics.scale + dynamics.centre).cpu().numpy()
        told = logits.sigmoid().mean(0).cpu().numpy() > chance[:, None]
        doubt = spread.cpu().numpy()
        rewards = targets[:, -1] - np.float32(self.penalty * float(dynamics.scale[-1])) * doubt
        return Imagined(self._within(states + targets[:, :-1]), rewards, told[:, 0], told[:, 1], doubt)

    def mean_step(self, states: Floats, actions: Floats) -> tuple[Floats, Floats]:
        """Return the mean prediction of the ensemble's best networks: states (N, S) after the step, and rewards (N,)."""
        targets, _ = distribution(self.dynamics, states, actions)
        return self._within(states + targets[:, :-1]), targets[:, -1]

    def _within(self, states: Floats) -> Floats:
        """Return states within the limits of the spec; what is not finite stays so."""
        with np.errstate(invalid="ignore"):
            return np.clip(states, self._low, self._high)


@torch.no_grad()
def distribution(dynamics: Dynamics, states: Floats, actions: Floats) -> tuple[Floats, Floats]:
    """Return mean and deviation (N, C) of the ensemble's predictions for the state's change and the reward."""
    inputs = torch.from_numpy(np.concatenate([states, actions], 1)).to(dynamics.scale.device)
    means, log_variances, _ = (each[dynamics.elites] for each in dynamics(inputs))
    variance = torch.exp(log_variances).mean(0) + means.var(0, correction=0)
    found = means.mean(0) * dynamics.scale + dynamics.centre, variance.sqrt() * dynamics.scale
    mean, deviation = (each.cpu().numpy() for each in found)
    return mean, deviation


def _blocks(*arrays: npt.NDArray[Any]) -> Iterator[list[npt.NDArray[Any]]]:
    """Yield blocks of BLOCK rows of some arrays, the last one filled up with its last row."""
    for begin in range(0, len(arrays[0]), BLOCK):
        rows = np.minimum(np.arange(begin, begin + BLOCK), len(arrays[0]) - 1)
        yield [array[rows] for array in arrays]
