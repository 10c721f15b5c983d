"""Data of a learner beyond plain transitions: next actions, chunks of actions, returns-to-go, costs, goals.

A learner lists extras in its `Sampling`; every memory then stores their columns with each step, and its batches hold the
result of `sample`, by name:

    @dataclass(frozen=True)
    class StepNumbers(Extra):
        def columns(self, spec): return {"step_number": ((), np.int32)}
        def record(self, step): return {"step_number": step.info["step_number"]}
        def sample(self, rows): return {"step_numbers": rows.column("step_number", rows.first)}

B sampled rows, T steps of an episode; rows are those of `robo_rl.replay.rows`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.spec.cost import cost_names, costs_of
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import ActionSource, Array, Episode, Layout, Transition

RowNumbers = npt.NDArray[np.int64]


class StoredRows(Protocol):
    """Interface of the rows of a replay memory, as extras read them.

    Row numbers beyond the last row wrap around to the first.
    """

    def column(self, name: str, rows: RowNumbers) -> Array:
        """Return the values (*rows.shape, ...) of an extra's column, or of "action", "reward", "terminates" or "starts"."""

    def observations(self, rows: RowNumbers) -> dict[str, Array]:
        """Return name -> observations (*rows.shape, ...) of the rows."""

    def after(self, rows: RowNumbers, steps: int | RowNumbers = 1) -> RowNumbers:
        """Return the rows `steps` steps later, or earlier if negative; consecutive steps need not have consecutive numbers."""


@dataclass(frozen=True)
class SampledRows:
    """Rows of a sampled batch of B steps, from which extras compute their arrays."""

    stored: StoredRows
    first: RowNumbers
    """(B,) rows in which the sampled steps start."""
    following: RowNumbers
    """(B,) rows of `next_observations`: after the last reward of each n-step sum."""
    next_actions: Array
    """(B, ...) actions stored in the rows `following`; meaningless if no step starts there."""
    generator: np.random.Generator
    """Random generator of the memory; its draws repeat after an exact resume."""

    def column(self, name: str, rows: RowNumbers) -> Array:
        """Return the values of a stored column in some rows, (*rows.shape, ...), as `StoredRows.column` does."""
        return self.stored.column(name, rows)

    def observations(self, rows: RowNumbers) -> dict[str, Array]:
        """Return the observations in some rows, name -> (*rows.shape, ...), as `StoredRows.observations` does."""
        return self.stored.observations(rows)

    def after(self, rows: RowNumbers, steps: int | RowNumbers = 1) -> RowNumbers:
        """Return the numbers of the rows that are `steps` steps later, as `StoredRows.after` does."""
        return self.stored.after(rows, steps)


class Extra(ABC):
    """Base class of further data for a learner: columns stored for each step, and arrays computed for each batch.

    What `record` returns must not depend on reward or termination, because a reward model may replace both later. `complete`
    and `sample` see their final values.
    """

    uses_rewards: ClassVar[bool] = False
    """True if the values depend on rewards; such an extra is refused together with rewards that change after they were
    stored."""
    unknown: ClassVar[float | None] = None
    """For extras without `record`: value of the columns until `complete` fills them. None for extras with `record`."""

    def columns(self, spec: EnvironmentSpec) -> Layout:
        """Return name -> (shape, type) of the columns that are stored for each step."""
        return {}

    def require(self, spec: EnvironmentSpec, step: Transition) -> None:  # noqa: B027 - most columns need no check
        """Raise InvalidSetting if `step` lacks what `record` reads, or has it in another shape than `columns` says."""

    def record(self, step: Transition) -> Mapping[str, Any]:
        """Return the value of each column for one step; called in the process that acts."""
        return {}

    def record_episode(self, episode: Episode) -> Mapping[str, Array]:
        """Return the columns of a recorded episode of T steps, name -> (T, ...)."""
        steps = [self.record(episode.transition(step)) for step in range(len(episode))]
        return {name: np.stack([step[name] for step in steps]) for name in steps[0]}

    def complete(self, rows: StoredRows, steps: RowNumbers) -> Mapping[str, Array]:
        """Compute columns whose values are known only once the episode has ended, such as returns.

        Args:
            rows: Stored rows.
            steps: (T,) rows of the episode's steps, in order, without those that newer steps have overwritten.

        Returns:
            Name -> (T, ...) values.
        """
        return {}

    @abstractmethod
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        """Compute the arrays of a sampled batch that this extra adds to `Batch.extras`: name -> (B, ...)."""


@dataclass(frozen=True)
class NextActions(Extra):
    """Extra `next_actions` (B, A) or (B,): actions executed at the next observations.

    `has_next_action` (B,) is False if no such action was recorded, as at the end of an episode.
    """

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        return {"next_actions": rows.next_actions, "has_next_action": rows.column("starts", rows.following)}


@dataclass(frozen=True)
class Chunks(Extra):
    """Extra `action_chunks` (B, H, A) or (B, H): actions executed from each step on, and `chunk_valid` (B, H).

    Beyond the end of the episode the last action is repeated, and `chunk_valid` is False.
    """

    length: int
    """Number H of actions in a chunk."""

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidSetting("A chunk of actions is too short.", got=self.length, allowed="1 or more")

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        numbers, valid = np.empty((len(rows.first), self.length), np.int64), np.ones((len(rows.first), self.length), np.bool_)
        numbers[:, 0] = rows.first
        for step in range(1, self.length):
            following = rows.after(numbers[:, step - 1])
            valid[:, step] = valid[:, step - 1] & rows.column("starts", following)
            numbers[:, step] = np.where(valid[:, step], following, numbers[:, step - 1])
        return {"action_chunks": rows.column("action", numbers), "chunk_valid": valid}


@dataclass(frozen=True)
class ReturnsToGo(Extra):
    """Extra `returns_to_go` (B,): discounted sum of rewards until the end of the episode; NaN while the episode runs.

    For an episode that was cut, `return_beyond_cut` of its rewards is added for the unknown rest.
    """

    uses_rewards = True
    unknown = np.nan
    discount: float = 0.99
    """Discount per step."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {"return_to_go": ((), np.float32)}

    @override
    def complete(self, rows: StoredRows, steps: RowNumbers) -> Mapping[str, Array]:
        rewards = rows.column("reward", steps)
        beyond = 0.0 if rows.column("terminates", steps[-1:])[0] else return_beyond_cut(rewards, self.discount)
        return {"return_to_go": returns_to_go(rewards, self.discount, beyond).astype(np.float32)}

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        return {"returns_to_go": rows.column("return_to_go", rows.first)}


def returns_to_go(rewards: Array, discount: float, beyond: float = 0.0) -> Array:
    """Return the discounted sums (T,) of rewards from each step to the end.

    Args:
        rewards: (T,) rewards.
        discount: Discount per step.
        beyond: Return after the last step.
    """
    sums = [*accumulate(rewards[::-1].tolist(), lambda total, reward: reward + discount * total, initial=beyond)]
    return np.asarray(sums[:0:-1], np.float64)


def return_beyond_cut(rewards: Array, discount: float) -> float:
    """Return an estimate from below of the return that a cut episode would have earned afterwards.

    It assumes that the lowest reward of the episode is paid forever if that is negative, and 0 otherwise. Without this estimate
    a penalty for every step would seem to end at the time limit. The code of Nakamoto et al. 2023 does the same, but only for
    episodes that earn nothing but the penalty.

    Args:
        rewards: (T,) rewards of the episode.
        discount: Discount per step; at 1 the result may be minus infinity.
    """
    lowest = min(float(rewards.min(initial=0.0)), 0.0)
    if lowest == 0.0:
        return 0.0
    return lowest / (1.0 - discount) if discount < 1.0 else -np.inf


@dataclass(frozen=True)
class Column(Extra):
    """Extra with an entry of each step's `info` under its own name, such as "cost" (B, *shape).

    Recorded episodes provide "cost" from `Episode.costs`.
    """

    name: str
    """Key of `info`, and name of the extra."""
    shape: tuple[int, ...] = ()
    """Shape of the entry for one step; () for a number."""
    dtype: str = "float32"
    """NumPy type in which the entry is stored."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {self.name: (self.shape, np.dtype(self.dtype))}

    @override
    def record(self, step: Transition) -> Mapping[str, Any]:
        if self.name not in step.info:
            raise InvalidSetting(
                f"The learner needs {self.name!r} of each step, and a step has none.",
                got=f"info with {', '.join(sorted(step.info)) or 'no entries'}",
                allowed=f"info with {self.name!r}",
                fix="take an environment, or recorded episodes, that provide it; or another learner",
            )
        return {self.name: step.info[self.name]}

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        return {self.name: rows.column(self.name, rows.first)}


@dataclass(frozen=True)
class Costs(Extra):
    """Extra `costs` (B, C): the C constraint costs of each step, in alphabetical order of their names (`cost_names`)."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {"costs": ((len(cost_names(spec.costs)),), np.dtype(np.float32))}

    @override
    def require(self, spec: EnvironmentSpec, step: Transition) -> None:
        if not (costs := costs_of(step.info)):
            raise InvalidSetting(
                "The learner needs constraint costs of each step, and a step has none.",
                got=f"info with {', '.join(sorted(step.info)) or 'no entries'}",
                allowed='info["costs"], name -> value, or info["cost"]',
                fix="take an environment, or recorded episodes, that provide them; or another learner",
            )
        if tuple(sorted(costs)) != (names := cost_names(spec.costs)):
            raise InvalidSetting(
                "A step has other costs than the environment declares.",
                got=", ".join(sorted(costs)),
                allowed=", ".join(names),
                fix="record the episodes with the costs of this environment, or declare in its spec what they hold",
            )

    @override
    def record(self, step: Transition) -> Mapping[str, Any]:
        costs = costs_of(step.info)
        return {"costs": np.array([costs[name] for name in sorted(costs)], np.float32)}

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        return {"costs": rows.column("costs", rows.first)}


EXPERT_ACTION = "expert_action"
"""Entry of `info`: the action that an expert would have taken in place of the executed one."""


@dataclass(frozen=True)
class ExpertActions(Extra):
    """Extra `expert_actions` (B, A) or (B,): an expert's action for each observation, whoever acted.

    For recorded episodes it holds the executed actions.
    """

    shuffled: bool = False
    """Give each expert action to another row of its batch: the control condition of a study, in which labels tell nothing."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {EXPERT_ACTION: (spec.action.shape, np.dtype(spec.action.dtype))}

    @override
    def record(self, step: Transition) -> Mapping[str, Any]:
        if EXPERT_ACTION not in step.info:
            raise InvalidSetting(
                "The learner needs an expert's action for each step, and a step has none.",
                got=f"info with {', '.join(sorted(step.info)) or 'no entries'}",
                allowed=f"info with {EXPERT_ACTION!r}",
                fix="put the wrapper `labelled` around the environment: --environment.wrappers.labelled '{}'",
            )
        return {EXPERT_ACTION: step.info[EXPERT_ACTION]}

    @override
    def record_episode(self, episode: Episode) -> Mapping[str, Array]:
        return {EXPERT_ACTION: episode.actions}

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        chosen = rows.generator.permutation(rows.first) if self.shuffled else rows.first
        return {"expert_actions": rows.column(EXPERT_ACTION, chosen)}


@dataclass(frozen=True)
class FromExpert(Extra):
    """Extra `from_expert` (B,): True for steps of an expert.

    These are the steps of recorded episodes that `experts` selects, and steps that a person chose.
    """

    experts: str = "all"
    """Recorded episodes that count as the expert's: "all", "success", "source NAME" as `robo-rl data info` lists it, or "return
    X" for a return of at least X."""
    fraction: float = 0.0
    """Share of the recorded steps in a batch that are the expert's, 0 to below 1; 0 draws all recorded steps uniformly."""

    def __post_init__(self) -> None:
        kind, _, value = self.experts.partition(" ")
        is_known = (
            (kind in ("all", "success") and not value)
            or (kind == "source" and bool(value))
            or (kind == "return" and _is_number(value))
        )
        require_allowed(
            self,
            {
                "experts": (is_known, "all, success, source NAME or return X"),
                "fraction": (0.0 <= self.fraction < 1.0, "0 to below 1"),
            },
        )

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {"from_expert": ((), np.bool_)}

    @override
    def record(self, step: Transition) -> Mapping[str, Any]:
        return {"from_expert": step.source == ActionSource.HUMAN}

    @override
    def record_episode(self, episode: Episode) -> Mapping[str, Array]:
        return {"from_expert": np.full(len(episode), self.is_expert(episode))}

    def is_expert(self, episode: Episode) -> bool:
        """Return True if `experts` selects this recorded episode."""
        kind, _, value = self.experts.partition(" ")
        if kind == "success":
            return episode.success is True
        if kind == "source":
            return bool(episode.metadata.get("source") == value)
        return kind == "all" or float(episode.rewards.sum()) >= float(value)

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        return {"from_expert": rows.column("from_expert", rows.first)}


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


@dataclass(frozen=True)
class FutureGoals(Extra):
    """Extra `goals` (B, ...): value of an observation entry that the same episode reached at or after the next observation.

    The goal is drawn uniformly ("future" of Andrychowicz et al. 2017, "Hindsight Experience Replay", section 4.5). While an
    episode runs its future is unknown, and the goal is the value in the next observation.
    """

    unknown = 0.0
    entry: str
    """Name of the observation entry, such as "object_position"."""

    @override
    def columns(self, spec: EnvironmentSpec) -> Layout:
        return {"steps_left": ((), np.int32)}

    @override
    def complete(self, rows: StoredRows, steps: RowNumbers) -> Mapping[str, Array]:
        return {"steps_left": np.arange(len(steps))[::-1]}

    @override
    def sample(self, rows: SampledRows) -> Mapping[str, Array]:
        ahead = rows.generator.integers(rows.column("steps_left", rows.after(rows.following, -1)) + 1)
        return {"goals": rows.observations(rows.after(rows.following, ahead))[self.entry]}


def step_columns(spec: EnvironmentSpec, extras: Sequence[Extra], step: Transition) -> Mapping[str, Any]:
    """Return name -> value of every extra column for one step; values that the acting process recorded are kept."""
    if step.columns:
        return step.columns
    found: dict[str, Any] = {}
    for extra in extras:
        extra.require(spec, step)
        found |= extra.record(step) if extra.unknown is None else dict.fromkeys(extra.columns(spec), extra.unknown)
    return found


def recorded_columns(
    spec: EnvironmentSpec, extras: Sequence[Extra], lengths: Iterable[int], episodes: Iterable[Episode]
) -> dict[str, Array]:
    """Return name -> extra columns of whole episodes in RAM, T + 1 rows for T steps.

    Episodes are read only if an extra records something of them. Columns that `complete` fills later hold `Extra.unknown`.

    Args:
        spec: Spec of the environment.
        extras: Extras with the columns.
        lengths: Number of steps of each episode.
        episodes: The episodes.
    """
    count = sum(length + 1 for length in lengths if length)
    rows = {
        name: np.full((count, *shape), extra.unknown or 0, dtype)
        for extra in extras
        for name, (shape, dtype) in extra.columns(spec).items()
    }
    if reading := [extra for extra in extras if extra.unknown is None and extra.columns(spec)]:
        end = 0
        for episode in (episode for episode in episodes if len(episode)):
            for extra in reading:
                extra.require(spec, episode.transition(0))
                for name, values in extra.record_episode(episode).items():
                    rows[name][end : end + len(episode)] = values
            end += len(episode) + 1
    return rows
