"""HIL-SERL: Luo et al. 2024, "Precise and Dexterous Robotic Manipulation via Human-in-the-Loop Reinforcement Learning".

arXiv:2410.21845. RLPD with the demonstrations' half of each batch growing by what a person corrects, and, where a gripper opens
and closes, a critic of its own for it: a choice is learnt as one, instead of as a number that has to be driven to its limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from robo_policies.learners.learning import ActorPolicy, CheckedAdam, EncodedBatch, track
from robo_policies.learners.rlpd import RLPD, RLPDConfig
from robo_policies.networks.eyes import Eyes
from robo_policies.networks.perceptrons import DTYPES, Floats, Perceptrons
from robo_policies.networks.settings import require_continuous
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.sampling import Sampling
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict

COMMANDS = np.array([-1.0, 1.0], np.float32)  # close, open: what the choices 0 and 1 command
OPEN = 0.9  # share of its range from which a gripper reads as open; as in the authors' code
COMMANDED = 0.5  # size of a command from which the authors' gripper obeys


@dataclass(frozen=True)
class HILSERLConfig(RLPDConfig):
    """Settings of HIL-SERL: those of RLPD, with the authors' values for an arm, and those of the gripper's critic."""

    updates_per_step: int = 2
    """Critic updates per environment step; the actor and the temperature are updated once. The authors' cta_ratio."""
    discount: float = 0.97
    """Weight of a reward one step later."""
    critics: int = 2
    """Critics in the ensemble; the target takes the minimum of all."""
    initial_temperature: float = 0.01
    """[1] weight of the entropy at the start."""
    learning_starts: int = 100
    """Environment steps with random actions before the first update."""
    replay_capacity: int = 200_000
    """Rows of the online replay memory, and of that of the corrections."""
    gripper: str = ""
    """Action element that opens and closes a gripper, such as gripper_opening, and the observation that reads it; a critic of
    its own then chooses between its ends. Empty for a gripper that is commanded as the rest is."""
    grasp_penalty: float = 0.02
    """Taken from the gripper's reward, and from no other, where a command moves the gripper to its other state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"grasp_penalty": (self.grasp_penalty >= 0, "0 or more")})

    @property
    def sampling(self) -> Sampling:
        """What the training loop must provide."""
        return replace(super().sampling, keeps_corrections=True)

    def build(self, spec: EnvironmentSpec, seed: int) -> RLPD | HILSERL:
        """Returns a fresh learner: RLPD where no gripper has a critic of its own."""
        return HILSERL(spec, self, seed) if self.gripper else RLPD(spec, self, seed)


class HILSERL:
    """RLPD for the arm and a critic for its gripper, from the same batches."""

    def __init__(self, spec: EnvironmentSpec, config: HILSERLConfig, seed: int) -> None:
        require_continuous(spec, "HIL-SERL")
        self.config = config
        self.index = _index_of(spec, config.gripper)
        self.others = [i for i in range(spec.action.size) if i != self.index]
        self._reading = _Reading.of(spec, config.gripper, self.index)
        # The target entropy counts the gripper's element, as the authors' does.
        per_action = config.target_entropy_per_action * spec.action.size / len(self.others)
        arm = _without_gripper(spec, self.others)
        self.arm = RLPD(arm, replace(config, target_entropy_per_action=per_action), seed)
        self.critic = GripperCritic(self.arm.parts.seen, config, seed, self.arm.eyes)
        self.policy = GripperPolicy(spec, self.arm.policy, self.critic, self.index)

    def update(self, batch: Batch) -> Metrics:
        """Takes the critics' steps on each slice of the batch, then actor and temperature on the last."""
        parts = self.arm.parts
        data = parts.encoded(batch)
        penalties = self.grasp_penalty(self._reading(batch), data.actions[:, self.index])
        arm = self.arm.learn(replace(data, actions=np.ascontiguousarray(data.actions[:, self.others])))
        for part, penalty in self._slices(data, penalties):
            loss = self.critic.update(part, choices_of(part.actions[:, self.index]), penalty, parts.updates)
        return parts.finish_update(arm | {"gripper_loss": loss, "grasp_penalty": -float(penalties.mean())})

    def grasp_penalty(self, reading: Floats, commands: Floats) -> Floats:
        """Returns c_g (B,), negative where a command moves the gripper to its other state.

        reading: share of its range that the gripper is open, 0 to 1. commands: its element of the action.
        """
        moves = ((commands < -COMMANDED) & (reading > OPEN)) | ((commands > COMMANDED) & (reading < OPEN))
        return np.where(moves, np.float32(-self.config.grasp_penalty), np.float32(0.0))

    def _slices(self, data: EncodedBatch, penalties: Floats) -> Iterator[tuple[EncodedBatch, Floats]]:
        count = self.config.updates_per_step
        return zip(data.slices(count), penalties.reshape(count, -1), strict=True)

    def state_dict(self) -> StateDict:
        """Returns networks, optimisers, generators and counters."""
        return {"arm": self.arm.state_dict(), "gripper": self.critic.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next update is the one that would have come."""
        self.arm.load_state_dict(state["arm"])
        self.critic.load_state_dict(state["gripper"])


class GripperCritic:
    """Q_g(s, c) of closing and of opening, learnt by double Q-learning (van Hasselt et al. 2016).

    Where pictures are seen its loss trains the arm's eyes, too, with moments of its own, as in the authors' code.
    """

    def __init__(self, inputs: int, config: HILSERLConfig, seed: int, eyes: Eyes) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (1, (inputs, *config.hidden, len(COMMANDS)), config.layer_norm, generator, DTYPES[config.precision])
        self.network, self.target = Perceptrons(*shape), Perceptrons(*shape)
        self.target.load_state_dict(self.network.state_dict())
        self._optimizer = CheckedAdam("gripper loss", [self.network.vector, *eyes.learnt], config.lr)
        self._eyes, self._tau = eyes, config.tau

    def values(self, observations: Floats, *, keep: bool = False) -> Floats:
        """Returns Q_g (B, 2)."""
        values: Floats = self.network.forward(observations, keep=keep)[0]
        return values

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused with a better message
    def update(self, data: EncodedBatch, choices: npt.NDArray[np.int64], penalties: Floats, update: int) -> float:
        """Takes one step on the loss, then moves the target; returns the loss. Raises NonFiniteUpdate."""
        targets = self.targets(data, penalties)
        values = self.values(self._eyes.forward(data.observations), keep=True)
        loss, by_values = self.loss(values, choices, targets, data.weights)
        self.network.backward(by_values[None])
        if self._eyes.features:
            self._eyes.backward(self.network.input_gradient(by_values[None], slice(0, self._eyes.features)))
        self._optimizer.step(loss, [self.network.gradient, *self._eyes.gradients], update)
        self.network.refresh()
        track(self.target, self.network, self._tau)
        return loss

    def targets(self, data: EncodedBatch, penalties: Floats) -> Floats:
        """y_g (B,) = r + c_g + gamma m Q'_g(s', argmax_c Q_g(s', c))."""
        best = self.values(self._eyes.look(data.next_observations)).argmax(1)
        following = self.target.forward(self._eyes.look_as_target(data.next_observations))[0][np.arange(len(best)), best]
        targets: Floats = data.rewards + penalties + data.discounts * data.masks * following
        return targets

    def loss(self, values: Floats, choices: npt.NDArray[np.int64], targets: Floats, weights: Floats) -> tuple[float, Floats]:
        """Mean of (Q_g(s, c) - y_g)^2 over the batch, and its derivative by all values (B, 2)."""
        rows = np.arange(len(choices))
        residuals = values[rows, choices] - targets
        by_values = np.zeros_like(values)
        by_values[rows, choices] = weights * residuals * np.float32(2 / len(choices))
        return float((weights * residuals**2).mean()), by_values

    def state_dict(self) -> StateDict:
        """Returns networks and optimiser."""
        networks = {"network": self.network.state_dict(), "target": self.target.state_dict()}
        return networks | {"optimizer": self._optimizer.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self._optimizer.load_state_dict(state["optimizer"])


class GripperPolicy:
    """The arm moves as its actor says; the gripper always takes the better choice: people show it where to explore."""

    def __init__(self, spec: EnvironmentSpec, arm: ActorPolicy, critic: GripperCritic, index: int) -> None:
        self.environment_spec = replace(arm.environment_spec, action=spec.action)
        self._arm, self._critic, self._index = arm, critic, index

    def reset(self) -> None:
        """Does nothing: the policy remembers no earlier step."""

    def seed(self, seed: int) -> None:
        """Begins the random numbers of sampled actions anew."""
        self._arm.seed(seed)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action (A,) float32 in [-1, 1]."""
        encoded = self._arm.encoded(observation)
        arm = self._arm.act_on(encoded, deterministic=deterministic)
        choice = self._critic.values(encoded.numpy()).argmax()
        action: Array = np.insert(arm, self._index, COMMANDS[choice])
        return action

    def parameters(self) -> StateDict:
        """Returns copies of what the arm's policy and the gripper's critic have learnt."""
        return {"arm": self._arm.parameters(), "gripper": self._critic.network.state_dict()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts with those from now on."""
        self._arm.load_parameters(parameters["arm"])
        self._critic.network.load_state_dict(parameters["gripper"])

    def state_dict(self) -> StateDict:
        """Returns the state of the generator; the networks belong to the learner."""
        return self._arm.state_dict()

    def load_state_dict(self, state: StateDict) -> None:
        """Restores the generator."""
        self._arm.load_state_dict(state)


def choices_of(commands: Floats) -> npt.NDArray[np.int64]:
    """Returns the choice (B,) that is nearest to each command: 0 closes, 1 opens."""
    return (commands >= 0).astype(np.int64)


@dataclass(frozen=True)
class _Reading:
    """Reads from a batch how far the gripper is open, as a share of what it can be commanded to."""

    name: str
    low: float
    high: float

    @classmethod
    def of(cls, spec: EnvironmentSpec, name: str, index: int) -> _Reading:
        return cls(name, spec.action.low[index], spec.action.high[index])

    def __call__(self, batch: Batch) -> Floats:
        opening = np.asarray(batch.observations[self.name], np.float32).reshape(len(batch))
        share: Floats = (opening - np.float32(self.low)) / np.float32(self.high - self.low)
        return share


def _index_of(spec: EnvironmentSpec, gripper: str) -> int:
    observed = [array.name for array in spec.observation.arrays if array.size == 1]
    known = [name for name in spec.action.names if name in observed]
    if gripper not in known or len(spec.action.names) == 1:
        raise InvalidSetting(
            f"No gripper of {spec.name!r} can be given a critic of its own.",
            got=f"gripper {gripper!r}",
            allowed=", ".join(known) or "an action element that an observation of the same name reads; there is none",
            fix="set learner.gripper to one of these, or to nothing",
        )
    return spec.action.names.index(gripper)


def _without_gripper(spec: EnvironmentSpec, others: list[int]) -> EnvironmentSpec:
    action = spec.action
    picked = {name: tuple(getattr(action, name)[i] for i in others) for name in ("names", "low", "high", "units")}
    return replace(spec, action=replace(action, **picked))
