"""Strength of the adversary from episode to episode: constant, along a line, or as fast as the policy copes with it.

Constant: Pinto, Davidson, Sukthankar and Gupta 2017, "Robust Adversarial Reinforcement Learning", arXiv:1703.02702. The others:
Reddi, Tölle, Peters, Chalvatzaki and D'Eramo 2024, "Robust Adversarial Reinforcement Learning via Bounded Rationality
Curricula", arXiv:2311.01642. Temperatures are drawn from a Gamma distribution, which moves towards a target within a trust
region as long as the expected return stays above a bound (self-paced learning, Klink et al. 2021, arXiv:2102.13176).

As in the authors' experiments only its shape moves and its rate is fixed. With both free, a maximum of few noisy returns
narrows the distribution to a point in some steps, and from a point no step of bounded divergence leads away.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import digamma, gammaln
from typing_extensions import override

from robo_rl.errors import require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.types import Metrics, StateDict

Floats = npt.NDArray[np.float64]
CANDIDATES = 500
"""Number of shapes that are compared at each step of the distribution, at equal distances of their logarithms."""
SPAN = 10.0
"""Largest factor of the shape in one step that raises the return; the trust region is narrower."""


class Gamma(NamedTuple):
    """Gamma distribution of the adversary's temperatures, with shape and rate."""

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        """Mean temperature of the distribution."""
        return self.shape / self.rate

    def log_density(self, values: Floats) -> Floats:
        """Return the log densities of values, in their shape."""
        return np.asarray(
            self.shape * np.log(self.rate) - gammaln(self.shape) + (self.shape - 1.0) * np.log(values) - self.rate * values
        )

    def divergence(self, other: Gamma) -> float:
        """Return the KL divergence of this distribution from another one [nat], in closed form."""
        shapes = (self.shape - other.shape) * digamma(self.shape) - gammaln(self.shape) + gammaln(other.shape)
        rates = other.shape * (np.log(self.rate) - np.log(other.rate)) + self.shape * (other.rate - self.rate) / self.rate
        return float(shapes + rates)


@dataclass(frozen=True)
class CurriculumSettings:
    """Settings of how strong the adversary is along a training."""

    curriculum: Literal["none", "force", "temperature", "bounded"] = "bounded"
    """"bounded" (QARL): the temperature falls as far as the policy's return allows; "force", "temperature": the largest force
    grows, or the temperature falls, linearly; "none" (RARL): at its strongest from the start."""
    first_temperature: float = 0.05
    """Mean temperature of the adversary at the start, in units of reward per nat: the weight of its entropy."""
    last_temperature: float = 0.001
    """Mean temperature of the adversary at the end, in units of reward per nat."""
    ramp: float = 0.6
    """Only force, temperature: share of the training after which the adversary is at its strongest."""
    first_shape: float = 50.0
    """Only bounded: shape of the Gamma distribution at the start; `first_temperature` then gives its rate, `last_temperature`
    the target's shape: 1 with the defaults."""
    below_bound: Literal["hold", "raise"] = "hold"
    """Only bounded: what happens below the bound. "hold" waits, as the authors' experiments do; "raise" maximises the return
    until the bound was reached once, then waits."""
    return_bound: float = 10.0
    """Only bounded: return xi that the policy must reach for the adversary to become more rational."""
    rollouts: int = 30
    """Only bounded: number of episodes between two steps of the distribution."""
    trust_region: float = 0.5
    """Only bounded: largest KL divergence of a step [nat]."""
    least_samples: float = 0.3
    """Only bounded: smallest effective sample size of the importance weights, as a share of the episodes; it shortens steps."""

    def __post_init__(self) -> None:
        kinds = ("none", "force", "temperature", "bounded")
        allowed = {"curriculum": (self.curriculum in kinds, ", ".join(kinds))}
        is_ordered = 0.0 < self.last_temperature <= self.first_temperature
        allowed["last_temperature"] = (is_ordered, "above 0, at most first_temperature")
        allowed["ramp"] = (0.0 < self.ramp <= 1.0, "above 0, at most 1")
        allowed |= {name: (getattr(self, name) > 0, "above 0") for name in ("first_shape", "trust_region")}
        allowed |= {"rollouts": (self.rollouts >= 2, "2 or more"), "least_samples": (0 <= self.least_samples <= 1, "0 to 1")}
        require_allowed(self, allowed)

    def build_curriculum(self) -> Curriculum:
        """Build the chosen curriculum, at its beginning."""
        return GammaCurriculum(self) if self.curriculum == "bounded" else LinearCurriculum(self)


class Curriculum(Stateful):
    """Base class of curricula that set the strength of the adversary from episode to episode."""

    @property
    def force(self) -> float:
        """Share of the largest force that the adversary may use, from 0 to 1."""
        return 1.0

    @property
    @abstractmethod
    def mean(self) -> float:
        """Mean temperature of the episodes that come next; the trained policy acts as against this temperature."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> float:
        """Return the temperature alpha of an episode."""

    @abstractmethod
    def finish(self, alpha: float, episode_return: float, progress: float) -> Metrics:
        """Learn from an ended episode; return scalars for the log.

        Args:
            alpha: Temperature of the episode.
            episode_return: Return of the policy.
            progress: Share of the training that is over.
        """


class LinearCurriculum(Curriculum):
    """Curriculum with one temperature for all episodes, or with force or temperature along a line."""

    def __init__(self, config: CurriculumSettings) -> None:
        self._config, self._share = config, 0.0

    @property
    @override
    def force(self) -> float:
        """Share of the largest force that the adversary may use in the next episode, 0 to 1."""
        return self._share if self._config.curriculum == "force" else 1.0

    @property
    @override
    def mean(self) -> float:
        """The temperature of the next episode."""
        config = self._config
        share = self._share if config.curriculum == "temperature" else 1.0
        return config.first_temperature + share * (config.last_temperature - config.first_temperature)

    @override
    def draw(self, generator: np.random.Generator) -> float:
        """Return the temperature of the next episode; nothing is random."""
        return self.mean

    @override
    def finish(self, alpha: float, episode_return: float, progress: float) -> Metrics:
        """Move force or temperature along the line; return scalars for the log."""
        self._share = min(1.0, progress / self._config.ramp)
        return {"adversary/temperature": alpha, "adversary/force": self.force}

    @override
    def state_dict(self) -> StateDict:
        return {"share": self._share}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._share = float(state["share"])


class GammaCurriculum(Curriculum):
    """Curriculum of QARL: temperatures are drawn from a Gamma distribution that moves as the policy's return allows."""

    def __init__(self, config: CurriculumSettings) -> None:
        self._config = config
        self.present = Gamma(config.first_shape, config.first_shape / config.first_temperature)
        self.target = Gamma(self.present.rate * config.last_temperature, self.present.rate)
        self.was_reached = False
        """True from the first step at which the mean return was at the bound or above."""
        self._alphas, self._returns = list[float](), list[float]()

    @property
    @override
    def mean(self) -> float:
        """Mean temperature of the present distribution."""
        return self.present.mean

    @override
    def draw(self, generator: np.random.Generator) -> float:
        """Return a temperature; never 0, whose density has no logarithm."""
        return max(float(generator.gamma(self.present.shape, 1.0 / self.present.rate)), 1e-8)

    @override
    def finish(self, alpha: float, episode_return: float, progress: float) -> Metrics:
        """Store an episode; move the distribution when there are enough. Returns scalars for the log."""
        self._alphas.append(alpha)
        self._returns.append(episode_return)
        if len(self._alphas) >= self._config.rollouts:
            alphas, returns = np.array(self._alphas), np.array(self._returns)
            is_reached = bool(returns.mean() >= self._config.return_bound)
            self.was_reached |= is_reached
            if is_reached or (self._config.below_bound == "raise" and not self.was_reached):
                self.present = moved(self.present, self.target, alphas, returns, self._config)
            self._alphas, self._returns = [], []
        return {
            "adversary/temperature": alpha,
            "adversary/mean_temperature": self.present.mean,
            "adversary/shape": self.present.shape,
        }

    @override
    def state_dict(self) -> StateDict:
        lists = {"present": list(self.present), "alphas": list(self._alphas), "returns": list(self._returns)}
        return {**lists, "was_reached": self.was_reached}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.present = Gamma(*(float(value) for value in state["present"]))
        self._alphas, self._returns = ([float(value) for value in state[name]] for name in ("alphas", "returns"))
        self.was_reached = bool(state["was_reached"])


def moved(present: Gamma, target: Gamma, alphas: Floats, returns: Floats, config: CurriculumSettings) -> Gamma:
    """Return the next distribution (eq. 12): nearest to the target within the trust region and above the bound.

    If the bound was not reached the expected return is maximised within the trust region instead. At one rate the divergence
    from the target falls with the distance that the shape has moved towards it: the farthest allowed shape is the solution.

    Args:
        present: Distribution from which the temperatures were drawn.
        target: Distribution at the end.
        alphas: (N,) temperatures of the episodes.
        returns: (N,) returns of the policy in them.
        config: Settings: bound, trust region, smallest sample size.
    """
    is_below = returns.mean() < config.return_bound
    ends = [target.shape / present.shape, *([SPAN, 1.0 / SPAN] if is_below else [])]
    found = [Gamma(present.shape * end**share, present.rate) for end in ends for share in np.linspace(0.0, 1.0, CANDIDATES)]
    near = [each for each in found if _is_near(each, present, alphas, config)]
    gains = [expected_return(each, present, alphas, returns) for each in near]
    if is_below:
        return near[int(np.argmax(gains))]  # the first of equal ones: flat returns move nothing
    allowed = [each for each, gain in zip(near, gains, strict=True) if gain >= config.return_bound]
    return min(allowed, key=lambda each: each.divergence(target), default=present)


def _is_near(candidate: Gamma, present: Gamma, alphas: Floats, config: CurriculumSettings) -> bool:
    is_trusted = candidate.divergence(present) <= config.trust_region
    return is_trusted and effective_samples(candidate, present, alphas) >= config.least_samples


def expected_return(candidate: Gamma, present: Gamma, alphas: Floats, returns: Floats) -> float:
    """Return the mean of returns under a candidate distribution of temperatures, by normalised importance weights.

    Args:
        candidate: Distribution for which the mean is estimated.
        present: Distribution from which the temperatures were drawn.
        alphas: Temperatures (N,).
        returns: Return (N,) of each temperature's episode.
    """
    return float(np.average(returns, weights=_weights(candidate, present, alphas)))


def effective_samples(candidate: Gamma, present: Gamma, alphas: Floats) -> float:
    """Return the effective sample size (sum w)^2 / sum w^2 of importance weights w, as a share of the samples."""
    weights = _weights(candidate, present, alphas)
    return float(weights.sum() ** 2 / (weights**2).sum() / len(weights))


def _weights(candidate: Gamma, present: Gamma, alphas: Floats) -> Floats:
    logs = candidate.log_density(alphas) - present.log_density(alphas)
    return np.asarray(np.exp(logs - logs.max()))
