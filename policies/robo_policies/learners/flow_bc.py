"""Flow-matching policy: chunks of actions along straight paths from noise.

Lipman et al. 2023, "Flow Matching for Generative Modeling" (arXiv 2210.02747); Liu et al. 2023, "Flow Straight and Fast:
Learning to Generate and Transfer Data with Rectified Flow" (arXiv 2209.03003). For actions as in Black et al. 2024, "pi_0: A
Vision-Language-Action Flow Model for General Robot Control" (arXiv 2410.24164).
B batch, H actions of a chunk, A action elements, F features of an observation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

TIME_SCALE = 1_000.0
"""Factor of times in [0, 1] before they enter the network, whose time features expect values up to about 1,000."""
LARGEST_TIME = 0.999
"""Largest training time drawn if `time_distribution` is "beta"; the constant s of the pi_0 paper."""


@dataclass(frozen=True)
class FlowBCConfig(ChunkSettings):
    """Settings of a flow-matching policy (Lipman et al. 2023, arXiv 2210.02747; pi_0: arXiv 2410.24164).

    They steer the number of integration steps, the distribution of training times and the moving average of the weights.
    """

    integration_steps: int = 10
    """Steps of Euler's method from noise to a chunk, each with one evaluation of the network; 10 as in pi_0."""
    time_distribution: Literal["beta", "uniform"] = "beta"
    """Distribution of training times: beta emphasises noisy chunks as pi_0 does, uniform is that of the flow papers."""
    tau: float = 0.005
    """Share of the trained weights that enters their moving average at each update; the average acts."""
    network: ResidualNetwork = ResidualNetwork()
    """Sizes of the networks, and how they are computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "integration_steps": (self.integration_steps >= 1, "1 or more"),
        }
        require_allowed(self, allowed)

    def build(self, spec: EnvironmentSpec, seed: int) -> FlowBC:
        """Build an untrained flow-matching policy's learner for a spec; its networks are initialised from `seed`."""
        return FlowBC(spec, self, seed)


class FlowActor(nn.Module):
    """Actor of a flow-matching policy: moves random noise along a learnt velocity until it is a chunk of actions."""

    def __init__(self, velocity: ChunkMLP, steps: int, chunk: int, actions: int) -> None:
        super().__init__()
        self.velocity, self._steps, self._shape = velocity, steps, (chunk, actions)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random chunks (B, H, A) in [-1, 1] for features (B, F)."""
        return self.from_noise(observations, normal(observations.new_empty(len(observations), *self._shape), generator))

    draws = 1
    """R, number of noise arrays (H, A) from which a chunk is made: 1, because only the start of the path is random."""

    def from_draws(self, observations: Tensor, draws: Tensor) -> Tensor:
        """Return the chunks (B, H, A) made of noise (B, 1, H, A)."""
        return self.from_noise(observations, draws[:, 0])

    def from_noise(self, observations: Tensor, noise: Tensor) -> Tensor:
        """Return the chunks (B, H, A) made of noise (B, H, A), by N = `integration_steps` steps of Euler's method.

        Each step is x <- x + v(x, t, s) / N, from t = 0 (noise) to t = 1 (actions).
        """
        chunks = noise.flatten(1)
        for step in range(self._steps):
            times = chunks.new_full((len(chunks),), step / self._steps)
            chunks = chunks + self.velocity(chunks, TIME_SCALE * times, observations) / self._steps
        return chunks.clamp(-1.0, 1.0).view(-1, *self._shape)


class FlowBC(Learned):
    """Learner of a flow-matching policy: clones chunks of demonstrated actions."""

    def __init__(self, spec: EnvironmentSpec, config: FlowBCConfig, seed: int) -> None:
        require_continuous(spec, "flow-bc")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        velocity = ChunkMLP(parts.encoder.size, config.chunk * spec.action.size, config.network.hidden, parts.initial)
        self.velocity = parts.add("velocity", velocity, config.lr, trains_encoder=True)
        self.averaged = parts.add_target("averaged", self.velocity)
        self.actor = FlowActor(self.averaged, config.integration_steps, config.chunk, spec.action.size).to(parts.device)
        parts.policy = ChunkPolicy(parts, self.actor, config.executed)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the loss on a batch.

        Returns the metrics for the log, or an empty dict at updates for which none are due.
        """
        loss = self.loss(self.parts.batch(batch))
        self.velocity.descend(loss)
        self.parts.track(self.averaged, self.velocity, self.config.tau)
        return self.parts.finish_update({"flow_loss": loss})

    def loss(self, data: TensorBatch) -> Tensor:
        """Return the flow-matching loss of a batch, a scalar.

        It is the mean of |v((1 - t) noise + t x, t, s) - (x - noise)|^2 with random t and noise, over the recorded chunks x.
        Actions after the end of an episode are left out.
        """
        generator, chunks, valid = self.parts.generator, data.extras["action_chunks"], data.extras["chunk_valid"]
        clean = chunks.flatten(1)
        noise = normal(clean, generator)
        time = self._times(len(clean)).to(clean.device)
        noisy = torch.lerp(noise, clean, time[:, None])
        predicted = self.velocity(noisy, TIME_SCALE * time, self.parts.encoder(data.observations))
        errors = (predicted - (clean - noise)).square().view(chunks.shape)
        return (data.weights * chunk_mean(errors, valid)).mean()

    def _times(self, count: int) -> Tensor:
        """Return random times (B,) in [0, 1]; beta: t = s (1 - b) with b from Beta(1.5, 1), drawn as u^(2/3)."""
        draws = torch.rand(count, generator=self.parts.generator)
        return draws if self.config.time_distribution == "uniform" else LARGEST_TIME * (1.0 - draws ** (2.0 / 3.0))
