"""Diffusion policy: Chi et al. 2023, "Diffusion Policy: Visuomotor Policy Learning via Action Diffusion" (arXiv 2303.04137).

It clones chunks of several actions by learning to denoise them (Ho et al. 2020, "DDPM"). If demonstrators do different things
in one state, a drawn chunk follows one of them, while the mean action would follow none.
B batch, H actions of a chunk, A action elements, D encoded observation, K noise levels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from robo_policies.learners.chunks import ChunkMLP, ChunkPolicy, ChunkSettings, ResidualNetwork, chunk_mean
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import normal
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics

OFFSET = 0.008  # of the cosine schedule (Nichol & Dhariwal 2021), so that the first noise is not too small


@dataclass(frozen=True)
class DiffusionBCConfig(ChunkSettings):
    """Settings of a diffusion policy that reads vectors (Chi et al. 2023, arXiv 2303.04137).

    They steer the length of a chunk, the number of noise levels and the moving average of the weights.
    """

    chunk: int = 8
    """H, number of actions predicted at once; the paper takes 16 at 10 Hz."""
    executed: int = 4
    """Number of actions executed before the next prediction; the paper takes 8 of 16."""
    noise_levels: int = 20
    """K, number of noise levels, and of evaluations of the network for each chunk. The paper takes 100."""
    tau: float = 0.005
    """Share of the trained weights that enters their moving average at each update; the average acts."""
    network: ResidualNetwork = ResidualNetwork()
    """Sizes of the networks, and how they are computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "noise_levels": (self.noise_levels >= 2, "2 or more"),
        }
        require_allowed(self, allowed)

    def build(self, spec: EnvironmentSpec, seed: int) -> DiffusionBC:
        """Build an untrained diffusion policy's learner for a spec; its networks are initialised from `seed`."""
        return DiffusionBC(spec, self, seed)


class Schedule(nn.Module):
    """Noise schedule of the diffusion: how much of a chunk is left at each of K noise levels.

    `left` (K,) is the squared share of the signal. It follows the squared cosine of Nichol & Dhariwal 2021, as in the paper.
    """

    betas: Tensor
    left: Tensor

    def __init__(self, levels: int) -> None:
        super().__init__()
        steps = torch.arange(levels + 1, dtype=torch.float64) / levels
        left = torch.cos((steps + OFFSET) / (1 + OFFSET) * math.pi / 2).square()
        betas = (1 - left[1:] / left[:-1]).clamp(max=0.999)
        self.levels = levels
        self.register_buffer("betas", betas.float(), persistent=False)
        self.register_buffer("left", torch.cumprod(1 - betas, 0).float(), persistent=False)

    def noisy(self, clean: Tensor, noise: Tensor, level: Tensor) -> Tensor:
        """Return sqrt(left) x + sqrt(1 - left) noise (B, H A), for chunks x, noise and levels (B,) (Ho et al. eq. 4)."""
        left = self.left[level][:, None]
        return left.sqrt() * clean + (1 - left).sqrt() * noise

    def less_noisy(self, noisy: Tensor, noise: Tensor, level: int, fresh: Tensor) -> Tensor:
        """Return chunks (B, H A) drawn at the next lower noise level (Ho et al. eq. 7).

        Args:
            noisy: Chunks (B, H A) at noise level `level`.
            noise: Predicted noise (B, H A) in them.
            level: Present noise level.
            fresh: New standard normal noise (B, H A).
        """
        left, beta = self.left[level], self.betas[level]
        before = self.left[level - 1] if level else torch.ones_like(left)
        clean = ((noisy - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-1.0, 1.0)  # actions lie there
        mean = before.sqrt() * beta / (1 - left) * clean + (1 - beta).sqrt() * (1 - before) / (1 - left) * noisy
        return mean + (beta * (1 - before) / (1 - left)).sqrt() * fresh


class DiffusionActor(nn.Module):
    """Actor of a diffusion policy: begins with random noise and removes predicted noise until a chunk of actions is left."""

    def __init__(self, denoiser: ChunkMLP, levels: int, chunk: int, actions: int) -> None:
        super().__init__()
        self.denoiser, self.schedule, self._shape = denoiser, Schedule(levels), (chunk, actions)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random chunks (B, H, A) for encoded observations (B, D)."""
        return self.from_draws(observations, self.noise(observations, generator))

    def noise(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return standard normal noise (B, R, H, A) for `from_draws`."""
        like = observations.new_empty(len(observations), *self._shape)
        return torch.stack([normal(like, generator) for _ in range(self.draws)], 1)

    @property
    def draws(self) -> int:
        """R, number of noise arrays (H, A) from which a chunk is made: one to begin with and one for each noise level."""
        return self.schedule.levels + 1

    def from_draws(self, observations: Tensor, draws: Tensor) -> Tensor:
        """Return the chunks (B, H, A) made of noise (B, R, H, A), denoised level by level (eq. 4)."""
        chunks, *fresh = draws.flatten(2).unbind(1)
        for level, noise in zip(reversed(range(self.schedule.levels)), fresh, strict=True):
            predicted = self.denoiser(chunks, chunks.new_full((len(chunks),), level), observations)
            chunks = self.schedule.less_noisy(chunks, predicted, level, noise)
        return chunks.clamp(-1.0, 1.0).view(-1, *self._shape)


class DiffusionBC(Learned):
    """Learner of a diffusion policy: clones chunks of demonstrated actions by denoising."""

    def __init__(self, spec: EnvironmentSpec, config: DiffusionBCConfig, seed: int) -> None:
        require_continuous(spec, "diffusion-bc")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        self.schedule = Schedule(config.noise_levels).to(parts.device)
        denoiser = ChunkMLP(parts.encoder.size, config.chunk * spec.action.size, config.network.hidden, parts.initial)
        self.denoiser = parts.add("denoiser", denoiser, config.lr, trains_encoder=True)
        self.averaged = parts.add_target("averaged", self.denoiser)
        self.actor = DiffusionActor(self.averaged, config.noise_levels, config.chunk, spec.action.size).to(parts.device)
        parts.policy = ChunkPolicy(parts, self.actor, config.executed)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the loss on a batch.

        Returns the metrics for the log, or an empty dict at updates for which none are due.
        """
        loss = self.loss(self.parts.batch(batch))
        self.denoiser.descend(loss)
        self.parts.track(self.averaged, self.denoiser, self.config.tau)
        return self.parts.finish_update({"denoising_loss": loss})

    def loss(self, data: TensorBatch) -> Tensor:
        """Return the mean squared error of the predicted noise over actions before the end of the episode (eq. 5)."""
        generator, chunks, valid = self.parts.generator, data.extras["action_chunks"], data.extras["chunk_valid"]
        clean = chunks.flatten(1)
        noise = normal(clean, generator)
        level = torch.randint(self.schedule.levels, (len(clean),), generator=generator).to(clean.device)
        predicted = self.denoiser(self.schedule.noisy(clean, noise, level), level, self.parts.encoder(data.observations))
        errors = (predicted - noise).square().view(chunks.shape)
        return (data.weights * chunk_mean(errors, valid)).mean()
