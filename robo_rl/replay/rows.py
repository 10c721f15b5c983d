"""Layout of stored transitions as rows, and reading of batches from rows.

Every observation is stored once. An episode of T steps takes T + 1 consecutive rows:

    row            0    1    2    3  |  4    5    6
    observation    s0   s1   s2   s3 |  s0   s1   s2       row 3: last observation of an episode of three steps
    starts         yes  yes  yes  no |  yes  yes  no       row 6: newest observation of the running episode

The next observation of row i is in row i + 1. The last row of an episode starts no step, so that neither a transition nor an
n-step sum can cross into another episode. Float observations (in the order of the spec), continuous actions and the reward are
columns of one float32 matrix, `vectors`, so that a batch is one gather. Arrays of another type (images) keep their type. In a
memory of N environments the rows of one environment are N apart: each environment has its own ring of rows.

Of an entry with a history (`ArraySpec.history`) a row stores only the newest observation. Batches gather the older ones from
the rows before, back to the first row of the episode (`begins`), which is repeated as a frame stack repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting
from robo_rl.extras import Extra, RowNumbers, SampledRows
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec
from robo_rl.types import DIVERGED, ActionSource, Array, Batch, Episode, Labels, Layout, Windows


def columns_of(spec: EnvironmentSpec) -> dict[str, slice]:
    """Return for each float entry of the observation its columns in the matrix `vectors`, by name.

    Of an entry with a history (a frame stack) only the newest part is stored.
    """
    columns, start = {}, 0
    for name, array in spec.single.observation.items():
        if np.dtype(array.dtype).kind == "f":
            columns[name] = slice(start, start + array.size)
            start += array.size
    return columns


def layout_of(spec: EnvironmentSpec, extras: Sequence[Extra] = ()) -> Layout:
    """Return name -> (shape, type) of one row of every stored array; raises InvalidSetting if two have the same name."""
    columns, single = columns_of(spec), spec.single.observation
    begins = {"begins": ((), np.bool_)} if history_of(spec) > 1 else {}
    actions = {"action": (spec.action.shape, spec.action.dtype)} if spec.action.is_discrete else {}
    layout = {
        "vectors": ((_reward_column(spec) + 1,), np.float32),
        **actions,
        "terminates": ((), np.bool_),
        "starts": ((), np.bool_),
        "source": ((), np.int8),
        **begins,
        **{key_of(name): (array.shape, array.dtype) for name, array in single.items() if name not in columns},
    }
    for extra in extras:
        for name, column in extra.columns(spec).items():
            _require_new(name, extra, {*layout, "action", "reward"})
            layout[name] = column
    return layout


def history_of(spec: EnvironmentSpec) -> int:
    """Return the number of observations in the longest frame stack among the entries; 1 if there is none."""
    return max((array.history for array in spec.observation.arrays), default=1)


def _require_new(name: str, extra: Extra, names: Iterable[str]) -> None:
    if name in names:
        raise InvalidSetting(
            "Two extras of a learner, or an extra and the memory itself, use one name.",
            got=f"{name!r} of {extra}",
            allowed="a name of its own",
            fix="rename the extra's column or array, or ask for it once",
        )


def saved_rows(layout: Layout, state: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays of a saved memory that are in the layout; raises InvalidSetting if one is missing.

    Memories of version 0.1 have `is_human` in the place of `source`.
    """
    if "is_human" in state and "source" not in state:
        state = {**state, "source": np.where(state["is_human"], ActionSource.HUMAN, ActionSource.POLICY).astype(np.int8)}
    if missing := sorted(layout.keys() - state.keys()):
        raise InvalidSetting(
            "The saved replay memory lacks data that the learner needs.",
            got=f"no {', '.join(missing)}",
            allowed=", ".join(sorted(layout)),
            fix="resume with the learner, and the version of robo-rl, of the run; or start a new training",
        )
    return {name: state[name] for name in layout}


def with_views(spec: EnvironmentSpec, stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return the stored arrays by name, with "reward" and "action" added as views into their matrix."""
    reward, vectors = _reward_column(spec), stored["vectors"]
    views = {} if spec.action.is_discrete else {"action": vectors[:, reward - spec.action.size : reward]}
    return {**stored, **views, "reward": vectors[:, reward]}


def _reward_column(spec: EnvironmentSpec) -> int:
    observed = max((column.stop for column in columns_of(spec).values()), default=0)
    return observed + (0 if spec.action.is_discrete else spec.action.size)


def key_of(name: str) -> str:
    """Return the name under which a non-float entry is stored; its dot avoids clashes with names such as "action"."""
    return f"observation.{name}"


def rows_of(spec: EnvironmentSpec, episode: Episode) -> dict[str, Array]:
    """Convert a recorded episode of T steps into the T + 1 rows that a memory stores; no rows if T is 0.

    The step in which a simulation diverged starts nothing, so that it teaches nothing. Pictures are not copied.
    """
    steps, columns, layout = len(episode), columns_of(spec), layout_of(spec)
    count = steps + 1 if steps else 0
    observed = {name: values[:count] for name, values in spec.observation.newest(episode.observations).items()}
    pictures = {
        key_of(name): np.ascontiguousarray(observed[name], array.dtype)
        for name, array in spec.observation.items()
        if name not in columns
    }
    stored = {name: np.zeros((count, *shape), dtype) for name, (shape, dtype) in layout.items() if name not in pictures}
    rows = with_views(spec, stored)
    for name, column in columns.items():
        rows["vectors"][:, column] = observed[name].reshape(count, column.stop - column.start)
    rows["action"][:steps], rows["reward"][:steps] = episode.actions, episode.rewards
    rows["starts"][: steps - (episode.stop_reason == DIVERGED)] = True
    if "begins" in rows:
        rows["begins"][:1] = True
    rows["source"][:steps] = episode.sources
    if steps:
        rows["terminates"][steps - 1] = episode.terminated
    return stored | pictures


def restricted_rows(spec: EnvironmentSpec, read: EnvironmentSpec, rows: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return rows of whole episodes for a learner that reads only some of the entries, with or without a history.

    The matrix `vectors` is copied if an entry is left out.

    Args:
        spec: Spec of the rows.
        read: Spec with the entries that the learner reads.
        rows: Name -> (rows, ...) stored arrays.
    """
    columns, reward = columns_of(spec), _reward_column(spec)
    if history_of(read) > 1 and "begins" not in rows:
        rows = {**rows, "begins": np.concatenate([np.ones(1, np.bool_), ~rows["starts"]])[: len(rows["starts"])]}
    if [*columns] == [*columns_of(read)]:
        return rows
    acted = slice(max((column.stop for column in columns.values()), default=0), reward + 1)
    return {**rows, "vectors": np.array(rows["vectors"][:, np.r_[(*(columns[name] for name in columns_of(read)), acted)]])}


def with_rewards(spec: EnvironmentSpec, rows: Mapping[str, Array], labels: Labels) -> dict[str, Array]:
    """Return the rows with labels (rows,) in place of their rewards.

    The matrix `vectors` is copied into RAM; other arrays stay mapped from their files. A row without a label starts no step, so
    that no transition and no sum of rewards contains a missing reward.
    """
    vectors = np.array(rows["vectors"])
    vectors[:, _reward_column(spec)] = np.where(labels.valid, labels.values, 0)
    return {**rows, "vectors": vectors, "starts": rows["starts"] & labels.valid}


def spread(size: int, fraction: float) -> npt.NDArray[np.bool_]:
    """Return a mask (size,) in which a share `fraction` of the positions is True, spread as evenly as possible."""
    reached = np.floor(np.arange(size + 1) * fraction + 1e-9)  # 1e-9: 0.29 * 100 is 28.999... in floating point
    is_marked: npt.NDArray[np.bool_] = np.diff(reached) > 0
    return is_marked


class RowReader:
    """Reads batches of transitions from the stored rows of a replay memory; written for speed, as every update uses it.

    It uses `take` instead of an index: two to three times faster for batches of a few hundred rows. `take` wraps around,
    because row 0 follows the last row of a ring.
    """

    def __init__(
        self, spec: EnvironmentSpec, stored: Mapping[str, Array], extras: Sequence[Extra] = (), stride: int = 1
    ) -> None:
        """Read rows of `spec`; stride: distance of rows between two steps of the same environment."""
        self._stored, self._reward, self._extras, self._stride = stored, _reward_column(spec), extras, stride
        self._action = None if spec.action.is_discrete else slice(self._reward - spec.action.size, self._reward)
        columns, self._history = columns_of(spec), history_of(spec)
        self._observed = [(name, array, columns.get(name)) for name, array in spec.observation.items()]

    def draw(self, generator: np.random.Generator, used: int, size: int) -> RowNumbers:
        """Return the numbers of `size` rows, each of which starts a transition, drawn from the first `used` rows.

        Rows are drawn uniformly with replacement. A row that starts no transition is redrawn; at most two thirds of the rows
        are of this kind.
        """
        rows = generator.integers(used, size=size)
        starts = self._stored["starts"]
        while np.count_nonzero(is_fit := starts.take(rows)) < size:
            rejected = np.flatnonzero(~is_fit)
            rows[rejected] = generator.integers(used, size=len(rejected))
        return rows

    def transitions(self, used: int, most: int, random: np.random.Generator) -> Batch:
        """Return the single steps of the first `used` rows, without extras; of more than `most` a random choice."""
        first = np.flatnonzero(self._stored["starts"][:used])
        if len(first) > most:
            first = first[random.permutation(len(first))[:most]]
        return self.batch(first, 1, 1.0, None)

    def batch(self, first: RowNumbers, n_step: int, discount: float, generator: np.random.Generator | None) -> Batch:
        """Return the transitions that start in the rows `first` (B,), with sums of up to `n_step` rewards.

        generator: random generator for extras that draw; None leaves all extras out of the batch.
        """
        vectors, last = self._take("vectors", first), first
        rewards, discounts = vectors[:, self._reward], np.full(len(first), discount, np.float32)
        if n_step > 1:
            rewards, discounts, last = self._sum_rewards(first, rewards, n_step, discount)
        following = self.after(last)
        next_vectors = self._take("vectors", following)
        return Batch(
            observations=self._observations(first, vectors),
            actions=self._actions(first, vectors),
            rewards=rewards,
            masks=np.logical_not(self._take("terminates", last)).astype(np.float32),
            discounts=discounts,
            next_observations=self._observations(following, next_vectors),
            weights=np.ones(len(first), np.float32),
            sources=self._take("source", first),
            extras={}
            if generator is None or not self._extras
            else self._sample_extras(first, following, next_vectors, generator),
        )

    def _sample_extras(
        self, first: RowNumbers, following: RowNumbers, next_vectors: Array, generator: np.random.Generator
    ) -> dict[str, Array]:
        rows = SampledRows(self, first, following, self._actions(following, next_vectors), generator)
        found: dict[str, Array] = {}
        for extra in self._extras:
            for name, values in extra.sample(rows).items():
                _require_new(name, extra, found)
                found[name] = values
        return found

    def complete(self, steps: RowNumbers) -> None:
        """Fill those columns of extras for an episode whose values are known only at its end.

        steps: (T,) rows of the episode's steps.
        """
        for extra in self._extras:
            for name, values in extra.complete(self, steps).items():
                self._stored[name][steps] = values

    def after(self, rows: RowNumbers, steps: int | RowNumbers = 1) -> RowNumbers:
        """Return the rows that are `steps` steps later in the same environment.

        Numbers beyond the last row wrap around when read.
        """
        return rows + steps * self._stride

    def column(self, name: str, rows: RowNumbers) -> Array:
        """Return the values (*rows.shape, ...) of a stored array by name; "action" and "reward" are allowed, too."""
        if name == "reward":
            return self._rewards(rows)
        return self._actions(rows, self._take("vectors", rows)) if name == "action" else self._take(name, rows)

    def observations(self, rows: RowNumbers) -> dict[str, Array]:
        """Return name -> observations (*rows.shape, ...) of the rows."""
        return self._observations(rows, self._take("vectors", rows))

    def windows(self, first: RowNumbers, last: RowNumbers, start: RowNumbers, length: int) -> Windows:
        """Return windows of `length` steps; beyond the ends of an episode its first or last step is repeated.

        This needs the first and last row of each episode, which are known for recordings but not for a ring. The extra `Chunks`
        works for both, goes row by row and reads actions only.

        Args:
            first: (B,) first row of each episode.
            last: (B,) row of its last step.
            start: (B,) row of the first step of each window.
            length: Number of steps.
        """
        wanted = start[:, None] + np.arange(length)
        rows = np.minimum(np.maximum(wanted, first[:, None]), last[:, None])
        vectors = self._take("vectors", rows)
        return Windows(
            observations=self._observations(rows, vectors),
            actions=self._actions(rows, vectors),
            rewards=vectors[..., self._reward],
            valid=rows == wanted,
        )

    def _take(self, name: str, rows: RowNumbers) -> Array:
        return self._stored[name].take(rows, 0, mode="wrap")

    def _rewards(self, rows: RowNumbers) -> Array:
        return self._stored["vectors"].reshape(-1).take(rows * (self._reward + 1) + self._reward, mode="wrap")

    def _actions(self, rows: RowNumbers, vectors: Array) -> Array:
        return self._take("action", rows) if self._action is None else vectors[..., self._action]

    def _observations(self, rows: RowNumbers, vectors: Array) -> dict[str, Array]:
        """Return name -> observations (*rows.shape, ...); float entries are views into `vectors`."""
        found = {}
        older = self._older(rows) if self._history > 1 else []
        for name, array, column in self._observed:
            if array.history > 1:
                found[name] = self._stacked(name, array, column, older[-array.history :])
                continue
            values = self._take(key_of(name), rows) if column is None else vectors[..., column]
            found[name] = values if len(array.shape) == 1 or column is None else values.reshape(*rows.shape, *array.shape)
        return found

    def _older(self, rows: RowNumbers) -> list[RowNumbers]:
        """Return the rows of the history of `rows`, oldest first; the first row of an episode is repeated."""
        found = [rows]
        for _ in range(1, self._history):
            found.append(self.after(found[-1], -(~self._take("begins", found[-1])).astype(np.int64)))
        return found[::-1]

    def _stacked(self, name: str, array: ArraySpec, column: slice | None, older: list[RowNumbers]) -> Array:
        """Return an entry with its history: (*rows.shape, *array.shape)."""
        stacked: Array = np.empty((*older[0].shape, *array.shape), array.dtype)
        last = array.shape[-1] // array.history
        for place, rows in enumerate(older):
            values = self._take(key_of(name), rows) if column is None else self._take("vectors", rows)[..., column]
            part = stacked[..., place * last : (place + 1) * last]
            part[...] = values.reshape(part.shape)
        return stacked

    def _sum_rewards(
        self, first: RowNumbers, rewards: npt.NDArray[np.float32], n_step: int, discount: float
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], RowNumbers]:
        """Return n-step sums of rewards.

        Returns:
            Discounted sums (B,), discount ** (number of rewards in the sum) (B,), and the row of the last reward of each sum
                (B,).
        """
        steps, last = np.ones(len(first), np.int64), first
        for power in range(1, n_step):
            after = self.after(last)
            goes_on = self._take("starts", after) & (steps == power)
            following = np.float32(discount**power) * self._rewards(after)
            rewards = rewards + np.where(goes_on, following, np.float32(0))
            steps, last = steps + goes_on, np.where(goes_on, after, last)
        return rewards, np.power(np.float32(discount), steps, dtype=np.float32), last
