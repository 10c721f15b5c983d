"""DPPO: a diffusion or flow policy that is refined by reward, by the policy gradient over its denoising steps.

Ren et al. 2024, "Diffusion Policy Policy Optimization", arXiv:2409.00588. The chunks of a flow are drawn as a diffusion's, with
the same marginals, so that one update refines both (page.md).

    log-density of a step:   log N(x_{i+1}; m_i(x_i, s), d_i^2),   d_i at least `least_deviation`
    loss of a step:          -min(r A, clip(r, 1 - low, 1 + high) A),   A the advantage of the chunk that it helped to make
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import gymnasium
import torch
from typing_extensions import override

from robo_papers.dppo.actor import ChainActor
from robo_papers.dppo.advantages import PlanAdvantages
from robo_papers.dppo.chain import Chain, ChainPlays, DiffusionChain, FlowChain
from robo_policies.learners.chunks import ResidualNetwork
from robo_policies.learners.diffusion_bc import DiffusionBC, DiffusionBCConfig
from robo_policies.learners.episodic import ClippedLearner, Cloning
from robo_policies.learners.episodic_settings import ClippedSettings
from robo_policies.learners.flow_bc import FlowBC, FlowBCConfig
from robo_rl.errors import require_allowed
from robo_rl.protocols.contract import CONTINUOUS_ONLY, EPISODES, Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.training.episodic import Player


@dataclass(frozen=True)
class ChunkCloning(Cloning):
    """Settings group `cloning`: cloning of demonstrations before the first episode, as diffusion-bc and flow-bc do."""

    updates: int = 2_000
    """Number of gradient steps, if there are demonstrations; 0 for no cloning."""
    lr: float = 1e-3
    """Learning rate of Adam while cloning."""
    batch_size: int = 128
    """Recorded steps of one gradient step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "initial_std": (self.initial_std == Cloning.initial_std, "left alone: least_deviation sets the exploration"),
            "lr": (self.lr > 0, "above 0"),
            "batch_size": (self.batch_size >= 1, "1 or more"),
        }
        require_allowed(self, allowed, group="cloning")


@dataclass(frozen=True)
class DPPOSettings(ClippedSettings):
    """Settings common to DPPO of diffusion and of flow policies: chunks, denoising steps, exploration, critic, cloning."""

    needs = Needs((EPISODES,), CONTINUOUS_ONLY, {Feature.REWARD: "leave reward out"})
    takes_demonstrations = True
    has_critics = True

    network: ResidualNetwork = ResidualNetwork(hidden=(128, 128, 128))  # type: ignore[assignment]
    """Sizes of the networks, and how they are computed."""
    lr: float = 2e-4
    """Learning rate of Adam while refining."""
    episodes: int = 32
    """Episodes between two updates."""
    chunk: int = 8
    """H, number of actions predicted at once."""
    executed: int = 4
    """Number of actions executed before the next prediction; 1 to `chunk`."""
    denoising_steps: int = 10
    """S, number of steps from noise to a chunk; all of them are refined. The paper takes 20, and refines the last 10."""
    least_deviation: float = 0.1
    """Least standard deviation of a denoising step while training, for exploration, as in the paper; actions lie in [-1, 1]."""
    gae_lambda: float = 0.95
    """Lambda of the generalised advantage estimate, 0 to 1: 0 looks one chunk ahead, 1 to the end of the episode."""
    critic_lr: float = 1e-3
    """Learning rate of the critic."""
    cloning: ChunkCloning = ChunkCloning()
    """Cloning of demonstrations before the first episode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = {name: (getattr(self, name) > 0, "above 0") for name in ("least_deviation", "critic_lr")}
        allowed = {
            "executed": (1 <= self.executed <= self.chunk, "1 to chunk"),
            "denoising_steps": (self.denoising_steps >= 2, "2 or more"),
            "gae_lambda": (0 <= self.gae_lambda <= 1, "0 to 1"),
        }
        require_allowed(self, positive | allowed)

    @property
    def cloned(self) -> dict[str, Any]:
        """Settings of the diffusion or flow policy that clones."""
        own = {name: getattr(self, name) for name in ("device", "network", "chunk", "executed")}
        return own | {"lr": self.cloning.lr, "batch_size": self.cloning.batch_size}

    @abstractmethod
    def cloner(self, spec: EnvironmentSpec, seed: int) -> DiffusionBC | FlowBC:
        """Build the learner that clones; its networks are initialised from `seed`."""

    @abstractmethod
    def chain(self, device: torch.device) -> Chain:
        """Return the denoising steps of training episodes."""

    @override
    def build(self, spec: EnvironmentSpec, seed: int) -> ClippedLearner:
        cloner = self.cloner(spec, seed)
        actor = ChainActor(cloner, self.chain(cloner.parts.device), self, seed)
        return ClippedLearner(actor, self, PlanAdvantages(actor, self), cloning=self.cloning)

    @override
    def player(self, environment: gymnasium.Env[Any, Any], learner: ClippedLearner, seed: int) -> Player:
        assert isinstance(learner.actor, ChainActor)
        return ChainPlays(environment, learner.actor.explorer, seed, self.group)


@dataclass(frozen=True)
class DiffusionDPPOConfig(DPPOSettings):
    """Settings of DPPO of a diffusion policy (Ren et al. 2024, arXiv:2409.00588)."""

    @override
    def cloner(self, spec: EnvironmentSpec, seed: int) -> DiffusionBC:
        return DiffusionBCConfig(noise_levels=self.denoising_steps, **self.cloned).build(spec, seed)

    @override
    def chain(self, device: torch.device) -> DiffusionChain:
        return DiffusionChain(self.denoising_steps, self.least_deviation, device)


@dataclass(frozen=True)
class FlowDPPOConfig(DPPOSettings):
    """Settings of DPPO of a flow policy, whose chunks are drawn as a diffusion's while it is refined."""

    @override
    def cloner(self, spec: EnvironmentSpec, seed: int) -> FlowBC:
        return FlowBCConfig(integration_steps=self.denoising_steps, **self.cloned).build(spec, seed)

    @override
    def chain(self, device: torch.device) -> FlowChain:
        return FlowChain(self.denoising_steps, self.least_deviation, device)
