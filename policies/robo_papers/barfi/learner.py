"""BARFI: the weight of a designer's heuristic is learned from its use for the task.

Gupta, Chandak, Jordan, Thomas and da Silva 2023, "Behavior Alignment via Reward Function Optimization", arXiv:2310.19007.
The policy climbs J_phi, the return of a blend of rewards; the blend phi climbs J_p, the task's own return of that policy.

    r_phi = r_p + phi r_aux
    d J_p / d phi = - (d J_p / d theta) H^-1 (d^2 J_phi / d theta d phi),        H = d^2 J_phi / d theta^2
    v_0 = d J_p / d theta,   v_j+1 = v_j + alpha H v_j,   u = alpha (v_0 + ... ) ~ (-H)^-1 v_0

r_p is the environment's reward, r_aux a term that it names in info["reward_terms"]. The series converges only if alpha times
the largest curvature is below 2 and H is negative, for which `decay` pulls the parameters to 0; a warning says when not.

phi is one number, as in the authors' MuJoCo experiments: the weight of r_p is held at 1. Differs from their code: the
penalty on parameters is part of the loss whose Hessian is taken. As there, the policy learns from remembered episodes without
importance weights; it takes 15 steps on far more of them, and 5 terms with an alpha of 1e-3, which only rescale the task's
gradient.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.episodic import LearnsFromEpisodes
from robo_policies.learners.episodic_settings import EpisodeNetwork, EpisodeSettings
from robo_rl.errors import UnknownName, require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Metrics, StateDict


@dataclass(frozen=True)
class BARFINetwork(EpisodeNetwork):
    """Settings group `network` of BARFI, whose networks are always computed by plain autograd."""

    engine: Literal["auto", "reference", "accelerated"] = "reference"
    """Always "reference" (autograd), because second derivatives are taken, which the accelerated code lacks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"engine": (self.engine == "reference", "reference")})


@dataclass(frozen=True)
class BARFIConfig(EpisodeSettings):
    """Settings of BARFI (Gupta et al. 2023, arXiv:2310.19007), which learns the weight of an auxiliary reward.

    They name the auxiliary term, and set the learning of its weight phi and the Neumann series of its gradient.
    """

    network: BARFINetwork = BARFINetwork()
    """Sizes of the networks, and how they are computed."""
    auxiliary: str = ""
    """Term of the environment's reward_terms that is the designer's heuristic; must be set."""
    learns_blend: bool = True
    """False keeps phi at `first_weight`: a control condition."""
    first_weight: float = 1.0
    """Weight phi of the auxiliary term at the start; 1 is the plain sum, 0 the task's reward alone."""
    blend_lr: float = 3.0
    """Learning rate of phi, a plain gradient: scaled ones follow the noise once the task is solved."""
    blend_decay: float = 0.0
    """Share of phi by which it is pulled towards 0 at each step."""
    inner_updates: int = 5
    """Gradient steps of the policy for each step of phi."""
    remembered: int = 16
    """Number of newest episodes that the policy learns from. Those since the last step of phi alone judge the task."""
    alpha: float = 0.3
    """Step alpha of the Neumann series."""
    terms: int = 40
    """Number of terms of the Neumann series; with few the direction is nearly that of the task's gradient."""
    decay: float = 0.003
    """Weight of half the squared parameters in the policy's loss (weight decay)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("inner_updates", "remembered", "terms")}
        rates = {name: (getattr(self, name) >= 0, "0 or more") for name in ("blend_lr", "blend_decay", "decay")}
        require_allowed(self, counts | rates | {"alpha": (self.alpha > 0, "above 0")})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> BARFI:
        return BARFI(spec, self, seed)


class BARFI(LearnsFromEpisodes):
    """Learner of BARFI: policy gradient on a blend of the task's reward and an auxiliary one, whose weight is learned."""

    def __init__(self, spec: EnvironmentSpec, config: BARFIConfig, seed: int) -> None:
        require_allowed(config, {"auxiliary": (bool(config.auxiliary), "the name of a term of the reward")})
        self.config, self.actor = config, config.actor(spec, seed)
        self.parts = self.actor.parts
        self.weight = config.first_weight
        """phi"""
        self._memory: deque[Episode] = deque(maxlen=config.remembered)
        self._warned = False

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        self._memory.extend(episodes)
        features, actions = self.actor.inputs([*self._memory])
        returns = torch.from_numpy(np.concatenate([self.returns(each) for each in self._memory]))
        for _ in range(self.config.inner_updates):
            self.actor.network.descend(-self.surrogate(features, actions, returns[:, 0] + self.weight * returns[:, 1]))
        figures = {"heuristic_weight": self.weight}
        if self.config.learns_blend:
            figures |= self._learn_blend(episodes, (features, actions, returns))
        return self.parts.finish_update(figures)

    def returns(self, episode: Episode) -> npt.NDArray[np.float32]:
        """Return the returns-to-go (T, 2) of an episode: of the task's reward and of the auxiliary term.

        Raises UnknownName if the environment reports no such term.
        """
        if self.config.auxiliary not in episode.reward_terms:
            raise UnknownName("term of the reward", self.config.auxiliary, episode.reward_terms)
        parts = (episode.rewards, episode.reward_terms[self.config.auxiliary])
        return np.stack([returns_to_go(each, self.config.discount) for each in parts], 1).astype(np.float32)

    def surrogate(self, features: Tensor, actions: Tensor, returns: Tensor) -> Tensor:
        """Return a scalar whose gradient is the policy gradient: the mean of log pi(a|s) (G - mean G), minus the penalty."""
        penalty = sum(parameter.square().sum() for parameter in self._parameters)
        gains = (self.actor.log_densities(features, actions) * (returns - returns.mean())).mean()
        return gains - 0.5 * self.config.decay * penalty

    @property
    def _parameters(self) -> list[Tensor]:
        return [each for each in self.actor.network.parameters() if each.requires_grad]

    def _learn_blend(self, episodes: Sequence[Episode], inner: tuple[Tensor, Tensor, Tensor]) -> dict[str, float]:
        """Take one step of phi along the implicit gradient; returns figures."""
        parameters, weight = self._parameters, torch.tensor(self.weight, requires_grad=True)
        seen, done = self.actor.inputs(episodes)
        own = torch.from_numpy(np.concatenate([self.returns(each)[:, 0] for each in episodes]))
        task = flat(torch.autograd.grad((self.actor.log_densities(seen, done) * (own - own.mean())).mean(), parameters))
        features, actions, returns = inner
        blended = self.surrogate(features, actions, returns[:, 0] + weight * returns[:, 1])
        slope = flat(torch.autograd.grad(blended, parameters, create_graph=True))

        def curvature(vector: Tensor) -> Tensor:
            return flat(torch.autograd.grad(slope @ vector, parameters, retain_graph=True))

        largest = largest_curvature(curvature, len(task), self.parts.generator)
        if self.config.alpha * largest >= 1.0 and not self._warned:
            self._warned = True
            found = f"alpha {self.config.alpha} times the curvature {largest:.3g} is 1 or more"
            text = f"BARFI's series swings, and from 2 on the weight is kept: {found}; lower learner.alpha"
            warnings.warn(text, stacklevel=2)
        series = neumann(curvature, task, self.config.alpha, self.config.terms)
        (change,) = torch.autograd.grad(slope @ series, weight)
        if bool(torch.isfinite(change)) and self.config.alpha * largest < 2.0:
            self.weight = (1.0 - self.config.blend_decay) * self.weight + self.config.blend_lr * float(change)
        return {"curvature": largest, "blend_gradient": float(change)}

    @override
    def state_dict(self) -> StateDict:
        return self.actor.state_dict() | {"blend": {"weight": self.weight}}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)
        self.weight = float(state["blend"]["weight"])


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Join tensors into one vector."""
    return torch.cat([each.reshape(-1) for each in tensors])


def neumann(curvature: Callable[[Tensor], Tensor], vector: Tensor, alpha: float, terms: int) -> Tensor:
    """Return about (-H)^-1 v for a negative H, by a Neumann series: alpha times the sum of (1 + alpha H)^j v.

    Args:
        curvature: Function v -> H v.
        vector: v.
        alpha: Step of the series.
        terms: Number of terms, j from 0.
    """
    total, power = torch.zeros_like(vector), vector
    for _ in range(terms):
        total = total + power
        power = power + alpha * curvature(power)
    return alpha * total


def largest_curvature(curvature: Callable[[Tensor], Tensor], size: int, generator: torch.Generator, rounds: int = 5) -> float:
    """Estimate the largest absolute eigenvalue of a matrix H by power iteration.

    Args:
        curvature: Function v -> H v.
        size: Number of rows of H.
        generator: Draws the first vector.
        rounds: Number of iterations.
    """
    vector, length = torch.randn(size, generator=generator), 0.0
    for _ in range(rounds):
        vector = vector / torch.linalg.vector_norm(vector).clamp_min(1e-12)
        vector = curvature(vector)
        length = float(torch.linalg.vector_norm(vector))
    return length
