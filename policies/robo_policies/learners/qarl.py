"""QARL: an adversary of bounded rationality whose temperature falls as fast as the policy copes with it.

Reddi, Tölle, Peters, Chalvatzaki and D'Eramo 2024, "Robust Adversarial Reinforcement Learning via Bounded Rationality
Curricula", arXiv:2311.01642. Temperatures are drawn from a Gamma distribution, which moves towards a target within a trust
region as long as the expected return stays above a bound (self-paced learning, Klink et al. 2021, arXiv:2102.13176).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import digamma, gammaln
from typing_extensions import override

from robo_policies.learners.adversarial import AdversarialConfig, Curriculum
from robo_rl.errors import require_allowed
from robo_rl.types import Metrics, StateDict

Floats = npt.NDArray[np.float64]


class Gamma(NamedTuple):
    """Gamma distribution of temperatures."""

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        """Mean temperature."""
        return self.shape / self.rate

    def log_density(self, values: Floats) -> Floats:
        """Return log p of values."""
        return np.asarray(
            self.shape * np.log(self.rate) - gammaln(self.shape) + (self.shape - 1.0) * np.log(values) - self.rate * values
        )

    def divergence(self, other: Gamma) -> float:
        """Return KL(self || other) in closed form."""
        shapes = (self.shape - other.shape) * digamma(self.shape) - gammaln(self.shape) + gammaln(other.shape)
        rates = other.shape * (np.log(self.rate) - np.log(other.rate)) + self.shape * (other.rate - self.rate) / self.rate
        return float(shapes + rates)


@dataclass(frozen=True)
class QARLConfig(AdversarialConfig):
    """Settings of QARL."""

    first_shape: float = 50.0
    """Shape of the Gamma distribution at the start; the rate follows from `first_temperature`. The target has shape 1."""
    return_bound: float = 10.0
    """Return xi that the policy must reach for the adversary to become more rational."""
    rollouts: int = 30
    """Episodes between two steps of the distribution."""
    trust_region: float = 0.5
    """[nat] largest KL divergence of a step."""
    least_samples: float = 0.3
    """Smallest effective sample size of the importance weights, as a share of the episodes; steps are shortened to it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {"first_shape": (self.first_shape > 0, "above 0"), "rollouts": (self.rollouts >= 2, "2 or more")}
        allowed |= {
            "trust_region": (self.trust_region > 0, "above 0"),
            "least_samples": (0 <= self.least_samples <= 1, "0 to 1"),
        }
        require_allowed(self, allowed)

    @override
    def curriculum(self) -> GammaCurriculum:
        return GammaCurriculum(self)


class GammaCurriculum(Curriculum):
    """Distribution of temperatures, and the episodes since its last step."""

    def __init__(self, config: QARLConfig) -> None:
        self._config = config
        self.present = Gamma(config.first_shape, config.first_shape / config.first_temperature)
        self.target = Gamma(1.0, 1.0 / config.last_temperature)
        self._alphas, self._returns = list[float](), list[float]()

    @override
    def draw(self, generator: np.random.Generator) -> float:
        """Return a temperature; never 0, whose density has no logarithm."""
        return max(float(generator.gamma(self.present.shape, 1.0 / self.present.rate)), 1e-8)

    @override
    def finish(self, alpha: float, episode_return: float, progress: float) -> Metrics:
        """Take in an episode; move the distribution when there are enough."""
        self._alphas.append(alpha)
        self._returns.append(episode_return)
        if len(self._alphas) >= self._config.rollouts:
            self.present = moved(self.present, self.target, np.array(self._alphas), np.array(self._returns), self._config)
            self._alphas, self._returns = [], []
        return {
            "adversary/temperature": alpha,
            "adversary/mean_temperature": self.present.mean,
            "adversary/shape": self.present.shape,
        }

    @override
    def state_dict(self) -> StateDict:
        return {"present": list(self.present), "alphas": list(self._alphas), "returns": list(self._returns)}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.present = Gamma(*(float(value) for value in state["present"]))
        self._alphas, self._returns = ([float(value) for value in state[name]] for name in ("alphas", "returns"))


def moved(present: Gamma, target: Gamma, alphas: Floats, returns: Floats, config: QARLConfig) -> Gamma:
    """Return the next distribution (eq. 12): nearest to the target within the trust region and above the bound.

    If the bound was not reached the expected return is maximised within the trust region instead.
    """

    def spare(logs: Floats) -> float:
        return config.trust_region - _of(logs).divergence(present)

    def gain(logs: Floats) -> float:
        return (expected_return(_of(logs), present, alphas, returns) - config.return_bound) / scale

    def is_allowed(logs: Floats) -> bool:
        enough = effective_samples(_of(logs), present, alphas) >= config.least_samples
        return enough and spare(logs) >= -1e-6 and (is_below or gain(logs) >= -1e-6)

    is_below, scale = returns.mean() < config.return_bound, max(float(np.abs(returns).max()), 1e-8)
    aim = (lambda logs: -gain(logs)) if is_below else (lambda logs: _of(logs).divergence(target))
    conditions = [{"type": "ineq", "fun": limit} for limit in ((spare,) if is_below else (spare, gain))]
    start = np.log(present)
    found = minimize(aim, start, method="SLSQP", constraints=conditions, options={"maxiter": 200, "ftol": 1e-9}).x
    steps = (start + 0.5**halving * (np.nan_to_num(found - start)) for halving in range(20))
    return next((_of(logs) for logs in steps if is_allowed(logs)), present)


def expected_return(candidate: Gamma, present: Gamma, alphas: Floats, returns: Floats) -> float:
    """Return the importance-weighted mean of returns under a candidate, weights normalised."""
    return float(np.average(returns, weights=_weights(candidate, present, alphas)))


def effective_samples(candidate: Gamma, present: Gamma, alphas: Floats) -> float:
    """Return (sum w)^2 / sum w^2 as a share of the samples."""
    weights = _weights(candidate, present, alphas)
    return float(weights.sum() ** 2 / (weights**2).sum() / len(weights))


def _weights(candidate: Gamma, present: Gamma, alphas: Floats) -> Floats:
    logs = candidate.log_density(alphas) - present.log_density(alphas)
    return np.asarray(np.exp(logs - logs.max()))


def _of(logs: Floats) -> Gamma:
    shape, rate = np.exp(np.clip(logs, -20.0, 20.0))
    return Gamma(float(shape), float(rate))
