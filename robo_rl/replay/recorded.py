"""Replay memory of recorded episodes, whose rows (robo_rl.replay.rows) never change, in RAM or in files on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

import numpy as np

from robo_rl.errors import InvalidSetting
from robo_rl.extras import Extra, FromExpert, recorded_columns
from robo_rl.replay.rows import RowReader, layout_of, rows_of, saved_rows, spread
from robo_rl.replay.storage import InMemory
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Episode, StateDict, Windows


class RecordedReplay:
    """Replay memory of recorded episodes; samples transitions and windows uniformly with its own random generator.

    The same seed gives the same batches as a ReplayBuffer that stores only these episodes.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        rows: Mapping[str, Array],
        seed: int,
        *,
        content: str | None = None,
        extras: Sequence[Extra] = (),
    ) -> None:
        """Read episodes that are already stored as rows.

        Args:
            spec: Spec of the environment.
            rows: Rows in the layout of robo_rl.replay.rows, with the columns of extras as `recorded_columns` returns them.
            seed: Seed of the random generator.
            content: Hash of rows on disk; a saved state holds it instead of the rows. None for rows in RAM.
            extras: Further columns that the learner reads.
        """
        self._spec, self._content, self._extras = spec, content, extras
        self._generator = np.random.default_rng(seed)
        self._take(rows)

    @classmethod
    def of(cls, spec: EnvironmentSpec, episodes: Sequence[Episode], seed: int, *, extras: Sequence[Extra] = ()) -> Self:
        """Return a replay memory that copies the episodes into RAM; raises InvalidSetting if the free RAM is too small.

        Args:
            spec: Spec of the environment.
            episodes: Recorded episodes.
            seed: Seed of the sampling.
            extras: Further columns that the learner reads.
        """
        lengths = [len(episode) for episode in episodes]
        count = sum(length + 1 for length in lengths if length)
        rows, end = InMemory().allocate(layout_of(spec), count), 0
        for episode in episodes:
            for name, part in rows_of(spec, episode).items():
                rows[name][end : end + len(part)] = part
            end += len(episode) + 1 if len(episode) else 0
        return cls(spec, rows | recorded_columns(spec, extras, lengths, episodes), seed, extras=extras)

    def __len__(self) -> int:
        """Number of transitions that can be sampled."""
        return self._count

    def sample(self, batch_size: int, n_step: int = 1, discount: float = 0.99) -> Batch:
        """Return transitions drawn uniformly with replacement, as `ReplayBuffer.sample` does.

        Args:
            batch_size: Number of transitions.
            n_step: Largest number of rewards that are summed in a transition; fewer at the end of an episode.
            discount: Discount per step.
        """
        return self._reader.batch(self._draw(batch_size), n_step, discount, self._generator)

    def sample_windows(self, count: int, length: int, before: int = 0) -> Windows:
        """Return `count` windows of `length` steps, each around a uniformly drawn step.

        Args:
            count: Number of windows.
            length: Steps of a window.
            before: Steps of the window before the drawn step.

        Returns:
            Windows. Steps beyond the ends of the episode repeat its first or last step, and are not `valid`.
        """
        drawn = self._draw(count)
        episode = np.searchsorted(self._ends, drawn)
        first, last = self._firsts[episode], self._ends[episode] - 1
        return self._reader.windows(first, last, drawn - before, length)

    def transitions(self, most: int, random: np.random.Generator) -> Batch:
        """Return all single steps that are stored; of more than `most` a random choice."""
        return self._reader.transitions(len(self._rows["starts"]), most, random)

    def state_dict(self) -> StateDict:
        """Return the state of the random generator, and either the rows in RAM or the hash of the rows on disk."""
        rows: StateDict = {"rows": dict(self._rows)} if self._content is None else {"content": self._content}
        return {"generator": self._generator.bit_generator.state, **rows}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`; raises InvalidSetting if the rows on disk have changed."""
        if state.get("content") != self._content:
            raise _changed(str(state.get("content")), str(self._content))
        if self._content is None:
            self._take(state["rows"])
        self._generator.bit_generator.state = state["generator"]

    def _take(self, rows: Mapping[str, Array]) -> None:
        self._rows = saved_rows(layout_of(self._spec, self._extras), rows)
        columns = {name for extra in self._extras for name in extra.columns(self._spec)}
        self._rows |= {name: np.array(rows[name]) for name in columns}  # a copy, because `complete` writes into it
        self._ends = np.flatnonzero(~self._rows["starts"])
        self._firsts = np.concatenate(([0], self._ends[:-1] + 1))
        self._count = len(self._rows["starts"]) - len(self._ends)
        self._reader = RowReader(self._spec, self._rows, self._extras)
        self._experts = next((extra for extra in self._extras if isinstance(extra, FromExpert) and extra.fraction), None)
        if self._experts is not None:
            self._by_expert = [np.flatnonzero(self._rows["starts"] & mask) for mask in self._masks()]
        if columns:
            for first, end in zip(self._firsts, self._ends, strict=True):
                if end > first:
                    self._reader.complete(np.arange(first, end))

    def _draw(self, size: int) -> Array:
        if not self._count:
            raise InvalidSetting("There are no recorded steps to learn from.", got="0 transitions", allowed="1 or more")
        if self._experts is None:
            return self._reader.draw(self._generator, len(self._rows["starts"]), size)
        is_expert = spread(size, self._experts.fraction)
        drawn = np.empty(size, np.int64)
        for rows, places in zip(self._by_expert, (is_expert, ~is_expert), strict=True):
            drawn[places] = rows[self._generator.integers(len(rows), size=np.count_nonzero(places))]
        return drawn

    def _masks(self) -> tuple[Array, Array]:
        """Return a mask of the expert's rows and one of all others; raises InvalidSetting if either has no step."""
        assert self._experts is not None
        is_expert, starts = self._rows["from_expert"].astype(np.bool_), self._rows["starts"]
        counts = [int((starts & mask).sum()) for mask in (is_expert, ~is_expert)]
        if not all(counts):
            raise InvalidSetting(
                "The recorded steps must be the expert's in part, and in part not.",
                got=f"{counts[0]} steps of the expert, {counts[1]} of others, by the rule {self._experts.experts!r}",
                allowed="1 or more of each",
                fix="choose the expert's by learner.experts; `robo-rl data info` shows sources, successes and returns",
            )
        return is_expert, ~is_expert


def _changed(then: str, now: str) -> InvalidSetting:
    """Return the error for rows on disk that have changed since the state was saved.

    then, now: hashes; the part after a dash is the hash of the labels.
    """
    episodes, _, _ = then.partition("-")
    if now.partition("-")[0] == episodes:
        what, fix = "other labels of its episodes", "restore the earlier labels of the label set, or start a new training"
    else:
        what = "other recorded episodes"
        fix = "restore the dataset's earlier episodes (`robo-rl data verify` checks each), or start a new training"
    return InvalidSetting(
        f"The run learnt from {what} than there are now.", got=f"content {now}", allowed=f"content {then}", fix=fix
    )


@runtime_checkable
class ReplayableEpisodes(Protocol):
    """Interface of recorded episodes that are already stored as rows on disk, so that they need not be loaded into RAM."""

    def replay(self, seed: int, extras: Sequence[Extra] = (), spec: EnvironmentSpec | None = None) -> RecordedReplay:
        """Return a replay memory of the episodes.

        Args:
            seed: Seed of the sampling.
            extras: Further columns that the learner reads.
            spec: Spec with the entries that the learner reads; None for all entries.
        """
