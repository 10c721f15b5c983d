"""Diffusion policy: Chi et al. 2023, "Diffusion Policy: Visuomotor Policy Learning via Action Diffusion" (arXiv 2303.04137).

Clones chunks of several actions at once, by learning to take noise off them (Ho et al. 2020, "DDPM"). Unlike a mean action, a
chunk that is drawn keeps to one of several ways in which a demonstrator went on.
B batch, H actions of a chunk, A action elements, D encoded observation, K noise levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robo_policies.learners.learning import TensorBatch, load_generator
from robo_policies.learners.parts import LearnerParts
from robo_policies.networks.networks import ObservationEncoder, linear
from robo_policies.networks.settings import require_continuous, require_ranges
from robo_rl.errors import require_allowed
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict

LEVEL_FEATURES = 32
OFFSET = 0.008  # of the cosine schedule (Nichol & Dhariwal 2021), so that the first noise is not too small


@dataclass(frozen=True)
class DiffusionBCConfig:
    """Settings of a diffusion policy for states."""

    chunk: int = 8
    """H, actions that are predicted at once; the paper takes 16 at 10 Hz."""
    executed: int = 4
    """Actions that are executed before the next prediction; the paper takes 8 of 16."""
    noise_levels: int = 20
    """K; acting evaluates the network so often for each chunk. The paper takes 100."""
    lr: float = 3e-4
    """Learning rate of Adam."""
    batch_size: int = 256
    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of the residual blocks, all of one size."""
    tau: float = 0.005
    """Share by which the averaged network, the one that acts, moves at each update."""
    normalization_rows: int = 10_000
    """Observations whose mean and deviation standardise the input; 0 leaves it as it is."""

    def __post_init__(self) -> None:
        require_ranges(self)
        allowed = {
            "executed": (1 <= self.executed <= self.chunk, "1 to chunk"),
            "noise_levels": (self.noise_levels >= 2, "2 or more"),
            "hidden": (len(set(self.hidden)) == 1, "one or more layers, all of one size"),
        }
        require_allowed(self, allowed)

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return Sampling(batch_size=self.batch_size, chunk=self.chunk, offline_fraction=1.0)

    def build(self, spec: EnvironmentSpec, seed: int) -> DiffusionBC:
        """Returns a fresh learner."""
        return DiffusionBC(spec, self, seed)


class Denoiser(nn.Module):
    """Predicts the noise in a chunk from the noisy chunk, its noise level and the observation, by residual blocks."""

    def __init__(self, observations: int, chunk: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.entry = linear(observations + chunk + LEVEL_FEATURES, hidden[0], generator)
        self.blocks = nn.ModuleList(linear(hidden[0], hidden[0], generator) for _ in hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden[0]) for _ in hidden)
        self.exit = linear(hidden[0], chunk, generator)

    def forward(self, noisy: Tensor, level: Tensor, observations: Tensor) -> Tensor:
        """Returns the noise (B, H A), given noisy chunks (B, H A), levels (B,) and observations (B, D)."""
        values = self.entry(torch.cat((noisy, level_features(level), observations), -1))
        for norm, block in zip(self.norms, self.blocks, strict=True):
            values = values + block(functional.mish(norm(values)))
        noise: Tensor = self.exit(functional.mish(values))
        return noise


class Schedule:
    """How much of a chunk is left at each noise level: the squared cosine of Nichol & Dhariwal 2021, as in the paper."""

    def __init__(self, levels: int) -> None:
        steps = torch.arange(levels + 1, dtype=torch.float64) / levels
        left = torch.cos((steps + OFFSET) / (1 + OFFSET) * math.pi / 2).square()
        betas = (1 - left[1:] / left[:-1]).clamp(max=0.999)
        self.levels = levels
        self.betas = betas.float()
        self.left = torch.cumprod(1 - betas, 0).float()

    def noisy(self, clean: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """Returns sqrt(left) x + sqrt(1 - left) noise (Ho et al. eq. 4)."""
        left = self.left[level][:, None]
        return left.sqrt() * clean + (1 - left).sqrt() * noise

    def less_noisy(self, noisy: Tensor, noise: Tensor, level: int, fresh: Tensor) -> Tensor:
        """Returns a draw of the next lower level (Ho et al. eq. 7), given the predicted noise; `fresh` is new noise."""
        left, beta = self.left[level], self.betas[level]
        before = self.left[level - 1] if level else torch.tensor(1.0)
        clean = ((noisy - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-1.0, 1.0)  # actions lie there
        mean = before.sqrt() * beta / (1 - left) * clean + (1 - beta).sqrt() * (1 - before) / (1 - left) * noisy
        return mean + (beta * (1 - before) / (1 - left)).sqrt() * fresh


class DiffusionBC:
    """Clones chunks of demonstrated actions by denoising."""

    def __init__(self, spec: EnvironmentSpec, config: DiffusionBCConfig, seed: int) -> None:
        require_continuous(spec, "diffusion-bc")
        self.config, self.schedule = config, Schedule(config.noise_levels)
        self.parts = parts = LearnerParts(spec, seed, config.normalization_rows)
        size = config.chunk * spec.action.size
        self.denoiser = parts.add("denoiser", Denoiser(parts.encoder.size, size, config.hidden, parts.initial), config.lr)
        self.averaged = parts.add_target("averaged", self.denoiser)
        self.policy = ChunkPolicy(spec, parts.encoder, self, parts.acting)
        parts.policy = self.policy

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step towards telling the noise in the batch's chunks."""
        assert batch.action_chunks is not None and batch.chunk_valid is not None, "sampling.chunk asks for them"
        data = TensorBatch.of(batch, self.parts.encoder, self.parts.updates)
        loss = self.loss(data, torch.from_numpy(batch.action_chunks), torch.from_numpy(batch.chunk_valid))
        self.parts.descend("denoiser", loss)
        self.parts.track(self.averaged, self.denoiser, self.config.tau)
        return self.parts.finish_update({"denoising_loss": loss.detach()})

    def loss(self, data: TensorBatch, chunks: Tensor, valid: Tensor) -> Tensor:
        """Eq. 5: squared error of the predicted noise, over those actions of each chunk that the episode has."""
        generator = self.parts.generator
        clean = chunks.flatten(1)
        noise = torch.randn(clean.shape, generator=generator)
        level = torch.randint(self.schedule.levels, (len(clean),), generator=generator)
        predicted = self.denoiser(self.schedule.noisy(clean, noise, level), level, data.observations)
        errors = (predicted - noise).square().view(chunks.shape).mean(-1) * valid
        return (data.weights * errors.sum(1) / valid.sum(1)).mean()

    @torch.no_grad()
    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns chunks (B, H, A) drawn by taking noise off, level by level (eq. 4)."""
        size = self.config.chunk * self.policy.environment_spec.action.size
        chunks = torch.randn((len(observations), size), generator=generator)
        for level in reversed(range(self.schedule.levels)):
            noise = self.averaged(chunks, torch.full((len(chunks),), level), observations)
            chunks = self.schedule.less_noisy(chunks, noise, level, torch.randn(chunks.shape, generator=generator))
        return chunks.clamp(-1.0, 1.0).view(len(chunks), self.config.chunk, -1)

    def state_dict(self) -> StateDict:
        """Returns networks, optimiser, generators and counters."""
        return self.parts.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.parts.load_state_dict(state)


class ChunkPolicy:
    """Draws a chunk, executes its first actions, and draws the next.

    A deterministic action comes of noise that is the same in every episode, because the most likely chunk is not known.
    """

    def __init__(
        self, spec: EnvironmentSpec, encoder: ObservationEncoder, learner: DiffusionBC, generator: torch.Generator
    ) -> None:
        self.environment_spec = encoder.reads(spec)
        self._encoder, self._learner, self._generator = encoder, learner, generator
        self._same = torch.Generator()
        self.reset()

    def reset(self) -> None:
        """Forgets the chunk of the episode before."""
        self._same.manual_seed(0)
        self._chunk: Array = np.zeros((0, self.environment_spec.action.size), np.float32)

    def seed(self, seed: int) -> None:
        """Begins the random numbers of sampled actions anew, so that an episode can be played again by itself."""
        self._generator.manual_seed(seed)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action (A,) float32 in [-1, 1]."""
        if not len(self._chunk):
            row = self._encoder.stack({name: observation[name][None] for name in self._encoder.names})
            chunks = self._learner.draw(self._encoder(row), self._same if deterministic else self._generator)
            self._chunk = chunks[0, : self._learner.config.executed].numpy()
        action, self._chunk = self._chunk[0].copy(), self._chunk[1:]
        return action

    def state_dict(self) -> StateDict:
        """Returns the generators and what is left of the chunk; the networks belong to the learner."""
        generators = {"generator": self._generator.get_state().clone(), "same": self._same.get_state().clone()}
        return generators | {"chunk": self._chunk.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        load_generator(self._generator, state["generator"])
        load_generator(self._same, state["same"])
        self._chunk = np.array(state["chunk"], np.float32).reshape(-1, self.environment_spec.action.size)


def level_features(level: Tensor) -> Tensor:
    """Returns sines and cosines of a noise level at several frequencies (B, LEVEL_FEATURES) (Vaswani et al. 2017)."""
    frequencies = torch.exp(torch.arange(LEVEL_FEATURES // 2) * (-math.log(1_000.0) / (LEVEL_FEATURES // 2 - 1)))
    angles = level[:, None].float() * frequencies
    return torch.cat((torch.sin(angles), torch.cos(angles)), -1)
