"""FISOR: Zheng et al. 2024, "Safe Offline Reinforcement Learning with Feasibility-Guided Diffusion Model", arXiv:2401.10700.

Three phases at once: the largest feasible region that the data allows (Hamilton-Jacobi reachability), values of rewards by
implicit Q-learning, and a diffusion policy by weighted regression. h above 0 is unsafe; the feasible set is V_h <= 0.
B rows, N candidate actions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.chunks import ChunkMLP
from robo_policies.learners.diffusion_bc import DiffusionActor
from robo_policies.learners.iql import expectile_loss
from robo_policies.learners.offline import OfflineValueSettings
from robo_policies.learners.parts import Learned, LearnerParts
from robo_policies.networks.actor_critic import Critics, normal
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import Costs
from robo_rl.protocols.contract import CONTINUOUS_ONLY, DATA, Needs
from robo_rl.protocols.sampling import Sampling
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics

LARGEST_ESCAPE, LARGEST_GAIN = 150.0, 100.0
"""Largest weights of an action in the policy's loss: outside, and inside the feasible region."""


@dataclass(frozen=True)
class FISORConfig(OfflineValueSettings):
    """Settings of FISOR (Zheng et al. 2024, arXiv:2401.10700): a diffusion policy from recorded data that stays safe.

    They set the expectiles of the values, the signal of danger, the weights of safety and reward, and the diffusion.
    """

    needs = Needs(DATA, CONTINUOUS_ONLY)

    expectile: float = 0.9
    """Expectile of Q(s, a), over the actions in the data, that V(s) follows."""
    feasibility_expectile: float = 0.9
    """Expectile of -Q_h, over the actions in the data, that -V_h follows: V_h is near the safest action in the data."""
    unsafe_signal: float = 1.0
    """Danger h of a step with a cost; a step without has -1. The authors take 25, with which a danger far ahead counts
    longer."""
    clearance: str = ""
    """Name of the observation entry with distances to what is forbidden, negative inside: h is then minus the smallest. "": h
    follows from the costs alone."""
    escape_weight: float = 5.0
    """Inverse temperature of the gain in safety, V_h - Q_h, outside the feasible region [1/h]."""
    gain_weight: float = 3.0
    """Inverse temperature of the advantage inside the feasible region [1/reward]."""
    noise_levels: int = 5
    """Noise levels of the diffusion; each drawn action takes one evaluation of the network a level."""
    candidates: int = 16
    """N, actions drawn at each step; the one with the least Q_h, the safest, is executed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        between = {name: 0.0 < getattr(self, name) < 1.0 for name in ("expectile", "feasibility_expectile")}
        allowed = {name: (fits, "between 0 and 1, both excluded") for name, fits in between.items()}
        positive = ("unsafe_signal", "escape_weight", "gain_weight")
        allowed |= {name: (getattr(self, name) > 0, "above 0") for name in positive}
        allowed |= {"noise_levels": (self.noise_levels >= 2, "2 or more"), "candidates": (self.candidates >= 1, "1 or more")}
        require_allowed(self, allowed)
        self.network.require({"hidden": (len(set(self.network.hidden)) == 1, "one or more layers, all of one size")})
        self.network.require_unused("it reads vectors, or features of the wrapper `encoded`", "convolutions")
        self.network.require_unused("it has a denoiser", "actor", "critic")

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, extras=(Costs(),))

    def build(self, spec: EnvironmentSpec, seed: int) -> FISOR:
        """Build an untrained FISOR learner for the spec of an environment; its networks are initialised from `seed`.

        Raises:
            InvalidSetting: The entry `clearance` is not observed.
        """
        if self.clearance and self.clearance not in spec.observation:
            raise InvalidSetting("The clearance is not observed.", got=self.clearance, allowed=list(spec.observation))
        return FISOR(spec, self, seed)


class FISOR(Learned):
    """Learner of FISOR: learns in which states an agent can stay safe for ever, and how to earn most reward there."""

    def __init__(self, spec: EnvironmentSpec, config: FISORConfig, seed: int) -> None:
        require_continuous(spec, "fisor")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        inputs, actions = parts.encoder.size, spec.action.size

        def critics(name: str) -> tuple[Critics, Critics, Critics]:
            critic = parts.add(f"{name}critic", Critics(parts.networks, inputs + actions), config.lr)
            target = parts.add_target(f"{name}target_critic", critic)
            return critic, target, parts.add(f"{name}value", Critics(parts.networks, inputs, 1), config.lr)

        self.danger_critic, self.danger_target, self.danger_value = critics("danger_")
        self.critic, self.target_critic, self.value = critics("")
        denoiser = ChunkMLP(inputs, actions, config.network.hidden, parts.initial)
        self.denoiser = parts.add("denoiser", denoiser, config.lr)
        self.averaged = parts.add_target("averaged", self.denoiser)
        diffusion = DiffusionActor(self.averaged, config.noise_levels, 1, actions).to(parts.device)
        self.actor = SafestOfMany(diffusion, self.danger_target, config.candidates)
        parts.act_with(self.actor)

    def signal(self, batch: Batch) -> Tensor:
        """Return the signal of danger h (B,) of each step; above 0 is unsafe."""
        if self.config.clearance:
            distances = torch.from_numpy(batch.next_observations[self.config.clearance])
            return -distances.flatten(1).amin(1).to(self.parts.device)
        costs = torch.from_numpy(batch.extras["costs"]).sum(1).to(self.parts.device)
        return torch.where(costs > 0, self.config.unsafe_signal, -1.0)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of every network: those of safety, those of rewards, then the policy."""
        parts, config = self.parts, self.config
        data = parts.batch(batch)
        with torch.no_grad():
            observations, following = parts.encoder(data.observations), parts.encoder(data.next_observations)
        danger, danger_value = self.learn_feasibility(data, observations, following, self.signal(batch))
        gain, losses = self.learn_values(data, observations, following)
        weights = self.weights(danger_value, danger, gain)
        loss = self.denoising_loss(data, observations, weights)
        self.denoiser.descend(loss)
        parts.track(self.averaged, self.denoiser, config.tau)
        share = (danger_value <= 0).float().mean()
        figures = {"denoising_loss": loss, "feasible_share": share, "weight_mean": weights.mean()}
        return parts.finish_update(losses | figures)

    def learn_feasibility(
        self, data: TensorBatch, observations: Tensor, following: Tensor, signal: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Take a gradient step of V_h and Q_h, the values of danger; return Q_h and V_h (B,) of the batch."""
        parts, config = self.parts, self.config
        with torch.no_grad():
            danger = self.danger_target(observations, data.actions).amax(0)
        value = self.danger_value(observations)[0]
        loss = (data.weights * expectile_loss(value - danger, config.feasibility_expectile)).mean()  # eq. 7, reversed
        self.danger_value.descend(loss)
        with torch.no_grad():
            next_value = self.danger_value(following)[0]
            target = self.danger_target_of(signal, next_value, data)
            value = self.danger_value(observations)[0]
        values = self.danger_critic(observations, data.actions)
        self.danger_critic.descend((data.weights * (values - target).square()).mean(1).sum())
        parts.track(self.danger_target, self.danger_critic, config.tau)
        return danger, value

    def danger_target_of(self, signal: Tensor, next_value: Tensor, data: TensorBatch) -> Tensor:
        """Return the targets (B,) of Q_h: (1 - gamma) h + gamma max(h, V_h(s')), or h where the episode terminated (eq. 8)."""
        gamma = self.config.discount
        ahead = (1.0 - gamma) * signal + gamma * torch.maximum(signal, next_value)
        return torch.where(data.masks > 0, ahead, signal)

    def learn_values(self, data: TensorBatch, observations: Tensor, following: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """Take a gradient step of V and Q, the values of rewards, as in IQL; return the advantages (B,) and the losses."""
        parts, config = self.parts, self.config
        with torch.no_grad():
            q = self.target_critic(observations, data.actions).amin(0)
        value = self.value(observations)[0]
        value_loss = (data.weights * expectile_loss(q - value, config.expectile)).mean()
        self.value.descend(value_loss)
        with torch.no_grad():
            gain = q - self.value(observations)[0]
            targets = data.rewards + data.discounts * data.masks * self.value(following)[0]
        values = self.critic(observations, data.actions)
        critic_loss = (data.weights * (values - targets).square()).mean(1).sum()
        self.critic.descend(critic_loss)
        parts.track(self.target_critic, self.critic, config.tau)
        return gain, {"value_loss": value_loss, "critic_loss": critic_loss, "q_mean": q.mean()}

    def weights(self, danger_value: Tensor, danger: Tensor, gain: Tensor) -> Tensor:
        """Return weights (B,) of the actions in the data (eq. 12).

        Outside the feasible region exp(escape (V_h - Q_h)); inside it exp(gain A) for actions that stay there, else 0.
        """
        config = self.config
        escape = torch.exp(config.escape_weight * (danger_value - danger)).clamp(max=LARGEST_ESCAPE)
        earn = torch.exp(config.gain_weight * gain).clamp(max=LARGEST_GAIN) * (danger <= 0)
        return torch.where(danger_value > 0, escape, earn)

    def denoising_loss(self, data: TensorBatch, observations: Tensor, weights: Tensor) -> Tensor:
        """Return the loss of the diffusion policy, a scalar (eq. 13): the weighted squared error of its predicted noise.

        Noise of a random level is added to the actions of the data, and the denoiser predicts it.

        Args:
            data: The batch, whose actions the policy imitates.
            observations: (B, F) encoded observations.
            weights: (B,) weights of the actions, of `weights`.
        """
        schedule, generator = self.actor.diffusion.schedule, self.parts.generator
        noise = normal(data.actions, generator)
        level = torch.randint(schedule.levels, (len(noise),), generator=generator).to(noise.device)
        predicted = self.denoiser(schedule.noisy(data.actions, noise, level), level, observations)
        return (data.weights * weights * (predicted - noise).square().mean(1)).mean()


class SafestOfMany(nn.Module):
    """Actor of FISOR: draws N actions by diffusion and takes the safest, which has the least Q_h."""

    def __init__(self, diffusion: DiffusionActor, critic: Critics, candidates: int) -> None:
        super().__init__()
        self.diffusion, self.critic, self._count = diffusion, critic, candidates
        self._fixed: Tensor | None = None  # noise of `mode`: a constant of an exported network

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return the safest of N random actions for each observation, (B, A), given features (B, F)."""
        repeated = observations.repeat_interleave(self._count, 0)
        return self._safest(repeated, self.diffusion.noise(repeated, generator))

    def _safest(self, repeated: Tensor, noise: Tensor) -> Tensor:
        """Return the safest actions (B, A) of those made of noise (B N, ...), N for each of B observations in turn."""
        actions = self.diffusion.from_draws(repeated, noise)[:, 0]
        danger = self.critic(repeated, actions).amax(0).view(-1, self._count)
        rows = torch.arange(len(danger), device=danger.device)
        return actions.view(len(danger), self._count, -1)[rows, danger.argmin(1)]

    def mode(self, observations: Tensor) -> Tensor:
        """Return actions (B, A), drawn with the same noise at every call, so that equal observations get equal actions."""
        repeated = observations.repeat_interleave(self._count, 0)
        if self._fixed is None or len(self._fixed) != len(repeated):
            self._fixed = self.diffusion.noise(repeated, torch.Generator().manual_seed(0))
        return self._safest(repeated, self._fixed)
