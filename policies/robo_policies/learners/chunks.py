"""Parts of learners that clone chunks of several actions (diffusion, flow, ACT): settings, policy, residual network.

B batch, H actions of a chunk, A action elements, F features of an observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from robo_policies.learners.offline import OfflineNetwork, OfflineSettings
from robo_policies.learners.parts import ActorPolicy, LearnerParts, load_generator
from robo_policies.networks.actor_critic import Trainable
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.extras import Chunks
from robo_rl.protocols.sampling import Sampling
from robo_rl.spec.environment import Observation
from robo_rl.types import Array, StateDict

TIME_FEATURES = 32
FIXED_SEED = 0
"""Seed of the noise from which deterministic actions are made; it is the same in every episode."""

MLP_SETTINGS = ("actor", "critic", "layer_norm", "precision")
"""Fields of the settings group `network` that only MLPs read; learners with other networks raise an error if one is set."""


@dataclass(frozen=True)
class ResidualNetwork(OfflineNetwork):
    """Settings group `network` of learners whose network is a `ChunkMLP` (diffusion and flow policies): size of its blocks."""

    hidden: tuple[int, ...] = (256, 256, 256)
    """Units of each residual block; all equal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require({"hidden": (len(set(self.hidden)) == 1, "one or more layers, all of one size")})
        self.require_unused("it has a residual network", *MLP_SETTINGS)


@dataclass(frozen=True)
class ChunkSettings(OfflineSettings):
    """Settings common to learners that clone chunks of several actions (ACT, diffusion, flow).

    They steer how many actions are predicted at once and how many of them are executed.
    """

    chunk: int = 8
    """H, number of actions predicted at once."""
    executed: int = 4
    """Number of actions executed before the next prediction; 1 to `chunk`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"executed": (1 <= self.executed <= self.chunk, "1 to chunk")})

    @property
    def sampling(self) -> Sampling:
        """Settings for the training loop: recorded episodes alone, with the next `chunk` actions of each sampled step."""
        return replace(super().sampling, extras=(Chunks(self.chunk),))


class ChunkActor(Protocol):
    """Interface of networks that act by turning random noise into chunks of H actions."""

    @property
    def draws(self) -> int:
        """R, number of noise arrays (H, A) from which a chunk is made."""

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return random chunks (B, H, A) in [-1, 1] for features (B, F)."""

    def from_draws(self, observations: Tensor, draws: Tensor) -> Tensor:
        """Return the chunks (B, H, A) made of given noise, so that random actions can be repeated.

        Args:
            observations: Features (B, F).
            draws: Standard normal noise (B, R, H, A), in the order in which `draw` takes it.
        """


class ChunkPolicy(ActorPolicy):
    """Policy of diffusion and flow: draws a chunk, executes its first `executed` actions, and draws the next chunk.

    Deterministic actions are made from noise with a fixed seed that begins again in every episode, because the actor has no
    most likely chunk.
    """

    def __init__(self, parts: LearnerParts, actor: ChunkActor, executed: int) -> None:
        super().__init__(parts, actor)
        self.executed, self._same = executed, torch.Generator()
        self.reset()

    @override
    def reset(self) -> None:
        self._same.manual_seed(FIXED_SEED)
        self.replan()

    def replan(self) -> None:
        """Drop the remaining actions of the current chunk, so that the next call of `act` predicts a new chunk."""
        self._chunk: Array = np.zeros((0, self.environment_spec.action.size), np.float32)

    @override
    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        if not len(self._chunk):
            self._chunk = self.proposed(observation, self._same if deterministic else self._generator)[: self.executed]
        action: Array = self._chunk[0].copy()
        self._chunk = self._chunk[1:]
        return action

    @property
    def chunk(self) -> int:
        """H, number of actions of a chunk."""
        length: int = self._parts.settings.chunk
        return length

    @torch.no_grad()
    def steered(self, observation: Observation, noise: Array) -> Array:
        """Return the chunk (H, A) that a flow policy makes of given noise (H, A), with which another policy can steer it.

        Raises:
            InvalidSetting: The actor is no flow policy. Its chunks then need more than one draw of noise.
        """
        encoder, actor = self._followed()
        if not hasattr(actor, "from_noise"):
            raise InvalidSetting(
                "The policy cannot be steered: its chunks do not follow from one draw of noise.",
                got=type(actor).__name__,
                allowed="a flow policy, as flow-bc makes",
            )
        rows = {name: np.array(observation[name])[None] for name in encoder.reads}
        features = encoder(encoder.tensors(encoder.stack(rows, is_acting=True), rows, self._device))
        start = torch.from_numpy(np.asarray(noise, np.float32))[None].to(self._device)
        chunk: Array = actor.from_noise(features, start).cpu().numpy()[0]
        return chunk

    @override
    def state_dict(self) -> StateDict:
        """Return the states of the random generators and the remaining actions of the chunk; the learner saves the networks."""
        return super().state_dict() | {"same": self._same.get_state().clone(), "chunk": self._chunk.copy()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        load_generator(self._same, state["same"])
        self._chunk = np.array(state["chunk"], np.float32).reshape(-1, self.environment_spec.action.size)


class ChunkMLP(Trainable):
    """Residual MLP of diffusion and flow policies, which predicts the noise in a noisy chunk, or its velocity.

    Inputs are the noisy chunk, its noise level or time, and the features of the observation.
    """

    __call__: Callable[..., Tensor]

    def __init__(self, features: int, chunk: int, hidden: tuple[int, ...], generator: torch.Generator) -> None:
        super().__init__()
        self.entry = linear(features + chunk + TIME_FEATURES, hidden[0], generator)
        self.blocks = nn.ModuleList(linear(hidden[0], hidden[0], generator) for _ in hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden[0]) for _ in hidden)
        self.exit = linear(hidden[0], chunk, generator)

    def forward(self, noisy: Tensor, time: Tensor, observations: Tensor) -> Tensor:
        """Return predictions (B, H A) for noisy chunks (B, H A), times (B,) from 0 to about 1,000 and features (B, F)."""
        values = self.entry(torch.cat((noisy, time_features(time), observations), -1))
        for norm, block in zip(self.norms, self.blocks, strict=True):
            values = values + block(functional.mish(norm(values)))
        predicted: Tensor = self.exit(functional.mish(values))
        return predicted


def linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialisation, drawn from `generator`."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    for array in (layer.weight, layer.bias):
        nn.init.uniform_(array, -1.0 / math.sqrt(inputs), 1.0 / math.sqrt(inputs), generator=generator)
    return layer


def time_features(time: Tensor) -> Tensor:
    """Return sines and cosines (B, TIME_FEATURES) of times (B,) at several frequencies (Vaswani et al. 2017)."""
    frequencies = torch.exp(
        torch.arange(TIME_FEATURES // 2, device=time.device) * (-math.log(1_000.0) / (TIME_FEATURES // 2 - 1))
    )
    angles = time[:, None].float() * frequencies
    return torch.cat((torch.sin(angles), torch.cos(angles)), -1)


def chunk_mean(errors: Tensor, valid: Tensor) -> Tensor:
    """Return the mean error (B,) of each chunk, over its valid actions and their elements.

    errors: (B, H, A). valid: (B, H), False for actions after the end of the episode.
    """
    return (errors.mean(-1) * valid).sum(1) / valid.sum(1)
