"""Diffusion policy: Chi et al. 2023, "Diffusion Policy: Visuomotor Policy Learning via Action Diffusion" (arXiv 2303.04137).

Clones chunks of several actions by learning to denoise them (Ho et al. 2020, "DDPM"). Unlike a mean action, a drawn chunk
follows one of several modes of the demonstrations.
B batch, H actions of a chunk, A action elements, D encoded observation, K noise levels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from robo_policies.learners.offline import OfflineConfig
from robo_policies.learners.parts import ActorPolicy, Learned, LearnerParts, load_generator
from robo_policies.networks.actor_critic import normal
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.extras import Chunks
from robo_rl.protocols.sampling import Sampling
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict

LEVEL_FEATURES = 32
OFFSET = 0.008  # of the cosine schedule (Nichol & Dhariwal 2021), so that the first noise is not too small


@dataclass(frozen=True)
class DiffusionBCConfig(OfflineConfig):
    """Settings of a diffusion policy for states."""

    chunk: int = 8
    """H, actions that are predicted at once; the paper takes 16 at 10 Hz."""
    executed: int = 4
    """Actions that are executed before the next prediction; the paper takes 8 of 16."""
    noise_levels: int = 20
    """K, evaluations of the network for each chunk when acting. The paper takes 100."""
    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of the residual blocks, all of one size."""
    tau: float = 0.005
    """Step of the averaged network, the one that acts, at each update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "executed": (1 <= self.executed <= self.chunk, "1 to chunk"),
            "noise_levels": (self.noise_levels >= 2, "2 or more"),
            "hidden": (len(set(self.hidden)) == 1, "one or more layers, all of one size"),
        }
        own = {name: (getattr(self, name) is None, "none: it has a denoiser") for name in ("actor_network", "critic_network")}
        require_allowed(self, allowed | own)

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(Chunks(self.chunk),))

    def build(self, spec: EnvironmentSpec, seed: int) -> DiffusionBC:
        """Returns a fresh learner."""
        return DiffusionBC(spec, self, seed)


class Denoiser(nn.Module):
    """Predicts the noise in a chunk from the noisy chunk, its noise level and the observation, by residual blocks."""

    __call__: Callable[..., Tensor]

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


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Returns a layer with torch's default initialisation, drawn from `generator`."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    for array in (layer.weight, layer.bias):
        nn.init.uniform_(array, -1.0 / math.sqrt(inputs), 1.0 / math.sqrt(inputs), generator=generator)
    return layer


class Schedule(nn.Module):
    """Share of the signal left at each noise level: the squared cosine of Nichol & Dhariwal 2021, as in the paper."""

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
        """Returns sqrt(left) x + sqrt(1 - left) noise (Ho et al. eq. 4)."""
        left = self.left[level][:, None]
        return left.sqrt() * clean + (1 - left).sqrt() * noise

    def less_noisy(self, noisy: Tensor, noise: Tensor, level: int, fresh: Tensor) -> Tensor:
        """Returns a draw of the next lower level (Ho et al. eq. 7), given the predicted noise; `fresh` is new noise."""
        left, beta = self.left[level], self.betas[level]
        before = self.left[level - 1] if level else torch.ones_like(left)
        clean = ((noisy - (1 - left).sqrt() * noise) / left.sqrt()).clamp(-1.0, 1.0)  # actions lie there
        mean = before.sqrt() * beta / (1 - left) * clean + (1 - beta).sqrt() * (1 - before) / (1 - left) * noisy
        return mean + (beta * (1 - before) / (1 - left)).sqrt() * fresh


class DiffusionActor(nn.Module):
    """Draws chunks with a denoiser."""

    def __init__(self, denoiser: Denoiser, levels: int, chunk: int, actions: int) -> None:
        super().__init__()
        self.denoiser, self.schedule, self._shape = denoiser, Schedule(levels), (chunk, actions)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Returns chunks (B, H, A) drawn by denoising, level by level (eq. 4)."""
        chunks = normal(observations.new_empty(len(observations), math.prod(self._shape)), generator)
        for level in reversed(range(self.schedule.levels)):
            noise = self.denoiser(chunks, chunks.new_full((len(chunks),), level), observations)
            chunks = self.schedule.less_noisy(chunks, noise, level, normal(chunks, generator))
        return chunks.clamp(-1.0, 1.0).view(-1, *self._shape)


class DiffusionBC(Learned):
    """Clones chunks of demonstrated actions by denoising."""

    def __init__(self, spec: EnvironmentSpec, config: DiffusionBCConfig, seed: int) -> None:
        require_continuous(spec, "diffusion-bc")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        self.schedule = Schedule(config.noise_levels).to(parts.device)
        denoiser = Denoiser(parts.encoder.size, config.chunk * spec.action.size, config.hidden, parts.initial)
        self.denoiser = parts.add("denoiser", denoiser, config.lr, trains_encoder=True)
        self.averaged = parts.add_target("averaged", self.denoiser)
        self.actor = DiffusionActor(self.averaged, config.noise_levels, config.chunk, spec.action.size).to(parts.device)
        parts.policy = ChunkPolicy(parts, self.actor, config.executed)

    def update(self, batch: Batch) -> Metrics:
        """Takes one gradient step towards the noise in the batch's chunks."""
        loss = self.loss(self.parts.batch(batch))
        self.parts.descend("denoiser", loss)
        self.parts.track(self.averaged, self.denoiser, self.config.tau)
        return self.parts.finish_update({"denoising_loss": loss})

    def loss(self, data: TensorBatch) -> Tensor:
        """Eq. 5: squared error of the predicted noise, over those actions of each chunk that the episode has."""
        generator, chunks, valid = self.parts.generator, data.extras["action_chunks"], data.extras["chunk_valid"]
        clean = chunks.flatten(1)
        noise = normal(clean, generator)
        level = torch.randint(self.schedule.levels, (len(clean),), generator=generator).to(clean.device)
        predicted = self.denoiser(self.schedule.noisy(clean, noise, level), level, self.parts.encoder(data.observations))
        errors = (predicted - noise).square().view(chunks.shape).mean(-1) * valid
        return (data.weights * errors.sum(1) / valid.sum(1)).mean()


class ChunkPolicy(ActorPolicy):
    """Draws a chunk, executes its first actions, and draws the next.

    Deterministic actions use the same noise in every episode, because the most likely chunk is unknown.
    """

    def __init__(self, parts: LearnerParts, actor: DiffusionActor, executed: int) -> None:
        super().__init__(parts, actor)
        self._executed, self._same = executed, torch.Generator()
        self.reset()

    @override
    def reset(self) -> None:
        self._same.manual_seed(0)
        self._chunk: Array = np.zeros((0, self.environment_spec.action.size), np.float32)

    @override
    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        if not len(self._chunk):
            self._chunk = self.proposed(observation, self._same if deterministic else self._generator)[: self._executed]
        action: Array = self._chunk[0].copy()
        self._chunk = self._chunk[1:]
        return action

    @override
    def state_dict(self) -> StateDict:
        """Returns the generators and the rest of the chunk; the networks belong to the learner."""
        return super().state_dict() | {"same": self._same.get_state().clone(), "chunk": self._chunk.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        load_generator(self._same, state["same"])
        self._chunk = np.array(state["chunk"], np.float32).reshape(-1, self.environment_spec.action.size)


def level_features(level: Tensor) -> Tensor:
    """Returns sines and cosines of a noise level at several frequencies (B, LEVEL_FEATURES) (Vaswani et al. 2017)."""
    frequencies = torch.exp(
        torch.arange(LEVEL_FEATURES // 2, device=level.device) * (-math.log(1_000.0) / (LEVEL_FEATURES // 2 - 1))
    )
    angles = level[:, None].float() * frequencies
    return torch.cat((torch.sin(angles), torch.cos(angles)), -1)
