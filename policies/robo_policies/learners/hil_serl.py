"""HIL-SERL: Luo et al. 2024, "Precise and Dexterous Robotic Manipulation via Human-in-the-Loop Reinforcement Learning".

arXiv:2410.21845. It is RLPD in which half of each batch is demonstrations and a person's corrections. A gripper that only opens
and closes may have a critic of its own with these two choices, instead of a continuous element of the action.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from typing_extensions import override

from robo_policies.learners.parts import Learned
from robo_policies.learners.rlpd import RLPD, RLPDReplay, RLPDSettings, slices
from robo_policies.networks.actor_critic import NetworkFactory, TanhGaussianActor, Trainable
from robo_policies.networks.encoders import TensorBatch, to_device
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.sampling import Sampling
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Batch, Metrics

COMMANDS = (-1.0, 1.0)  # close, open: commands of the choices 0 and 1
OPEN = 0.9  # share of its range from which a gripper reads as open; as in the authors' code
COMMANDED = 0.5  # size of a command from which the authors' gripper obeys


@dataclass(frozen=True)
class HILSERLReplay(RLPDReplay):
    """Settings group `replay` of HIL-SERL: size of the two memories, and the random steps before the first update."""

    capacity: int = 200_000
    """Rows of the memory of the policy's steps, and as many of the memory of corrections."""
    learning_starts: int = 100
    """Environment steps with uniformly random actions before the first update."""


@dataclass(frozen=True)
class HILSERLConfig(RLPDSettings):
    """Settings of HIL-SERL (Luo et al. 2024, arXiv:2410.21845): RLPD with a person's corrections, for a robot arm.

    Beside RLPD's fields, with the authors' values for an arm, it names the gripper and sets the penalty of its critic.
    """

    updates_per_step: int = 2
    """Critic updates per environment step; the actor and the temperature are updated once. The authors' cta_ratio."""
    discount: float = 0.97
    """Weight of a reward one step later."""
    critics: int = 2
    """Critics in the ensemble; the target takes the minimum of all."""
    initial_temperature: float = 0.01
    """Temperature alpha, the weight of the entropy, at the start; above 0."""
    replay: HILSERLReplay = HILSERLReplay()
    """Settings of the replay memory."""
    gripper: str = ""
    """Name of the action element that opens and closes the gripper, and of the observation that measures it, such as
    gripper_opening; a separate critic then chooses between open and closed. Empty: the gripper is a continuous element."""
    grasp_penalty: float = 0.02
    """Subtracted from the reward of the gripper's critic alone if a command opens or closes the gripper; 0 or more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"grasp_penalty": (self.grasp_penalty >= 0, "0 or more")})

    @property
    @override
    def sampling(self) -> Sampling:
        return replace(super().sampling, keeps_corrections=True)

    def build(self, spec: EnvironmentSpec, seed: int) -> HILSERL | RLPD:
        """Build an untrained HIL-SERL learner for the spec of an environment; with an empty `gripper` an RLPD learner."""
        return HILSERL(spec, self, seed) if self.gripper else RLPD(spec, self, seed)


class HILSERL(Learned):
    """Learner of HIL-SERL: RLPD for the arm, and a critic with two choices for the gripper, trained on the same batches.

    The loss of the gripper's critic also trains the encoder, with separate moments of Adam, as in the authors' code.
    """

    def __init__(self, spec: EnvironmentSpec, config: HILSERLConfig, seed: int) -> None:
        require_continuous(spec, "HIL-SERL")
        index = _index_of(spec, config.gripper)
        others = [i for i in range(spec.action.size) if i != index]
        # The target entropy counts the gripper's element, as the authors' does.
        per_action = config.target_entropy_per_action * spec.action.size / len(others)
        self.config = replace(config, target_entropy_per_action=per_action)
        self.arm = RLPD(_without_gripper(spec, others), self.config, seed)
        self.index, self.others, self.penalty = index, others, config.grasp_penalty
        self._low, self._range = spec.action.low[index], spec.action.high[index] - spec.action.low[index]
        self.parts = parts = self.arm.parts
        gripper = GripperCritic(parts.networks, parts.encoder.size)
        self.gripper = parts.add("gripper", gripper, config.lr, trains_encoder=True)
        self.target_gripper = parts.add_target("target_gripper", self.gripper)
        parts.spec = spec
        parts.act_with(ArmAndGripper(self.arm.actor, self.gripper, index))

    def update(self, batch: Batch) -> Metrics:
        """Take RLPD's steps for the arm, and one step of the gripper's critic for each step of the arm's critics.

        Returns the metrics for the log, empty if none are due.
        """
        data = self.parts.batch(batch)
        commands = data.actions[:, self.index]
        penalties = self.grasp_penalty(self._opening(batch), commands)
        scalars = self.arm.learn(replace(data, actions=data.actions[:, self.others]))
        count = self.config.updates_per_step
        for part, part_penalties in zip(slices(data, count), penalties.chunk(count), strict=True):
            loss = self.gripper_loss(part, part_penalties)
            self.gripper.descend(loss)
            self.parts.track(self.target_gripper, self.gripper, self.config.tau)
        return self.parts.finish_update(scalars | {"gripper_loss": loss, "grasp_penalty": -penalties.mean()})

    def grasp_penalty(self, opening: Tensor, commands: Tensor) -> Tensor:
        """Return c_g (B,): minus the penalty if a command closes an open gripper or opens a closed one, else 0.

        opening: measured opening (B,) as a share of its range, 0 to 1. commands: the gripper's element of the actions (B,).
        """
        moves = ((commands < -COMMANDED) & (opening > OPEN)) | ((commands > COMMANDED) & (opening < OPEN))
        return -self.penalty * moves.float()

    def gripper_loss(self, data: TensorBatch, penalties: Tensor) -> Tensor:
        """Return the loss of the gripper's critic, a scalar: the mean over the batch of (Q_g(s, c) - y_g)^2.

        c is the choice nearest to the recorded command. penalties: c_g (B,), as `grasp_penalty` returns it.
        """
        choices = (data.actions[:, self.index] >= 0).long()
        values = self.gripper(self.parts.encoder(data.observations)).gather(1, choices[:, None]).squeeze(1)
        return (data.weights * (values - self.gripper_target(data, penalties)).square()).mean()

    @torch.no_grad()
    def gripper_target(self, data: TensorBatch, penalties: Tensor) -> Tensor:
        """Return the targets y_g (B,) of the gripper's critic, by double Q-learning (van Hasselt et al. 2016).

        y_g = r + c_g + gamma m Q'_g(s', argmax_c Q_g(s', c)), with m 0 after a terminal step. penalties: c_g (B,).
        """
        following = data.next_observations
        best = self.gripper(self.parts.encoder(following)).argmax(1, keepdim=True)
        next_q = self.target_gripper(self.parts.target_encoder(following)).gather(1, best).squeeze(1)
        return data.rewards + penalties + data.discounts * data.masks * next_q

    def _opening(self, batch: Batch) -> Tensor:
        """Return the gripper's opening (B,) before each action, as a share of its range."""
        reading = torch.from_numpy(batch.observations[self.config.gripper]).reshape(len(batch)).float()
        return to_device((reading - self._low) / self._range, self.parts.device)


class GripperCritic(Trainable):
    """Critic of the gripper: values Q_g(s, c) of closing (c = 0) and opening (c = 1).

    The gripper acts by it, so it reads no entries that only the simulator knows (privileged ones).
    """

    __call__: Callable[..., Tensor]

    def __init__(self, factory: NetworkFactory, inputs: int) -> None:
        super().__init__()
        self.layers, self._inputs = factory.critic(inputs, 1, outputs=len(COMMANDS)), inputs

    def forward(self, observations: Tensor) -> Tensor:
        """Return the values (B, 2) for features (B, F), or (B, F + P) of which the first F are read."""
        values: Tensor = self.layers(observations[:, : self._inputs]).squeeze(0)
        return values


class ArmAndGripper(nn.Module):
    """Actor of arm and gripper; the gripper always takes the choice with the larger value, so it does not explore by itself.

    People explore for it, by their corrections.
    """

    def __init__(self, arm: TanhGaussianActor, gripper: GripperCritic, index: int) -> None:
        super().__init__()
        self.arm, self.gripper, self._index = arm, gripper, index

    def mode(self, observations: Tensor) -> Tensor:
        """Return actions (B, A): the most likely ones of the arm, and the gripper's commands."""
        return self._joined(self.arm.mode(observations), observations)

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return actions (B, A): random ones of the arm, and the gripper's commands."""
        return self._joined(self.arm.draw(observations, generator), observations)

    def _joined(self, arm: Tensor, observations: Tensor) -> Tensor:
        choices = self.gripper(observations).argmax(1, keepdim=True)
        commands = COMMANDS[0] + (COMMANDS[1] - COMMANDS[0]) * choices
        return torch.cat((arm[:, : self._index], commands, arm[:, self._index :]), 1)


def _index_of(spec: EnvironmentSpec, gripper: str) -> int:
    observed = [array.name for array in spec.observation.arrays if array.size == 1]
    known = [name for name in spec.action.names if name in observed]
    if gripper not in known or len(spec.action.names) == 1:
        raise InvalidSetting(
            f"No gripper of {spec.name!r} can be given its own critic.",
            got=f"gripper {gripper!r}",
            allowed=", ".join(known) or "an action element that an observation of the same name reads; there is none",
            fix="set learner.gripper to one of these, or to nothing",
        )
    return spec.action.names.index(gripper)


def _without_gripper(spec: EnvironmentSpec, others: list[int]) -> EnvironmentSpec:
    action = spec.action
    names, units = (tuple(words[i] for i in others) for words in (action.names, action.units))
    low, high = (tuple(limits[i] for i in others) for limits in (action.low, action.high))
    return replace(spec, action=replace(action, names=names, low=low, high=high, units=units))
