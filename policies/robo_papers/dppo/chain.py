"""Chains: how a diffusion or flow policy makes a chunk of actions in S random steps, and how likely each step was.

    x_0 from N(0, 1),   x_{i+1} from N(m_i(x_i, s), d_i^2),   actions: x_S cut to [-1, 1]

B rows, S steps, N = H A numbers of a chunk, F features of an observation.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import torch
from torch import Tensor
from typing_extensions import override

from robo_policies.learners.chunks import ChunkMLP, ChunkPolicy
from robo_policies.learners.diffusion_bc import DiffusionActor, Schedule
from robo_policies.learners.flow_bc import TIME_SCALE, FlowActor
from robo_policies.learners.parts import LearnerParts
from robo_policies.networks.actor_critic import normal
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import Observation
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Array, Episode

PLANS = "plans"
"""Key of an episode's metadata: the chunks that were made in it, as pairs of a step number and a chain (S + 1, N)."""


class Chain(ABC):
    """Steps by which a network makes a chunk out of noise, as a diffusion draws them (Ho et al. 2020, eq. 6 and 7).

    A chunk at step i is a_i x + b_i e, of actions x and noise e; a_S = 1 and b_S = 0.
    """

    def __init__(self, signal: Tensor, noise: Tensor, least: float) -> None:
        """Make a chain.

        Args:
            signal: a (S + 1,), rising to 1.
            noise: b (S + 1,), falling to 0.
            least: Least standard deviation of a step, so that a training explores.
        """
        self.steps = len(signal) - 1
        self._before, self._after = signal[:-1], signal[1:]
        self._noise, rest = noise[:-1], noise[1:]
        exact = rest / self._noise * (self._noise.square() - (self._before / self._after * rest).square()).clamp(min=0.0).sqrt()
        self._kept = (rest.square() - exact.square()).clamp(min=0.0).sqrt() / self._noise
        self.deviations = exact.clamp(min=least)
        """Standard deviation d (S,) of each step."""

    @abstractmethod
    def clean(self, network: ChunkMLP, chunks: Tensor, step: Tensor, features: Tensor) -> Tensor:
        """Return the actions (B, N) that a network expects behind chunks (B, N) at steps (B,), for features (B, F)."""

    @abstractmethod
    def actor(self, network: ChunkMLP, chunk: int, actions: int) -> DiffusionActor | FlowActor:
        """Return the actor of the ordinary policy of a network: without the noise that only a training adds."""

    def mean(self, network: ChunkMLP, chunks: Tensor, step: Tensor, features: Tensor) -> Tensor:
        """Return the means (B, N) of the chunks after a step, for chunks (B, N), step numbers (B,) and features (B, F)."""
        clean = self.clean(network, chunks, step, features).clamp(-1.0, 1.0)  # actions lie there
        before, after, kept = (each[step][:, None] for each in (self._before, self._after, self._kept))
        return after * clean + kept * (chunks - before * clean)

    def draw(self, network: ChunkMLP, features: Tensor, size: int, generator: torch.Generator) -> Tensor:
        """Return random chains (B, S + 1, N) for features (B, F) and N = `size`."""
        chunks = [normal(features.new_empty(len(features), size), generator)]
        for step in range(self.steps):
            mean = self.mean(network, chunks[-1], torch.full((len(features),), step, device=features.device), features)
            chunks.append(mean + self.deviations[step] * normal(mean, generator))
        return torch.stack(chunks, 1)

    def log_densities(self, network: ChunkMLP, features: Tensor, rows: Tensor) -> Tensor:
        """Return log N(x_{i+1}; m_i(x_i, s), d_i^2) (B,), the sum over a chunk's numbers.

        Args:
            network: Network that denoises.
            features: (B, F).
            rows: (B, 2 N + 1), as `rows_of` makes them.
        """
        before, after, number = (*rows[:, :-1].tensor_split(2, 1), rows[:, -1].long())
        deviations = self.deviations[number][:, None]
        errors = (after - self.mean(network, before, number, features)) / deviations
        return -(0.5 * errors.square() + deviations.log() + 0.5 * math.log(2.0 * math.pi)).sum(1)


def rows_of(chains: Tensor) -> Tensor:
    """Return the steps (P S, 2 N + 1) of chains (P, S + 1, N), in order: chunk before, chunk after, number of the step."""
    count, steps, _ = chains[:, 1:].shape
    numbers = torch.arange(steps, device=chains.device, dtype=chains.dtype).expand(count, steps)[..., None]
    return torch.cat((chains[:, :-1], chains[:, 1:], numbers), -1).flatten(0, 1)


class DiffusionChain(Chain):
    """Chain of a diffusion policy: a and b follow its schedule, and the network predicts the noise."""

    def __init__(self, steps: int, least: float, device: torch.device) -> None:
        left = torch.cat((Schedule(steps).left.flip(0), torch.ones(1))).to(device)
        super().__init__(left.sqrt(), (1 - left).sqrt(), least)

    @override
    def clean(self, network: ChunkMLP, chunks: Tensor, step: Tensor, features: Tensor) -> Tensor:
        predicted = network(chunks, self.steps - 1 - step, features)
        return (chunks - self._noise[step][:, None] * predicted) / self._before[step][:, None]

    @override
    def actor(self, network: ChunkMLP, chunk: int, actions: int) -> DiffusionActor:
        return DiffusionActor(network, self.steps, chunk, actions)


class FlowChain(Chain):
    """Chain of a flow policy: a = t and b = 1 - t at t = i / S, and the network predicts the velocity.

    At each t its chunks are distributed as those of the flow, whose only noise is the first.
    """

    def __init__(self, steps: int, least: float, device: torch.device) -> None:
        times = torch.linspace(0.0, 1.0, steps + 1, device=device)
        super().__init__(times, 1.0 - times, least)

    @override
    def clean(self, network: ChunkMLP, chunks: Tensor, step: Tensor, features: Tensor) -> Tensor:
        return chunks + self._noise[step][:, None] * network(chunks, TIME_SCALE * self._before[step], features)

    @override
    def actor(self, network: ChunkMLP, chunk: int, actions: int) -> FlowActor:
        return FlowActor(network, self.steps, chunk, actions)


class ChainPolicy(ChunkPolicy):
    """Policy that plays training episodes: it draws chains with their noise, and keeps them."""

    def __init__(self, parts: LearnerParts, network: ChunkMLP, chain: Chain, executed: int) -> None:
        self.chain, self.plans = chain, list[tuple[int, Array]]()
        acting: Any = network  # `proposed` draws chunks from it by the chain
        super().__init__(parts, acting, executed)

    @override
    def reset(self) -> None:
        super().reset()
        self.plans, self._acted = [], 0

    @override
    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        action = super().act(observation, deterministic=deterministic)
        self._acted += 1
        return action

    @torch.no_grad()
    @override
    def proposed(self, observation: Observation, generator: torch.Generator | None) -> Array:
        """Return a random chunk (H, A) for an observation, and keep its chain."""
        encoder, network = self._followed()
        rows = {name: observation[name][None] for name in encoder.reads}
        features = encoder(encoder.tensors(encoder.stack(rows, is_acting=True), rows, self._device))
        size = self.chunk * self.environment_spec.action.size
        chain = self.chain.draw(network, features, size, generator or self._generator)[0].cpu().numpy()
        self.plans.append((self._acted, chain))
        actions: Array = chain[-1].clip(-1.0, 1.0).reshape(self.chunk, -1)
        return actions


class ChainPlays:
    """Plays training episodes, and keeps the chains of each in its metadata; `group` successive ones have one seed."""

    def __init__(self, environment: gymnasium.Env[Any, Any], policy: ChainPolicy, seed: int, group: int) -> None:
        self.environment, self.policy, self.seed, self.group = environment, policy, seed, group

    def play(self, number: int) -> Episode:
        """Play episode `number` of the training, counted from 0, and return it."""
        episode = rollout(self.environment, self.policy, seed=episode_seed(self.seed, number // self.group))
        return replace(episode, metadata={**episode.metadata, PLANS: self.policy.plans})


def plan_steps(episodes: Sequence[Episode]) -> list[list[int]]:
    """Return for each episode the numbers of the steps at which a chunk was made."""
    return [[step for step, _ in each.metadata[PLANS]] for each in episodes]
