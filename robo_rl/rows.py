"""The rows in which transitions are stored, and how batches are read from them.

Every observation is stored once. An episode of T steps takes T + 1 consecutive rows:

    row            0    1    2    3  |  4    5    6
    observation    s0   s1   s2   s3 |  s0   s1   s2       row 3: last observation of an episode of three steps
    starts         yes  yes  yes  no |  yes  yes  no       row 6: where the running episode has got to

The next observation of row i is row i + 1. An episode's last row starts no step, so that neither a transition nor an n-step sum
can cross into another episode. Float observations lie side by side in one float32 matrix, in the order of the spec, so that a
batch is one gather; arrays of another type (images) keep their type.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from robo_rl.memory import Layout
from robo_rl.spec import EnvironmentSpec
from robo_rl.types import ActionSource, Array, Batch, Episode, Windows

RETURNS = "return_to_go"
"""Name of the rows that hold the discounted sum of the rewards until the end of the episode; only where it is asked for."""

RowNumbers = npt.NDArray[np.int64]


def columns_of(spec: EnvironmentSpec) -> dict[str, slice]:
    """Returns where each float array lies in the matrix of vectors."""
    columns, start = {}, 0
    for name, array in spec.observation.items():
        if np.dtype(array.dtype).kind == "f":
            columns[name] = slice(start, start + array.size)
            start += array.size
    return columns


def layout_of(spec: EnvironmentSpec, *, with_returns: bool = False) -> Layout:
    """Returns shape and type of one row of every array."""
    columns = columns_of(spec)
    return {
        "vectors": ((max((column.stop for column in columns.values()), default=0),), np.float32),
        "action": (spec.action.shape, spec.action.dtype),
        "reward": ((), np.float32),
        "terminates": ((), np.bool_),
        "starts": ((), np.bool_),
        "is_human": ((), np.bool_),
        **({RETURNS: ((), np.float32)} if with_returns else {}),
        **{key_of(name): (array.shape, array.dtype) for name, array in spec.observation.items() if name not in columns},
    }


def key_of(name: str) -> str:
    """Returns the key of an array that keeps its own type; names are snake_case, so none can clash with "action"."""
    return f"observation.{name}"


def rows_of(spec: EnvironmentSpec, episode: Episode) -> dict[str, Array]:
    """Returns the T + 1 rows of a recorded episode, and none of one without steps; pictures are not copied."""
    steps, columns = len(episode), columns_of(spec)
    count = steps + 1 if steps else 0
    rows: dict[str, Array] = {
        name: np.zeros((count, *shape), dtype)
        for name, (shape, dtype) in layout_of(spec).items()
        if not name.startswith("observation.")
    }
    for name, array in spec.observation.items():
        values = episode.observations[name][:count]
        if name in columns:
            rows["vectors"][:, columns[name]] = values.reshape(count, array.size)
        else:
            rows[key_of(name)] = np.ascontiguousarray(values, array.dtype)
    rows["action"][:steps], rows["reward"][:steps] = episode.actions, episode.rewards
    rows["starts"][:steps] = True
    rows["is_human"][:steps] = episode.sources == ActionSource.HUMAN
    if steps:
        rows["terminates"][steps - 1] = episode.terminated
    return rows


def returns_to_go(rewards: Array, starts: Array, discount: float) -> npt.NDArray[np.float32]:
    """Returns for each row the discounted sum of the rewards until its episode ends or was cut; 0 where no step starts."""
    sums, ends = np.zeros(len(rewards) + 1, np.float64), np.flatnonzero(~starts)
    first = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - first
    for back in range(1, int(lengths.max(initial=0)) + 1):  # the steps of all episodes that are so far from their end
        rows = ends[lengths >= back] - back
        sums[rows] = rewards[rows] + discount * sums[rows + 1]
    return sums[:-1].astype(np.float32)


class RowReader:
    """Reads batches from rows in this layout; a hot path.

    `take` instead of an index, because it is two to three times faster for batches of a few hundred rows.
    """

    def __init__(self, spec: EnvironmentSpec, rows: Mapping[str, Array]) -> None:
        self._spec, self._rows, self._columns = spec, rows, columns_of(spec)
        self._capacity = len(rows["starts"])

    def draw(self, generator: np.random.Generator, used: int, size: int) -> RowNumbers:
        """Draws from the first `used` rows uniformly and redraws those that start no transition, at worst two of three."""
        rows = generator.integers(used, size=size)
        starts = self._rows["starts"]
        while not (is_fit := starts.take(rows)).all():
            rejected = np.flatnonzero(~is_fit)
            rows[rejected] = generator.integers(used, size=len(rejected))
        return rows

    def batch(self, first: RowNumbers, n_step: int, discount: float, chunk: int = 1) -> Batch:
        """Returns the transitions that start in these rows, each with up to `n_step` rewards and `chunk` actions."""
        rewards, steps, last = self._sum_rewards(first, n_step, discount)
        powers = np.power(np.float32(discount), np.arange(n_step + 1), dtype=np.float32)
        returns, following = self._rows.get(RETURNS), self._after(last)
        return Batch(
            observations=self.observations(first),
            actions=self._rows["action"].take(first, 0),
            rewards=rewards,
            masks=np.subtract(1.0, self._rows["terminates"].take(last), dtype=np.float32),
            discounts=powers.take(steps),
            next_observations=self.observations(following),
            weights=np.ones(len(first), np.float32),
            is_human=self._rows["is_human"].take(first),
            next_actions=self._rows["action"].take(following, 0),
            has_next_action=self._rows["starts"].take(following),
            returns_to_go=None if returns is None else returns.take(first),
            **(self._chunks(first, chunk) if chunk > 1 else {}),
        )

    def windows(self, first: RowNumbers, last: RowNumbers, start: RowNumbers, length: int) -> Windows:
        """Returns `length` steps from each row of `start` on (B,); beyond `first` and `last` these steps are repeated."""
        wanted = start[:, None] + np.arange(length)
        rows = np.clip(wanted, first[:, None], last[:, None])
        return Windows(
            observations=self.observations(rows),
            actions=self._rows["action"].take(rows, 0),
            rewards=self._rows["reward"].take(rows),
            valid=rows == wanted,
        )

    def observations(self, rows: RowNumbers) -> dict[str, Array]:
        """Returns name -> the observations of these rows, of shape (*rows.shape, ...)."""
        matrix = self._rows["vectors"].take(rows, 0)
        return {
            name: matrix[..., self._columns[name]].reshape(*rows.shape, *array.shape)
            if name in self._columns
            else self._rows[key_of(name)].take(rows, 0)
            for name, array in self._spec.observation.items()
        }

    def _sum_rewards(
        self, first: RowNumbers, n_step: int, discount: float
    ) -> tuple[npt.NDArray[np.float32], RowNumbers, RowNumbers]:
        """Returns (B,) discounted sums, (B,) number of rewards in each, (B,) rows of the last one."""
        rewards = self._rows["reward"].take(first)
        steps, last = np.ones(len(first), np.int64), first
        for power in range(1, n_step):
            following = self._after(last)
            goes_on = self._rows["starts"].take(following) & (steps == power)
            rewards = rewards + np.where(goes_on, np.float32(discount**power) * self._rows["reward"][following], np.float32(0))
            steps, last = steps + goes_on, np.where(goes_on, following, last)
        return rewards, steps, last

    def _chunks(self, first: RowNumbers, length: int) -> dict[str, Array]:
        """Returns the actions of `length` steps from these rows on (B, H, ...), and which of them the episode has (B, H)."""
        rows, valid = np.empty((len(first), length), np.int64), np.ones((len(first), length), np.bool_)
        rows[:, 0] = first
        for step in range(1, length):
            following = self._after(rows[:, step - 1])
            valid[:, step] = valid[:, step - 1] & self._rows["starts"].take(following)
            rows[:, step] = np.where(valid[:, step], following, rows[:, step - 1])
        return {"action_chunks": self._rows["action"].take(rows, 0), "chunk_valid": valid}

    def _after(self, rows: RowNumbers) -> RowNumbers:
        following = rows + 1
        following[following == self._capacity] = 0
        return following
