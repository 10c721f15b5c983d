"""Replay memory: a ring of rows (robo_rl.rows) that grows with every step, and the symmetric mix of online and offline data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.memory import GIGABYTE, InMemory, Storage, size_of
from robo_rl.protocols import Stateful
from robo_rl.rows import RETURNS, RowReader, columns_of, key_of, layout_of, return_beyond_cut, with_views
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.types import ActionSource, Array, Batch, Episode, StateDict, Transition


@dataclass(frozen=True)
class Sampling:
    """What a learner asks of the training loop that feeds it."""

    batch_size: int = 256
    """Transitions of one critic update."""
    updates_per_step: int = 1
    """Critic updates per environment step; `update` receives batch_size * updates_per_step transitions at once."""
    n_step: int = 1
    """Steps of reward summed before the bootstrap value."""
    chunk: int = 1
    """Actions that a batch has from each step on, for learners that predict several at once, online too. Windows of whole steps
    are what RecordedReplay.sample_windows gives."""
    discount: float = 0.99
    learning_starts: int = 5_000
    """Environment steps with uniformly random actions before the first update."""
    replay_capacity: int = 1_000_000
    """Rows of the online replay memory."""
    replay_folder: str | None = None
    """Folder on a disk in which the online replay memory is mapped; None keeps it in RAM."""
    offline_fraction: float = 0.0
    """Share of every batch that comes from recorded episodes; above 0 such episodes are required, at 1 there is no
    environment: the learner uses nothing else."""
    keeps_corrections: bool = False
    """Steps that a person chose enter the memory of the recorded episodes too, as if they were demonstrations."""
    returns_to_go: bool = False
    """Every batch tells the discounted sum of rewards from each step until its episode ends (robo_rl.rows.returns_to_go)."""

    @classmethod
    def of(cls, settings: object) -> Sampling:
        """Returns those settings of a learner that have the names of the fields above; the others keep their defaults."""
        names = [item.name for item in fields(cls) if hasattr(settings, item.name)]
        return cls(**{name: getattr(settings, name) for name in names})

    def __post_init__(self) -> None:
        allowed = {
            "batch_size": (self.batch_size >= 1, "1 or more"),
            "updates_per_step": (self.updates_per_step >= 1, "1 or more"),
            "n_step": (self.n_step >= 1, "1 or more"),
            "chunk": (self.chunk >= 1, "1 or more"),
            "discount": (0.0 <= self.discount <= 1.0, "0 to 1"),
            "learning_starts": (self.learning_starts >= 1, "1 or more: an empty memory cannot be sampled"),
            "replay_capacity": (self.replay_capacity >= 2, "2 or more"),
            "offline_fraction": (0.0 <= self.offline_fraction <= 1.0, "0 to 1"),
        }
        require_allowed(self, allowed)

    @property
    def returns_discount(self) -> float | None:
        """Discount of the returns-to-go; None where they are not asked for."""
        return self.discount if self.returns_to_go else None


IN_MEMORY = InMemory()


class Sampler(Protocol):
    """Something that batches can be drawn from."""

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99, chunk: int = 1) -> Batch:
        """Returns `batch_size` transitions drawn at random, with replacement."""
        ...


class Memory(Sampler, Stateful, Protocol):
    """A sampler that can be saved and knows how many transitions it holds."""

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        ...


class StepMemory(Protocol):
    """What steps are stored in, one by one."""

    def add(self, transition: Transition) -> None:
        """Stores one step."""
        ...

    def cut(self) -> None:
        """Ends the running episode at its last stored step."""
        ...


class ReplayBuffer:
    """A ring of transitions of one environment, sampled uniformly with its own random generator.

    Memory is taken as it is written, up to `bytes_at_capacity`.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        capacity: int,
        seed: int,
        storage: Storage = IN_MEMORY,
        returns_discount: float | None = None,
    ) -> None:
        """Reserves `capacity` rows in a storage; raises InvalidSetting, before that, where they cannot fit.

        With a discount every batch has returns-to-go; those of the running episode are NaN until it ends.
        """
        if capacity < 2:
            raise InvalidSetting("A replay memory needs two rows for one transition.", got=capacity, allowed="2 or more")
        self._spec = spec
        self._capacity = int(capacity)
        self._generator = np.random.default_rng(seed)
        self._columns = columns_of(spec)
        self._returns_discount = returns_discount
        self._stored = storage.allocate(layout_of(spec, with_returns=returns_discount is not None), self._capacity)
        self._rows = with_views(spec, self._stored)
        self._reader = RowReader(spec, self._stored)
        self._cursor = 0
        self._used = 0
        self._count = 0
        self._is_running = False

    @staticmethod
    def bytes_at_capacity(spec: EnvironmentSpec, capacity: int, *, with_returns: bool = False) -> int:
        """Returns the size of a full memory, without making one."""
        return size_of(layout_of(spec, with_returns=with_returns), capacity)

    @staticmethod
    def statement(spec: EnvironmentSpec, capacity: int, storage: Storage, *, with_returns: bool = False) -> str:
        """Returns in words what a memory would take, for people to see before it is made."""
        size, row = (ReplayBuffer.bytes_at_capacity(spec, rows, with_returns=with_returns) for rows in (capacity, 1))
        return f"replay memory: up to {size / GIGABYTE:.2f} GB in {storage} ({capacity} rows of {row} bytes)"

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return self._count

    @property
    def capacity(self) -> int:
        """Most rows that are kept; an episode of T steps takes T + 1."""
        return self._capacity

    def add(self, transition: Transition) -> None:
        """Stores one step.

        A step whose observation is not the one that the step before led to begins a new episode; the one before it
        then counts as truncated, not as terminated.
        """
        if not (self._is_running and self._holds(self._cursor, transition.observation)):
            self._begin(transition.observation)
        row, following = self._cursor, (self._cursor + 1) % self._capacity
        self._write_observation(following, transition.next_observation)
        self._rows["action"][row] = transition.action
        self._rows["reward"][row] = transition.reward
        self._rows["terminates"][row] = transition.terminated
        self._rows["is_human"][row] = transition.source == ActionSource.HUMAN
        if self._returns_discount is not None:
            self._rows[RETURNS][row] = np.nan
        self._mark(row, True)
        self._cursor = following
        if transition.terminated or transition.truncated:
            self.cut()

    def cut(self) -> None:
        """Ends the running episode at its last stored step, as a truncation would; does nothing between episodes."""
        if self._is_running:
            if self._returns_discount is not None:
                self._write_returns(self._returns_discount)
            self._cursor = (self._cursor + 1) % self._capacity
            self._is_running = False

    def add_episode(self, episode: Episode) -> None:
        """Stores a whole recorded episode; its last step counts as truncated unless it terminated."""
        for step in range(len(episode)):
            self.add(episode.transition(step))

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99, chunk: int = 1) -> Batch:
        """Returns `batch_size` transitions drawn uniformly with replacement.

        With n_step > 1 the reward is the discounted sum of up to n rewards. The sum stops where the episode ends or has
        got to, and `discounts` is discount ** (number of rewards in the sum).
        """
        if not self._count:
            raise InvalidSetting(
                "An empty replay memory cannot be sampled.", got="0 transitions", fix="add steps first: learning_starts >= 1"
            )
        return self._reader.batch(self._reader.draw(self._generator, self._used, batch_size), n_step, discount, chunk)

    def state_dict(self) -> StateDict:
        """Returns the used rows, the cursor and the random generator.

        The rows are read-only views, because a copy could exceed the machine's memory: write them before the next `add`.
        """
        return {
            "rows": {name: _read_only(value[: self._used]) for name, value in self._stored.items()},
            "cursor": self._cursor,
            "is_running": self._is_running,
            "capacity": self._capacity,
            "generator": self._generator.bit_generator.state,
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned; the next sample is the one that would have come."""
        if state["capacity"] != self._capacity:
            raise InvalidSetting(
                "The saved replay memory has another capacity.",
                got=state["capacity"],
                allowed=self._capacity,
                fix="resume with the settings of the run",
            )
        self._used = len(state["rows"]["starts"])
        for name, rows in self._stored.items():
            rows[: self._used] = state["rows"][name]
        self._rows["starts"][self._used :] = False
        self._count = int(self._rows["starts"].sum())
        self._cursor = int(state["cursor"])
        self._is_running = bool(state["is_running"])
        self._generator.bit_generator.state = state["generator"]

    def _begin(self, observation: Observation) -> None:
        self.cut()
        self._write_observation(self._cursor, observation)
        self._is_running = True

    def _holds(self, row: int, observation: Observation) -> bool:
        return all(
            np.array_equal(self._rows["vectors"][row, self._columns[name]], np.ravel(observation[name]).astype(np.float32))
            if name in self._columns
            else np.array_equal(self._rows[key_of(name)][row], observation[name])
            for name in self._spec.observation
        )

    def _write_observation(self, row: int, observation: Observation) -> None:
        """Writes a row that starts no transition (yet); whatever the ring held there is forgotten."""
        self._mark(row, False)
        self._used = max(self._used, row + 1)
        for name in self._spec.observation:
            if name in self._columns:
                self._rows["vectors"][row, self._columns[name]] = np.ravel(observation[name])
            else:
                self._rows[key_of(name)][row] = observation[name]

    def _write_returns(self, discount: float) -> None:
        """Fills in the returns of the episode that ends at the cursor; the row before its first one starts no step."""
        rows, row = [], self._cursor - 1
        while self._rows["starts"][row]:  # ends at the cursor at the latest
            rows.append(row)
            row -= 1
        rewards, was_cut = self._rows["reward"][rows], not self._rows["terminates"][self._cursor - 1]
        following_return = return_beyond_cut(rewards, discount) if was_cut else 0.0
        for row, reward in zip(rows, rewards, strict=True):
            following_return = float(reward) + discount * following_return
            self._rows[RETURNS][row] = following_return

    def _mark(self, row: int, starts: bool) -> None:
        self._count += int(starts) - int(self._rows["starts"][row])
        self._rows["starts"][row] = starts


class CorrectedReplay:
    """Recorded episodes and the steps that a person chose since, sampled as if they were one memory."""

    def __init__(self, recorded: Memory, corrections: ReplayBuffer, seed: int) -> None:
        self.recorded, self.corrections = recorded, corrections
        self._generator = np.random.default_rng([seed, 0])

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return len(self.recorded) + len(self.corrections)

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99, chunk: int = 1) -> Batch:
        """Returns `batch_size` transitions drawn uniformly from both, in random order."""
        is_corrected = self._generator.random(batch_size) * len(self) < len(self.corrections)
        corrected = int(is_corrected.sum())
        if corrected == 0:
            return self.recorded.sample(batch_size, n_step, discount, chunk)
        corrections = self.corrections.sample(corrected, n_step, discount, chunk)
        if corrected == batch_size:
            return corrections
        return _interleave(self.recorded.sample(batch_size - corrected, n_step, discount, chunk), corrections, is_corrected)

    def state_dict(self) -> StateDict:
        """Returns the states of both memories, and the generator."""
        memories = {"recorded": self.recorded.state_dict(), "corrections": self.corrections.state_dict()}
        return memories | {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both memories."""
        self.recorded.load_state_dict(state["recorded"])
        self.corrections.load_state_dict(state["corrections"])
        self._generator.bit_generator.state = state["generator"]


@dataclass(frozen=True)
class BothMemories:
    """Takes steps in as a replay memory does; those that a person chose enter a second one too, each exactly once."""

    online: ReplayBuffer
    corrections: ReplayBuffer

    def add(self, transition: Transition) -> None:
        """Stores one step."""
        self.online.add(transition)
        if transition.source == ActionSource.HUMAN:
            self.corrections.add(transition)
        else:
            self.corrections.cut()

    def cut(self) -> None:
        """Ends the running episode."""
        self.online.cut()
        self.corrections.cut()


@dataclass(frozen=True)
class SymmetricReplay:
    """Mixes online and offline transitions in every batch (Ball et al. 2023, arXiv:2302.02948, section 4.1).

    The two are interleaved element by element: any contiguous slice of a batch has the same mix to within one
    transition, so that a large batch may be cut into several. Of B transitions floor(fraction * B) are offline.
    """

    online: Memory
    offline: Memory
    fraction: float = 0.5
    """Share of offline transitions."""

    def __post_init__(self) -> None:
        if not 0.0 < self.fraction < 1.0:
            raise InvalidSetting("The offline fraction is out of range.", got=self.fraction, allowed="between 0 and 1")
        if not len(self.offline):
            raise InvalidSetting(
                "Training with offline data needs recorded episodes, and there are none.",
                got="0 offline transitions",
                allowed="1 or more",
                fix="record demonstrations and name them in the recipe, or use a learner without offline data such as sac",
            )

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99, chunk: int = 1) -> Batch:
        """Returns `batch_size` transitions, offline ones spread evenly among online ones."""
        is_offline = _spread(batch_size, self.fraction)
        total = int(is_offline.sum())
        online = self.online.sample(batch_size - total, n_step, discount, chunk)
        if total == 0:
            return online
        offline = self.offline.sample(total, n_step, discount, chunk)
        return _interleave(online, offline, is_offline)

    def state_dict(self) -> StateDict:
        """Returns the states of both memories."""
        return {"online": self.online.state_dict(), "offline": self.offline.state_dict()}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores both memories."""
        self.online.load_state_dict(state["online"])
        self.offline.load_state_dict(state["offline"])


def _read_only(rows: Array) -> Array:
    view = rows.view()
    view.flags.writeable = False
    return view


def _spread(size: int, fraction: float) -> npt.NDArray[np.bool_]:
    """Returns which of `size` positions are offline, as evenly as integers allow."""
    reached = np.floor(np.arange(size + 1) * fraction + 1e-9)  # 1e-9: 0.29 * 100 is 28.999... in floating point
    is_offline: npt.NDArray[np.bool_] = np.diff(reached) > 0
    return is_offline


def _interleave(online: Batch, offline: Batch, is_offline: npt.NDArray[np.bool_]) -> Batch:
    # position k takes the next row of its own source: index into the two batches laid end to end
    order = np.where(is_offline, len(online) + np.cumsum(is_offline) - 1, np.cumsum(~is_offline) - 1)

    def mixed(a: Array, b: Array) -> Array:
        return np.concatenate((a, b))[order]

    def mixed_if_known(a: Array | None, b: Array | None) -> Array | None:
        return None if a is None or b is None else mixed(a, b)

    def mixed_views(a: Mapping[str, Array], b: Mapping[str, Array]) -> dict[str, Array]:
        return {name: mixed(value, b[name]) for name, value in a.items()}

    return Batch(
        observations=mixed_views(online.observations, offline.observations),
        actions=mixed(online.actions, offline.actions),
        rewards=mixed(online.rewards, offline.rewards),
        masks=mixed(online.masks, offline.masks),
        discounts=mixed(online.discounts, offline.discounts),
        next_observations=mixed_views(online.next_observations, offline.next_observations),
        weights=mixed(online.weights, offline.weights),
        is_human=mixed(online.is_human, offline.is_human),
        next_actions=mixed_if_known(online.next_actions, offline.next_actions),
        has_next_action=mixed_if_known(online.has_next_action, offline.has_next_action),
        returns_to_go=mixed_if_known(online.returns_to_go, offline.returns_to_go),
        action_chunks=mixed_if_known(online.action_chunks, offline.action_chunks),
        chunk_valid=mixed_if_known(online.chunk_valid, offline.chunk_valid),
    )
