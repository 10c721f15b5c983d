"""Off-policy GAIL with a Lipschitz reward: Blondé, Strasser and Kalousis 2022, arXiv:2006.16785.

"Lipschitzness is all you need to tame off-policy generative adversarial imitation learning", after Ho and Ermon 2016,
arXiv:1606.03476. A discriminator tells the expert's steps from the policy's; a soft actor-critic is paid for being taken for
the expert. Rewards are those of the present discriminator, computed for each batch. B rows, F inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from robo_policies.learners.imitation import ImitationSettings
from robo_policies.learners.parts import Learned
from robo_policies.learners.sac import SAC
from robo_policies.networks.actor_critic import MLPEnsemble, Trainable
from robo_policies.networks.encoders import TensorBatch, to_device
from robo_rl.errors import require_allowed
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Metrics


@dataclass(frozen=True)
class GAILConfig(ImitationSettings):
    """Settings of off-policy GAIL (Blondé et al. 2022, arXiv:2006.16785): SAC paid by a discriminator.

    Its own fields set the discriminator: size, learning rate, gradient penalty, label smoothing, entropy.
    """

    gradient_penalty: float = 10.0
    """Weight of the penalty on gradients of the discriminator; 0 for none, the control condition."""
    largest_gradient: float = 1.0
    """Norm of the discriminator's gradient up to which there is no penalty: the Lipschitz constant of the reward."""
    discriminator_lr: float = 5e-4
    """Learning rate of the discriminator."""
    discriminator_hidden: tuple[int, ...] = (100, 100)
    """Units of the hidden layers of the discriminator."""
    label_smoothing: tuple[float, float] = (0.7, 1.2)
    """Range from which the labels of the expert's steps are drawn, instead of 1."""
    entropy: float = 0.001
    """Weight of the entropy of the discriminator's answers in its loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.label_smoothing
        require_allowed(
            self,
            {
                "discount": (0.0 <= self.discount < 1.0, "0 to below 1: an absorbing state is paid for ever"),
                "gradient_penalty": (self.gradient_penalty >= 0.0, "0 or more"),
                "largest_gradient": (self.largest_gradient >= 0.0, "0 or more"),
                "discriminator_lr": (self.discriminator_lr > 0.0, "above 0"),
                "discriminator_hidden": (all(units >= 1 for units in self.discriminator_hidden), "1 or more units"),
                "label_smoothing": (0.0 < low <= high, "two numbers above 0, the lower first"),
            },
        )

    def build(self, spec: EnvironmentSpec, seed: int) -> GAIL:
        """Build an untrained GAIL learner for the spec of an environment; its networks are initialised from `seed`."""
        return GAIL(spec, self, seed)


class Discriminator(Trainable):
    """Discriminator D(s, a): probability that a step is the expert's, as logits."""

    __call__: Callable[..., Tensor]

    def __init__(self, inputs: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.layers = MLPEnsemble(1, (inputs, *hidden, 1), False, generator)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits log D / (1 - D) (B,) for inputs (B, F)."""
        logits: Tensor = self.layers(inputs)[0, :, 0]
        return logits


@dataclass(frozen=True)
class Kinds:
    """Row numbers of a batch by kind of step; known on the CPU, so that no device is waited for."""

    ends: Tensor
    """Rows of steps that terminated; absorbing states are added for them."""
    expert: Tensor
    """Rows of the expert's steps, including those of added absorbing states."""
    policy: Tensor

    @classmethod
    def of(cls, masks: Array, is_expert: Array, device: torch.device) -> Kinds:
        """Find the rows of each kind, given masks (B,), 0 for a terminated step, and whether a step is the expert's (B,)."""
        ends = np.flatnonzero(masks == 0)
        whose = np.concatenate([is_expert, is_expert[ends]])
        return cls(*(to_device(torch.from_numpy(np.flatnonzero(each)), device) for each in (masks == 0, whose, ~whose)))


class GAIL(Learned):
    """Learner of GAIL: soft actor-critic on the reward of a discriminator that is trained beside it."""

    def __init__(self, spec: EnvironmentSpec, config: GAILConfig, seed: int) -> None:
        self.config, self.sac = config, SAC(spec, config, seed)
        self.parts = parts = self.sac.parts
        inputs = parts.encoder.size + spec.action.size + 1
        discriminator = Discriminator(inputs, config.discriminator_hidden, parts.initial)
        self.discriminator = parts.add("discriminator", discriminator, config.discriminator_lr)

    def update(self, batch: Batch) -> Metrics:
        """Take one step of the discriminator, and one of SAC on its rewards."""
        data = self.parts.batch(batch)
        found = self.learn_discriminator(data, Kinds.of(batch.masks, batch.extras["from_expert"], self.parts.device))
        rewards = self.rewards(data)
        learnt = self.sac.learn(replace(data, rewards=rewards))
        return self.parts.finish_update(learnt | found | {"imitation_reward": rewards.mean()})

    def learn_discriminator(self, data: TensorBatch, kinds: Kinds) -> dict[str, Tensor]:
        """Take one gradient step of the discriminator on a batch with steps of expert and policy.

        Returns figures for the log.
        """
        config, parts = self.config, self.parts
        inputs, is_expert = self.inputs(data), data.extras["from_expert"]
        inputs = torch.cat([inputs, absorbing(inputs[kinds.ends])])
        is_expert = torch.cat([is_expert, is_expert[kinds.ends]])
        expert, policy = inputs[kinds.expert], inputs[kinds.policy]
        pairs = min(len(expert), len(policy))
        logits = self.discriminator(inputs)
        low, high = config.label_smoothing
        drawn = (low + (high - low) * torch.rand(len(inputs), generator=parts.generator)).to(parts.device)
        losses = functional.binary_cross_entropy_with_logits(logits, drawn * is_expert, reduction="none")
        loss = losses[kinds.expert].sum() / max(len(expert), 1) + losses[kinds.policy].sum() / max(len(policy), 1)
        chance = torch.sigmoid(logits)
        entropy = (functional.softplus(-logits) + (1.0 - chance) * logits).mean()
        loss = loss - config.entropy * entropy
        if config.gradient_penalty and pairs:
            between = torch.rand((pairs, 2), generator=parts.generator).to(parts.device)
            split = parts.encoder.size  # state and action are mixed in shares of their own
            share = torch.cat([between[:, :1].expand(-1, split), between[:, 1:].expand(-1, inputs.shape[1] - split)], 1)
            norms = self.gradient_norms(share * expert[:pairs] + (1.0 - share) * policy[:pairs], is_kept=True)
            loss = loss + config.gradient_penalty * (norms - config.largest_gradient).clamp(min=0.0).square().mean()
        self.discriminator.descend(loss)
        gradient = self.gradient_norms(policy).mean() if len(policy) else torch.zeros(())
        right = ((logits > 0.0) == is_expert).float().mean()
        return {"discriminator_loss": loss, "discriminator_right": right, "discriminator_gradient": gradient}

    @torch.no_grad()
    def rewards(self, data: TensorBatch) -> Tensor:
        """Return the rewards -log(1 - D(s, a)) (B,) by the present discriminator.

        After the end of an episode the reward of the absorbing state counts for ever. Kostrikov et al. 2019, arXiv:1809.02925,
        let critics learn the absorbing state's value; it is r / (1 - gamma).
        """
        inputs = self.inputs(data)
        there = functional.softplus(self.discriminator(absorbing(inputs[:1])))
        value = data.discounts * (1.0 - data.masks) * there / (1.0 - self.config.discount)
        return functional.softplus(self.discriminator(inputs)) + value

    def inputs(self, data: TensorBatch) -> Tensor:
        """Return the discriminator's inputs (B, F): observation, action, and 1 for an absorbing state, else 0."""
        observations = self.parts.encoder(data.observations).detach()
        return torch.cat([observations, data.actions, torch.zeros_like(data.actions[:, :1])], 1)

    def gradient_norms(self, inputs: Tensor, *, is_kept: bool = False) -> Tensor:
        """Return the norm of the gradient of the logits by the inputs (B,); is_kept: it can be learnt from."""
        inputs = inputs.detach().requires_grad_()
        (gradients,) = torch.autograd.grad(self.discriminator(inputs).sum(), inputs, create_graph=is_kept)
        return torch.sqrt(gradients.square().sum(1) + 1e-12)


def absorbing(inputs: Tensor) -> Tensor:
    """Return for each row the input (F,) of the absorbing state: zeros, and 1 in the last column."""
    return torch.cat([torch.zeros_like(inputs[:, 1:]), torch.ones_like(inputs[:, :1])], 1)
