"""Step rewards that are learned from returns while a policy learns from them.

An episode that has ended is stored with its return in a memory of steps, in which each step keeps its place until it is
overwritten. Its steps enter the learner's replay memory with their places in this memory instead of rewards, and every sampled
batch gets the rewards of the present decoder: none is ever stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robo_papers.lare.decoder import Decoder, DecoderConfig
from robo_papers.lare.draws import Drawing, decomposition_loss
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.step_rewards.online_scoring import RECENT
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Metrics, StateDict

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]
MOST_ROWS = 2**24
"""Largest number of places, which are stored as float32, the type of a reward: exact up to this integer."""


class KeptEpisode(NamedTuple):
    """Where the steps of an episode are stored, how many they are, and its return."""

    start: int
    """Place of the episode's first step in the memory."""
    length: int
    """T, number of steps"""
    total: float
    """R, return of the episode"""


class EpisodeMemory:
    """Memory of the decoder's inputs (T, D) and the returns of the newest episodes."""

    def __init__(self, size: int, capacity: int) -> None:
        if not 1 <= capacity <= MOST_ROWS:
            raise InvalidSetting(
                "The memory of a decomposition cannot have that many steps.",
                got=capacity,
                allowed=f"1 to {MOST_ROWS}",
                fix="set learner.replay.capacity accordingly",
            )
        self._inputs = np.zeros((capacity, size), np.float32)  # handed out by the system as it is written
        self._cursor = self._used = self._steps = 0
        self._episodes: list[KeptEpisode] = []
        self._oldest = 0  # of `_episodes`: those before it are overwritten

    def __len__(self) -> int:
        """Number of episodes."""
        return len(self._episodes) - self._oldest

    @property
    def mean_length(self) -> float:
        """Mean number of steps of an episode."""
        return self._steps / max(len(self), 1)

    def add(self, inputs: Floats, total: float) -> Places:
        """Store the inputs (T, D) and the return of an episode, and return the places (T,) of its steps in the memory.

        The oldest episodes, which it overwrites, are forgotten.
        """
        capacity, length = len(self._inputs), len(inputs)
        if length > capacity:
            raise InvalidSetting(
                "An episode is longer than the replay memory.",
                got=f"{length} steps",
                allowed=f"{capacity}",
                fix="raise learner.replay.capacity",
            )
        kept = KeptEpisode(self._cursor, length, total)
        self._steps += length
        self._episodes.append(kept)
        while self._steps > capacity:
            self._steps -= self._episodes[self._oldest].length
            self._oldest += 1
        if self._oldest > 1000 and 2 * self._oldest > len(self._episodes):
            self._episodes, self._oldest = self._episodes[self._oldest :], 0
        places = (kept.start + np.arange(length)) % capacity
        self._inputs[places] = inputs
        self._cursor = (kept.start + length) % capacity
        self._used = max(self._used, int(places.max(initial=0)) + 1)
        return places

    def draw(self, count: int, generator: np.random.Generator) -> list[KeptEpisode]:
        """Draw `count` episodes uniformly, with replacement."""
        return [self._episodes[at] for at in generator.integers(self._oldest, len(self._episodes), count)]

    def inputs(self, places: Places) -> Floats:
        """Return the inputs (..., D) of the steps at these places; places beyond the end wrap around."""
        return self._inputs.take(places, 0, mode="wrap")

    def state_dict(self) -> StateDict:
        """Return the rows in use, as a view, and the places of the episodes."""
        kept = self._episodes[self._oldest :]
        return {
            "inputs": self._inputs[: self._used],
            "cursor": self._cursor,
            "places": np.array([[each.start, each.length] for each in kept], np.int64).reshape(-1, 2),
            "totals": np.array([each.total for each in kept], np.float64),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict` into a memory of the same capacity."""
        self._used, self._cursor = len(state["inputs"]), int(state["cursor"])
        self._inputs[: self._used] = state["inputs"]
        kept = zip(state["places"].tolist(), state["totals"].tolist(), strict=True)
        self._episodes = [KeptEpisode(start, length, total) for (start, length), total in kept]
        self._oldest, self._steps = 0, sum(each.length for each in self._episodes)


class StepInputs(Protocol):
    """Interface of functions that map the steps of an episode to the decoder's inputs."""

    @property
    def size(self) -> int:
        """Number D of inputs of a step."""

    @property
    def entries(self) -> Sequence[str]:
        """Names of the observation entries that are read."""

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the inputs depend on, by name, such as the hash of a program."""

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Return the inputs (T, D) of the steps of an episode; unknown numbers are NaN.

        observations: name -> (T + 1, ...). actions: (T, ...).
        """


class StatesAndActions:
    """Inputs of the decoder [s, a, s - s'] from the float observations of a policy, as in the code of Ren et al. 2022."""

    identity: Mapping[str, str | float] = {"inputs": "states and actions"}

    def __init__(self, spec: EnvironmentSpec) -> None:
        arrays = spec.observation.items()
        self.entries = [name for name, array in arrays if np.dtype(array.dtype).kind == "f" and array.role != "privileged"]
        if not self.entries:
            raise InvalidSetting(
                f"Nothing that {spec.name} observes is a vector of floats.",
                got=sorted(spec.observation),
                fix="decompose returns by factors of a program (reward.name: lare), or choose an environment with such states",
            )
        self._choices = spec.action.size if spec.action.is_discrete else 0
        states = sum(spec.observation[name].size for name in self.entries)
        self.size = 2 * states + spec.action.size

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Return the inputs (T, D) of the steps of an episode; a discrete action becomes one-hot."""
        states = np.concatenate([_flat(observations[name]) for name in self.entries], axis=1)
        acted = np.eye(self._choices, dtype=np.float32)[actions] if self._choices else _flat(actions)
        return np.concatenate((states[:-1], acted, states[:-1] - states[1:]), axis=1, dtype=np.float32)


def _flat(values: Array) -> Floats:
    return np.asarray(values, np.float32).reshape(len(values), -1)


METRICS_EVERY = 100  # updates between two reports, as of learners


class Decomposition:
    """Decoder of step rewards together with the episodes that it learns from.

    Implements `robo_rl.protocols.rewards.Relabelling`.
    """

    def __init__(
        self,
        inputs: StepInputs,
        drawing: Drawing,
        config: DecoderConfig,
        *,
        seed: int,
        weight: float,
        permuted: bool = False,
    ) -> None:
        self._totals: deque[float] | None = deque(maxlen=RECENT) if permuted else None
        self._inputs, self._drawing, self._config, self._weight = inputs, drawing, config, weight
        self._generator = np.random.default_rng(seed)
        self.decoder = Decoder(inputs.size, config, seed)
        self._memory: EpisodeMemory | None = None
        self._returns: deque[float] = deque(maxlen=RECENT)
        self._losses: list[float] = []

    def reserve(self, steps: int) -> None:
        """Allocate memory for the newest `steps` steps, as many as the replay memory has rows."""
        self._memory = EpisodeMemory(self._inputs.size, steps)

    @property
    def memory(self) -> EpisodeMemory:
        """Memory of the episodes with their returns; raises InvalidSetting before `reserve`."""
        if self._memory is None:
            raise InvalidSetting("No memory was reserved for the episodes of a decomposition.", fix="call reserve(steps) first")
        return self._memory

    @property
    def metrics(self) -> Metrics:
        """Mean return of recent episodes by the rewards of the decoder, as it was at their end."""
        return {"reward/model_return": float(np.mean(self._returns))} if self._returns else {}

    def places(self, steps: Steps) -> Array:
        """Store the episodes that are complete in these steps; return the places of their steps (K,), NaN for the others."""
        places, begins = np.full(len(steps), np.nan, np.float32), np.flatnonzero(steps.begins)
        for start in begins.tolist():
            stop = start + 1 + int(np.argmax(steps.ended[start:] | np.append(steps.begins[start + 1 :], True)))
            if steps.ended[stop - 1]:
                places[start:stop] = self._stored(steps, slice(start, stop))
        return places

    def _stored(self, steps: Steps, episode: slice) -> Array | float:
        """Store an episode; NaN if a step or the return is not finite."""
        total = sum(steps.rewards[episode].tolist())
        following = {name: values[episode] for name, values in steps.after.items()}
        observations = {name: np.concatenate((steps.before[name][episode][:1], each)) for name, each in following.items()}
        inputs = self._inputs.of(observations, steps.actions[episode])
        if not (np.isfinite(total) and np.isfinite(inputs).all()):
            return np.nan
        if self._totals is not None:
            self._totals.append(total)
            total = self._totals[int(self._generator.integers(len(self._totals)))]
        self.decoder.observe(inputs, total / len(inputs))
        places = self.memory.add(inputs, total).astype(np.float32)
        self._returns.append(self._weight * float(self.decoder.rewards(inputs).sum()))
        return places

    def update(self) -> Metrics:
        """Take one gradient step of the decoder on the returns of some stored episodes (`draws.decomposition_loss`)."""
        memory = self.memory
        if not len(memory):
            return {}
        kept = memory.draw(self._drawing.episodes(self._config.rows, memory.mean_length), self._generator)
        lengths = np.array([each.length for each in kept], np.int64)
        draw = self._drawing.draw(lengths, self._generator)
        inputs = memory.inputs(np.array([[each.start] for each in kept]) + draw.steps)
        mean_rewards = np.array([each.total / each.length for each in kept], np.float32)

        def gradient(rewards: Floats) -> tuple[float, Floats]:
            loss, by_rewards = decomposition_loss(rewards.reshape(draw.steps.shape), mean_rewards, draw)
            return loss, by_rewards.ravel()

        self._losses.append(self.decoder.descend(inputs.reshape(-1, inputs.shape[-1]), gradient))
        return self._report() if len(self._losses) == METRICS_EVERY else {}

    def relabel(self, batch: Batch) -> Batch:
        """Replace the places in a batch by the rewards of the present decoder."""
        inputs = self.memory.inputs(batch.rewards.astype(np.int64))
        return replace(batch, rewards=np.float32(self._weight) * self.decoder.rewards(inputs))

    def _report(self) -> Metrics:
        mean, self._losses = float(np.mean(self._losses)), []
        return {"reward/decomposition_loss": mean}

    def state_dict(self) -> StateDict:
        """Return the episodes, the decoder, and the generator."""
        return {
            "memory": self.memory.state_dict(),
            "decoder": self.decoder.state_dict(),
            "generator": self._generator.bit_generator.state,
            "returns": list(self._returns),
            "losses": list(self._losses),
            "totals": list(self._totals or ()),
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore what `state_dict` returned, for a replay memory of the same capacity."""
        self.memory.load_state_dict(state["memory"])
        self.decoder.load_state_dict(state["decoder"])
        self._generator.bit_generator.state = state["generator"]
        self._returns.extend(state["returns"])
        if self._totals is not None:
            self._totals.extend(state["totals"])
        self._losses = list(state["losses"])
