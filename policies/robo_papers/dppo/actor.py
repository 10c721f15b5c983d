"""Actor of DPPO: the clone, the network that is refined, the policy that plays the training, and the ordinary policy."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_papers.dppo.chain import PLANS, Chain, ChainPolicy, plan_steps, rows_of
from robo_policies.learners.chunks import ChunkMLP, ChunkPolicy
from robo_policies.learners.diffusion_bc import DiffusionBC
from robo_policies.learners.episodic import Cloning, EpisodeActor
from robo_policies.learners.flow_bc import FlowBC
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.types import Episode, Metrics


class ChainActor(EpisodeActor):
    """What DPPO acts with and trains; each denoising step of a chunk is an action of its own.

    It is made around the learner of a diffusion or flow policy, whose networks clone, and are then copied and refined.
    """

    policy: ChunkPolicy

    def __init__(self, cloned: DiffusionBC | FlowBC, chain: Chain, settings: Any, seed: int) -> None:
        """Make the actor.

        Args:
            cloned: Learner that clones.
            chain: Denoising steps of training episodes.
            settings: Settings with `lr`, `chunk` and `executed`.
            seed: Seed of the order of minibatches.
        """
        self.cloned, self.chain = cloned, chain
        self.parts = parts = cloned.parts
        start = copy.deepcopy(cloned.averaged).requires_grad_(requires_grad=True)
        self.network: ChunkMLP = parts.add("actor", start, settings.lr)
        actor = chain.actor(self.network, settings.chunk, parts.spec.action.size)
        self.policy = parts.policy = ChunkPolicy(parts, actor, settings.executed)
        self.explorer = ChainPolicy(parts, self.network, chain, settings.executed)
        """Policy that plays the training episodes."""
        self.random = np.random.default_rng(seed)

    @override
    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Update the mean and deviation of observations, before the first update alone: the clone keeps its input."""
        if not self.parts.updates:
            super().standardise(episodes)

    @override
    def inputs(self, episodes: Sequence[Episode]) -> tuple[Tensor, Tensor]:
        """Return features (P S, F) and rows (P S, 2 N + 1) of all denoising steps of the episodes' P chunks."""
        plans = zip(episodes, plan_steps(episodes), strict=True)
        features = torch.cat([self.features(each)[steps] for each, steps in plans])
        chains = np.stack([chain for each in episodes for _, chain in each.metadata[PLANS]])
        return features.repeat_interleave(self.chain.steps, 0), rows_of(torch.from_numpy(chains).to(features.device))

    @override
    def log_densities(self, features: Tensor, actions: Tensor, network: nn.Module | None = None) -> Tensor:
        """Return the log density (B,) of each denoising step, for features (B, F) and rows (B, 2 N + 1)."""
        assert network is None or isinstance(network, ChunkMLP)
        return self.chain.log_densities(network or self.network, features, actions)

    @override
    def clone(self, demonstrations: Sequence[Episode], cloning: Cloning) -> Metrics:
        """Clone recorded episodes as the diffusion or flow policy does; the refined network begins as the clone."""
        config, metrics = self.cloned.config, Metrics()
        if cloning.updates:
            seed, extras = int(self.random.integers(1 << 31)), config.sampling.extras
            replay = RecordedReplay.of(self.parts.spec, demonstrations, seed, extras=extras)
            for _ in range(cloning.updates):
                metrics = self.cloned.update(replay.sample(config.batch_size)) or metrics
            self.network.load_state_dict(self.cloned.averaged.state_dict())
        return metrics
