"""ACT: Zhao et al. 2023, "Learning Fine-Grained Bimanual Manipulation with Low-Cost Hardware" (arXiv 2304.13705).

A conditional variational autoencoder over chunks of actions: an encoder reads a demonstrated chunk into a latent z, its style,
and a transformer decodes z and the tokens of an observation into a chunk. Overlapping chunks are averaged while acting.
B batch, H actions of a chunk, A action elements, F features of an observation, N tokens of E elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from robo_policies.learners.chunks import MLP_SETTINGS, ChunkSettings, chunk_mean
from robo_policies.learners.offline import OfflineNetwork
from robo_policies.learners.parts import ActorPolicy, Learned, LearnerParts
from robo_policies.networks.actor_critic import Trainable, make_seeded, normal
from robo_policies.networks.convolutions import convolution_layers, require_pictures
from robo_policies.networks.encoders import TensorBatch
from robo_rl.errors import require_allowed
from robo_rl.requirements import require_continuous
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.types import Array, Batch, Metrics, StateDict


@dataclass(frozen=True)
class ACTNetwork(OfflineNetwork):
    """Sizes of the two transformers of ACT (Zhao et al. 2023): tokens, attention heads, layers and the latent."""

    hidden: tuple[int, ...] = (512,)
    """Units of the feed-forward part of each layer."""
    latent: int = 32
    """Number of elements of the latent z."""
    token_size: int = 128
    """E, number of elements of a token (a vector that the transformer processes); a multiple of 4 and of `heads`."""
    heads: int = 4
    """Number of attention heads."""
    encoder_layers: int = 2
    """Transformer layers of the posterior q(z | chunk), and also of the encoder of observations; the authors have four."""
    decoder_layers: int = 1
    """Transformer layers of the decoder. The authors set seven, but their released code uses only the output of the first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("latent", "encoder_layers", "decoder_layers")}
        heads = self.heads >= 1 and self.token_size % self.heads == 0
        allowed = {
            "hidden": (len(self.hidden) == 1, "one number"),
            "heads": (heads, "a divisor of token_size"),
            "token_size": (self.token_size >= 4 and self.token_size % 4 == 0, "a multiple of 4, 4 or more"),
        }
        self.require(allowed | counts)
        self.require_unused("its convolutions are trained", "frozen_convolutions")
        self.require_unused("it has a transformer", *MLP_SETTINGS)

    @override
    def make_encoder(self, spec: EnvironmentSpec) -> Callable[[], nn.Module]:
        return partial(ObservationTokens, spec, self)


@dataclass(frozen=True)
class ACTConfig(ChunkSettings):
    """Settings of ACT (Zhao et al. 2023, arXiv 2304.13705), which clones chunks of actions with a variational transformer.

    Its own fields steer the length of a chunk, the averaging of overlapping chunks and the weight of the KL term. The authors'
    network has tokens of 512 elements, 8 heads, 3,200 units, four layers and a ResNet-18.
    """

    chunk: int = 20
    """H, number of actions predicted at once; 20 are one second at 20 Hz. The authors take 100 at 50 Hz."""
    executed: int = 1
    """Number of actions executed before the next prediction; 1 averages overlapping chunks (temporal ensembling)."""
    ensembling: float = 0.01
    """m of the weights exp(-m i) with which overlapping predictions are averaged, i = 0 for the oldest; the authors' value."""
    kl_weight: float = 10.0
    """Beta, weight of the KL divergence between posterior and prior of z; the authors' value."""
    lr: float = 1e-4
    """Learning rate of Adam; the authors take 1e-5 with larger networks and batches of 8."""
    batch_size: int = 64
    """Recorded steps of one update."""
    network: ACTNetwork = ACTNetwork()
    """Sizes of the networks, and how they are computed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = {
            "ensembling": (self.ensembling >= 0.0, "0 or more"),
            "kl_weight": (self.kl_weight >= 0.0, "0 or more"),
        }
        require_allowed(self, allowed)

    def build(self, spec: EnvironmentSpec, seed: int) -> ACT:
        """Build an untrained ACT learner for the spec of an environment; its networks are initialised from `seed`."""
        return ACT(spec, self, seed)


class ObservationTokens(nn.Module):
    """Encoder of ACT: turns an observation into N tokens of E elements.

    There is one token for each vector of the observation and one for each cell of a picture's feature map. The features (B, N
    E) that the encoder returns are these tokens, flattened.
    """

    def __init__(self, spec: EnvironmentSpec, config: ACTNetwork) -> None:
        """Raise InvalidSetting if there is a picture too small for the convolutions."""
        super().__init__()
        vectors, size = spec.observation.vectors, config.token_size
        pictures = require_pictures(spec, len(config.convolutions)) if config.convolutions else ()
        self.vectors = nn.ModuleDict({name: nn.Linear(array.size, size) for name, array in vectors.items()})
        self.towers, self.cells = nn.ModuleDict(), nn.ParameterDict()
        self.pictures = tuple(picture.name for picture in pictures)
        count = len(vectors)
        for picture in pictures:
            layers, (channels, height, width) = convolution_layers(picture.shape, config.convolutions)
            self.towers[picture.name] = nn.Sequential(*layers, nn.Conv2d(channels, size, 1), nn.Flatten(2))
            self.cells[picture.name] = nn.Parameter(torch.randn(height * width, size) / math.sqrt(size))
            count += height * width
        self.size = count * size

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        """Return the features (B, N E) of named observations: N flattened tokens, those of vectors first.

        Pictures are uint8 (B, height, width, channels).
        """
        tokens = [layer(observations[name].flatten(1))[:, None] for name, layer in self.vectors.items()]
        for name, tower in self.towers.items():
            pictures = observations[name].permute(0, 3, 1, 2).float().mul_(1 / 255)
            tokens.append(tower(pictures).transpose(1, 2) + self.cells[name])
        return torch.cat(tokens, 1).flatten(1)


class ChunkCVAE(Trainable):
    """Network of ACT: posterior q(z | chunk, vectors), used in training alone, and decoder p(chunk | z, observation)."""

    __call__: Callable[..., Any]

    def __init__(self, features: int, states: int | None, actions: int, chunk: int, config: ACTNetwork) -> None:
        """Make the networks.

        Args:
            features: Number F of the features.
            states: Number of tokens of vectors, which come first and which the posterior reads; None if features are no tokens.
            actions: Number A of elements of an action.
            chunk: Number H of actions of a chunk.
            config: Settings of the networks.
        """
        super().__init__()
        self._states, size = 1 if states is None else states, config.token_size
        # features of a user's encoder network have any size: they become one token, which the posterior reads
        self.entry = nn.Identity() if states is not None else nn.Linear(features, size)
        self.style = nn.Parameter(torch.randn(size) / math.sqrt(size))
        self.positions = nn.Parameter(torch.randn(chunk, size) / math.sqrt(size))
        self.queries = nn.Parameter(torch.randn(chunk, size) / math.sqrt(size))
        self.actions = nn.Linear(actions, size)
        self.posterior = transformer(config)
        self.moments = nn.Linear(size, 2 * config.latent)
        self.latent = nn.Linear(config.latent, size)
        self.observations = transformer(config)
        self.decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(size, config.heads, config.hidden[0], 0.0, batch_first=True),
            config.decoder_layers,
            norm=nn.LayerNorm(size),
        )
        self.exit = nn.Linear(size, actions)

    def tokens(self, features: Tensor) -> Tensor:
        """Return flattened features (B, F), F = N E, reshaped to N tokens (B, N, E)."""
        entered: Tensor = self.entry(features)
        return entered.view(len(features), -1, len(self.style))

    def encode(self, tokens: Tensor, chunks: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log variance of the posterior of z, each (B, latent).

        Args:
            tokens: (B, N, E) tokens of the observation; only those of vectors are read.
            chunks: (B, H, A) recorded actions in [-1, 1].
            valid: (B, H), False for actions after the end of the episode.
        """
        states = tokens[:, : self._states]
        style = self.style.expand(len(tokens), 1, -1)
        read = torch.cat((style, states, self.actions(chunks) + self.positions), 1)
        missing = torch.cat((valid.new_zeros(len(valid), 1 + states.shape[1]), ~valid), 1)
        mean, log_variance = self.moments(self.posterior(read, src_key_padding_mask=missing)[:, 0]).chunk(2, -1)
        return mean, log_variance

    def decode(self, tokens: Tensor, latent: Tensor) -> Tensor:
        """Return chunks of actions (B, H, A) in [-1, 1] for observation tokens (B, N, E) and latents (B, latent)."""
        memory = self.observations(torch.cat((self.latent(latent)[:, None], tokens), 1))
        decoded = self.decoder(self.queries.expand(len(tokens), -1, -1), memory)
        return torch.tanh(self.exit(decoded))


def transformer(config: ACTNetwork) -> nn.TransformerEncoder:
    """Build PyTorch's transformer encoder with the sizes of `config`, without dropout.

    It has none because learners act with networks in training mode.
    """
    layer = nn.TransformerEncoderLayer(config.token_size, config.heads, config.hidden[0], 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, config.encoder_layers, enable_nested_tensor=False)


class ACTActor(nn.Module):
    """Actor of ACT, which turns observations into chunks of actions; the latent z is 0, the mean of its prior."""

    def __init__(self, network: ChunkCVAE, latent: int) -> None:
        super().__init__()
        self.network, self._latent = network, latent

    def mode(self, observations: Tensor) -> Tensor:
        """Return chunks of actions (B, H, A) for features (B, F)."""
        return self.network.decode(self.network.tokens(observations), observations.new_zeros(len(observations), self._latent))

    def draw(self, observations: Tensor, generator: torch.Generator) -> Tensor:
        """Return the chunks (B, H, A) that `mode` returns: nothing is random, because z is 0 while acting, as in the paper."""
        del generator
        return self.mode(observations)


class ACT(Learned):
    """Learner of ACT: clones chunks of demonstrated actions with a conditional variational autoencoder."""

    def __init__(self, spec: EnvironmentSpec, config: ACTConfig, seed: int) -> None:
        require_continuous(spec, "ACT")
        self.config = config
        self.parts = parts = LearnerParts(spec, config, seed)
        states = len(spec.observation.vectors) if config.network.encoder is None else None
        make = partial(ChunkCVAE, parts.encoder.size, states, spec.action.size, config.chunk, config.network)
        self.network = parts.add("network", make_seeded(make, parts.initial), config.lr, trains_encoder=True)
        self.actor = ACTActor(self.network, config.network.latent).to(parts.device)
        parts.policy = EnsemblingPolicy(parts, self.actor)

    def update(self, batch: Batch) -> Metrics:
        """Take one gradient step of the loss on a batch.

        Returns the metrics for the log, or an empty dict at updates for which none are due.
        """
        data = self.parts.batch(batch)
        errors, divergences = self.losses(data)
        loss = (data.weights * (errors + self.config.kl_weight * divergences)).mean()
        self.network.descend(loss)
        return self.parts.finish_update({"act_loss": loss, "l1_loss": errors.mean(), "kl_loss": divergences.mean()})

    def losses(self, data: TensorBatch) -> tuple[Tensor, Tensor]:
        """Return the two parts of the loss for each chunk, each (B,) (algorithm 1).

        The first is the L1 error over valid actions, the second KL(q(z | chunk, s) || N(0, 1)).
        """
        chunks, valid = data.extras["action_chunks"], data.extras["chunk_valid"]
        tokens = self.network.tokens(self.parts.encoder(data.observations))
        mean, log_variance = self.network.encode(tokens, chunks, valid)
        latent = mean + (log_variance / 2).exp() * normal(mean, self.parts.generator)
        divergences = (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(-1) / 2
        errors = functional.l1_loss(self.network.decode(tokens, latent), chunks, reduction="none")
        return chunk_mean(errors, valid), divergences


class EnsemblingPolicy(ActorPolicy):
    """Policy of ACT: it predicts a chunk in every `executed`-th step and executes the chunk's actions.

    With `executed` 1 it predicts a chunk in every step, and the action is the weighted mean of all chunks for this step.
    """

    def __init__(self, parts: LearnerParts, actor: ACTActor) -> None:
        super().__init__(parts, actor)
        self.executed, self.rate = parts.settings.executed, parts.settings.ensembling
        self.chunk = parts.settings.chunk
        """H, number of actions of a chunk."""
        self._empty = np.zeros((0, self.chunk, parts.spec.action.size), np.float32)
        self.reset()

    @override
    def reset(self) -> None:
        self.replan()

    def replan(self) -> None:
        """Drop all predicted chunks, so that the next call of `act` predicts from its observation alone."""
        self._chunks: Array = self._empty  # newest last; the chunk before the last starts `executed` steps earlier
        self._age = 0

    @override
    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        if self._age % self.executed == 0:
            chunk = self.proposed(observation, None if deterministic else self._generator)
            kept = self._empty.shape[1] if self.executed == 1 else 1
            self._chunks, self._age = np.concatenate((self._chunks, chunk[None]))[-kept:], 0
        ages = np.arange(len(self._chunks))[::-1] + self._age
        proposals = self._chunks[np.arange(len(ages)), ages]
        weights = np.exp(-self.rate * np.arange(len(ages)), dtype=np.float32)
        self._age += 1 if self.executed > 1 else 0
        action: Array = (weights[:, None] * proposals).sum(0) / weights.sum()
        return action.astype(np.float32)

    @override
    def state_dict(self) -> StateDict:
        """Return the state of the random generator and the chunks in use, to save them; the learner saves the networks."""
        return super().state_dict() | {"chunks": self._chunks.copy(), "age": self._age}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self._chunks, self._age = np.array(state["chunks"], np.float32).reshape(-1, *self._empty.shape[1:]), int(state["age"])
