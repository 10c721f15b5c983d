"""ExploRS: a learned reward that helps a policy to reach a sparse one, and a bonus for places that are new.

Devidze, Kamalaruban and Singla 2022, "Exploration-Guided Reward Shaping for Reinforcement Learning under Sparse Rewards"
(NeurIPS). The policy maximises r + R_phi(s, a) + B(s). phi maximises the return of r alone of the policy that results:

    theta_k+1 = theta_k + alpha grad J of r + R_phi + B;      B(s) = b sqrt(lam / (lam + n(s))),   n: visits of a cell
    d J_r(theta_k+1) / d phi = alpha sum_u w_u d R_phi(s_u, a_u) / d phi
    w_u = sum over t <= u of discount^(u - t) c_t,            c_t = grad J_r(theta_k+1) . grad log pi(a_t|s_t)

A step earns a reward if the actions up to it are ones that the task's own gradient makes more likely. The paper's exact update
could not be checked in code; this one-step gradient follows from its objective. B is that of the place a step leads to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.episodic import LearnsFromEpisodes
from robo_policies.learners.episodic_settings import EpisodeNetwork, EpisodeSettings
from robo_policies.networks.actor_critic import Trainable
from robo_rl.errors import require_allowed
from robo_rl.extras import returns_to_go
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Episode, Metrics, StateDict

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ExploRSNetwork(EpisodeNetwork):
    """Settings group `network` of ExploRS, whose networks are always computed by plain autograd."""

    engine: Literal["auto", "reference", "accelerated"] = "reference"
    """Always "reference" (autograd), because directional derivatives are taken, which the accelerated code lacks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"engine": (self.engine == "reference", "reference")})


@dataclass(frozen=True)
class ExploRSConfig(EpisodeSettings):
    """Settings of ExploRS (Devidze et al. 2022), which adds a learned reward and a bonus for new places to a sparse reward.

    They set size and fall of the bonus, and learning rate and size of the learned reward.
    """

    network: ExploRSNetwork = ExploRSNetwork()
    """Sizes of the networks, and how they are computed."""
    bonus: float = 0.1
    """b, bonus of a place that was never visited; 0 for no bonus."""
    visits: float = 1.0
    """lam, scale of the fall of the bonus: after 3 lam visits it is half of b."""
    cell: float = 0.1
    """Width of the cells in which visits are counted, in each number of the observation."""
    reward_lr: float = 1e-2
    """Learning rate of R_phi; 0 keeps it at 0."""
    reward_limit: float = 0.2
    """Largest absolute value of the learned reward R_phi."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = {name: (getattr(self, name) > 0, "above 0") for name in ("visits", "cell", "reward_limit")}
        require_allowed(self, positive | {name: (getattr(self, name) >= 0, "0 or more") for name in ("bonus", "reward_lr")})

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ExploRS:
        return ExploRS(spec, self, seed)


class LearnedReward(Trainable):
    """Network of the learned reward R_phi, with values within [-limit, limit], 0 at the start."""

    def __init__(self, inputs: int, limit: float) -> None:
        super().__init__()
        self._limit = limit
        last = nn.Linear(64, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), last)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return rewards (B,) within [-limit, limit] for features and actions side by side (B, F + A)."""
        found: Tensor = self._limit * torch.tanh(self.layers(inputs).squeeze(-1))
        return found


class ExploRS(LearnsFromEpisodes):
    """Learner of ExploRS: policy gradient on the sum of task reward, learned reward and bonus for new places."""

    def __init__(self, spec: EnvironmentSpec, config: ExploRSConfig, seed: int) -> None:
        self.config, self.actor = config, config.actor(spec, seed)
        self.parts = self.actor.parts
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            reward = LearnedReward(self.parts.encoder.size + spec.action.size, config.reward_limit)
        self.reward = self.parts.add("reward", reward.to(self.parts.device), max(config.reward_lr, 1e-12))
        self.counts: Counter[bytes] = Counter()
        """Cell -> number of visits."""
        self._before: tuple[Tensor, Tensor, list[int]] | None = None
        """Features, actions and lengths of the episodes of the last update."""

    @override
    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        features, actions = self.actor.inputs(episodes)
        own = centred(np.concatenate([returns_to_go(each.rewards, self.config.discount) for each in episodes]))
        figures: dict[str, float | Tensor] = {"visited_cells": float(len(self.counts))}
        if self.config.reward_lr and self._before is not None:
            figures["reward_gradient"] = self._learn_reward(self.slope(features, actions, own))
        with torch.no_grad():
            learned = self.reward(self.pairs(features, actions)).cpu().numpy()
        ends = np.cumsum([len(each) for each in episodes])[:-1]
        paid = [
            each.rewards + extra + self.bonuses(each) for each, extra in zip(episodes, np.split(learned, ends), strict=True)
        ]
        returns = centred(np.concatenate([returns_to_go(each, self.config.discount) for each in paid]))
        self.actor.network.descend(-self.surrogate(features, actions, returns))
        self._before = features.detach(), actions, [len(each) for each in episodes]
        return self.parts.finish_update({**figures, "learned_reward": float(np.abs(learned).mean())})

    def surrogate(self, features: Tensor, actions: Tensor, gains: Floats) -> Tensor:
        """Return the mean of log pi(a|s) times gains (B,), a scalar whose gradient is the policy gradient."""
        weights = torch.from_numpy(gains.astype(np.float32)).to(features.device)
        return (self.actor.log_densities(features, actions) * weights).mean()

    def slope(self, features: Tensor, actions: Tensor, gains: Floats) -> dict[str, Tensor]:
        """Return the gradient of the task's own return by each policy parameter, by name."""
        parameters = dict(self.actor.network.named_parameters())
        found = torch.autograd.grad(self.surrogate(features, actions, gains), [*parameters.values()], allow_unused=True)
        zeros = (torch.zeros_like(each) for each in parameters.values())
        return {name: zero if each is None else each for name, each, zero in zip(parameters, found, zeros, strict=True)}

    def wanted(self, slope: dict[str, Tensor], features: Tensor, actions: Tensor) -> Floats:
        """Return how much a direction in parameter space raises the log probability of each action.

        Args:
            slope: Name of a policy parameter -> its part of the direction, as `slope` returns it.
            features: (B, F) of the states.
            actions: (B, ...) that were taken.

        Returns:
            c_t (B,), the slope of log pi(a_t|s_t) along the direction.
        """
        parameters = dict(self.actor.network.named_parameters())
        densities = self.actor.log_densities(features, actions)
        weights = torch.zeros_like(densities, requires_grad=True)
        # the gradient of sum_t weights_t log pi(a_t|s_t) is linear in the weights: its slope along each is c_t
        gradients = torch.autograd.grad(densities, [*parameters.values()], weights, create_graph=True, allow_unused=True)
        pairs = zip(parameters, gradients, strict=True)
        along = sum((gradient * slope[name]).sum() for name, gradient in pairs if gradient is not None)
        (found,) = torch.autograd.grad(along, weights)  # type: ignore[arg-type]
        return np.asarray(found.cpu().numpy(), np.float64)

    def pairs(self, features: Tensor, actions: Tensor) -> Tensor:
        """Return the inputs of R_phi (B, F + A): features and actions, discrete ones as one-hot vectors."""
        if self.parts.spec.action.is_discrete:
            actions = nn.functional.one_hot(actions.long(), self.parts.spec.action.size)
        return torch.cat([features, actions.to(features.dtype)], -1)

    def _learn_reward(self, slope: dict[str, Tensor]) -> float:
        """Take a step of R_phi by the steps of the last update; return the mean absolute weight of a step."""
        assert self._before is not None
        features, actions, lengths = self._before
        wanted = np.split(self.wanted(slope, features, actions), np.cumsum(lengths)[:-1])
        weights = np.concatenate([accumulated(each, self.config.discount) for each in wanted])
        deviation = weights.std()
        if deviation < 1e-12:  # nothing was ever paid: the task's gradient is 0
            return 0.0
        scaled = torch.from_numpy((weights / deviation).astype(np.float32)).to(features.device)
        self.reward.descend(-(scaled * self.reward(self.pairs(features, actions))).mean())
        return float(np.abs(weights).mean())

    def bonuses(self, episode: Episode) -> Floats:
        """Return the bonus B (T,) of the places to which the steps of an episode lead, and count the visits."""
        encoder, config = self.parts.encoder, self.config
        states = encoder.stack({name: episode.observations[name][1:] for name in encoder.reads})
        cells = [row.tobytes() for row in np.floor(states / config.cell).astype(np.int32)]
        found = [config.bonus * np.sqrt(config.visits / (config.visits + self.counts[cell])) for cell in cells]
        self.counts.update(cells)
        return np.array(found)

    @override
    def state_dict(self) -> StateDict:
        cells = np.frombuffer(b"".join(self.counts), np.int32).reshape(len(self.counts), -1).copy() if self.counts else None
        kept: dict[str, Any] = {} if cells is None else {"cells": cells, "visits": np.array([*self.counts.values()])}
        return self.actor.state_dict() | {"counts": kept}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.actor.load_state_dict(state)
        kept: Any = state["counts"]
        rows = zip(kept.get("cells", ()), kept.get("visits", ()), strict=True)
        self.counts = Counter({np.asarray(cell, np.int32).tobytes(): int(visits) for cell, visits in rows})
        self._before = None


def centred(returns: npt.NDArray[np.floating]) -> Floats:
    """Standardise returns-to-go: subtract their mean and divide by their deviation; 0 if all are equal."""
    deviation = returns.std()
    return np.asarray((returns - returns.mean()) / deviation if deviation > 1e-9 else np.zeros(len(returns)), np.float64)


def accumulated(wanted: Floats, discount: float) -> Floats:
    """Return discounted running sums w_u = sum over t <= u of discount^(u - t) c_t, (T,), for c (T,)."""
    total, found = 0.0, np.empty(len(wanted))
    for step, each in enumerate(wanted.tolist()):
        total = discount * total + each
        found[step] = total
    return found
