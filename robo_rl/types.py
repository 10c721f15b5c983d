"""Data types of the line from simulator to report: episodes, transitions, batches, labels.

B batch, T steps, A action size. Arrays that are rewards, actions or states are float32; times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidEpisode, InvalidSetting
from robo_rl.spec.cost import PLAIN
from robo_rl.spec.environment import Observation

Array = npt.NDArray[Any]
Layout = Mapping[str, tuple[tuple[int, ...], Any]]
"""name -> shape and type of one row"""
StateDict = dict[str, Any]
"""Nested dict of a checkpoint; its leaves are numpy arrays, torch tensors or JSON values."""
Metrics = dict[str, float]
"""Scalars by TensorBoard tag, such as "train/critic_loss"."""
MEASURES = "measures"
"""In `info` of a step, and in the metadata of an episode: measures of the whole episode (robo_rl.evaluation.measures)."""
MEASURED_AT = "measured_at"
"""In `info` of a reset and a step: time of the measurement [s], by a monotonic clock of the robot."""
METADATA = "metadata"
"""In `info` of a reset: facts of the episode for its metadata, JSON values by name."""
DIVERGED = "sim_diverged"
"""The stop reason of an episode whose simulation left the realm of finite numbers."""
DISCARDED = "discarded"
"""The stop reason of an episode that a person does not want counted."""


class ActionSource(IntEnum):
    """Origin of the executed action."""

    POLICY = 0
    HUMAN = 1
    SCRIPT = 2
    GUARD = 3
    DATASET = 4
    IMAGINED = 5
    """The policy's, in a step that a world imagined (robo_rl.worlds)."""


AS_PROPOSED = (ActionSource.POLICY, ActionSource.IMAGINED)
"""Sources of actions that are the policy's own."""


@dataclass(frozen=True)
class Executed:
    """Executed command of a robot."""

    action: Array
    """(A,) in [-1, 1], as sent"""
    reasons: tuple[str, ...] = ()
    """Why a guard changed the command; empty if it passed"""


@dataclass(frozen=True)
class Transition:
    """One step. Learners train on `action`, the executed one; `policy_action` is the proposed one."""

    observation: Observation
    action: Array
    """(A,) in [-1, 1], or an int64 scalar."""
    reward: float
    next_observation: Observation
    terminated: bool
    """The task itself ended; only this stops bootstrapping."""
    truncated: bool
    """The episode was cut: time limit, operator, divergence, lost link."""
    policy_action: Array
    source: ActionSource = ActionSource.POLICY
    info: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Array] = field(default_factory=dict)
    """Columns that extras recorded of the step in the acting process (robo_rl.extras); empty before that."""


@dataclass(frozen=True)
class VectorTransition:
    """One step of N environments, which begin the next episode at once where one has ended."""

    observations: Mapping[str, Array]
    """name -> (N, ...), before the step"""
    actions: Array
    """(N, A) or (N,) as executed"""
    rewards: npt.NDArray[Any]
    """(N,)"""
    next_observations: Mapping[str, Array]
    """name -> (N, ...) that the step led to: the last ones of the episodes that ended"""
    following: Mapping[str, Array]
    """name -> (N, ...) in which the next step begins: the first ones of new episodes; else the same"""
    terminated: npt.NDArray[np.bool_]
    """(N,); the task itself ended"""
    truncated: npt.NDArray[np.bool_]
    """(N,); the episode was cut, and not terminated"""
    diverged: npt.NDArray[np.bool_]
    """(N,); of the truncated ones those of a diverged simulation, which teach nothing"""
    policy_actions: Array
    """(N, A) or (N,) as proposed"""
    sources: npt.NDArray[np.int8]
    """(N,) of ActionSource"""
    infos: Mapping[str, Any]
    """As Gymnasium's vector environments tell them; those of the last step of an episode are in `final_info`."""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """(N,); the episode ended with this step."""
        over: npt.NDArray[np.bool_] = self.terminated | self.truncated
        return over

    def transition(self, place: int) -> Transition:
        """Return the step of one environment."""
        infos = self.infos.get("final_info", {}) if self.ended[place] else self.infos
        return Transition(
            {name: values[place] for name, values in self.observations.items()},
            self.actions[place],
            float(self.rewards[place]),
            {name: values[place] for name, values in self.next_observations.items()},
            bool(self.terminated[place]),
            bool(self.truncated[place]),
            self.policy_actions[place],
            ActionSource(int(self.sources[place])),
            info_of(infos, place),
        )

    def instruction(self, place: int) -> str | None:
        """Return the task of the episode of an environment that goes on after the step, in words if there are any."""
        told: str | None = info_of(self.infos, place).get("instruction")
        return told


def info_of(infos: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return the info of one environment out of those of N."""
    found = {}
    for name, values in infos.items():
        if f"_{name}" in infos and infos[f"_{name}"][place] and not name.startswith("final_"):
            found[name] = info_of(values, place) if isinstance(values, Mapping) else values[place]
    return found


@dataclass(frozen=True)
class Episode:
    """A whole recorded episode, immutable; checks itself."""

    observations: Mapping[str, Array]
    """name -> (T+1, ...)"""
    actions: Array
    """(T, A) executed"""
    policy_actions: Array
    """(T, A) proposed"""
    rewards: npt.NDArray[np.float32]
    """(T,)"""
    sources: npt.NDArray[np.int8]
    """(T,) of ActionSource"""
    timestamps: npt.NDArray[np.float64]
    """(T+1,) [s] of a monotonic clock: when the observations were measured if a robot tells, else when they arrived"""
    terminated: bool
    truncated: bool
    stop_reason: str
    """"goal", "failure", "time_limit", "sim_diverged", "operator", "safety", "link_lost", "crash", ..."""
    success: bool | None
    """None if the environment has no notion of success."""
    seed: int | None
    spec_fingerprint: str
    instruction: str | None = None
    reward_terms: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """name -> (T,)"""
    costs: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """name -> (T,) constraint costs, 0 or more; a single array (T,) is taken as the cost "cost" """
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.costs, Mapping):
            object.__setattr__(self, "costs", {} if self.costs is None else {PLAIN: self.costs})
        steps = len(self.actions)
        expected = {f"observations.{name}": (value, steps + 1) for name, value in self.observations.items()}
        expected |= {f"reward_terms.{name}": (value, steps) for name, value in self.reward_terms.items()}
        expected |= {name: (getattr(self, name), steps) for name in ("policy_actions", "rewards", "sources")}
        expected |= {"timestamps": (self.timestamps, steps + 1)}
        expected |= {f"costs.{name}": (value, steps) for name, value in self.costs.items()}
        wrong = [f"{name}: {len(value)} rows, not {rows}" for name, (value, rows) in expected.items() if len(value) != rows]
        if wrong:
            raise InvalidEpisode("The arrays of an episode differ in length.", got="; ".join(wrong), allowed=f"{steps} actions")

    def __len__(self) -> int:
        return len(self.actions)

    def transition(self, step: int) -> Transition:
        """Return a step as it was taken; the last one counts as truncated unless it terminated."""
        is_last = step == len(self) - 1
        costs = {name: float(values[step]) for name, values in self.costs.items()}
        return Transition(
            observation={name: value[step] for name, value in self.observations.items()},
            action=self.actions[step],
            reward=float(self.rewards[step]),
            next_observation={name: value[step + 1] for name, value in self.observations.items()},
            terminated=self.terminated and is_last,
            truncated=not self.terminated and is_last,
            policy_action=self.policy_actions[step],
            source=ActionSource(int(self.sources[step])),
            info={"reward_terms": {name: float(values[step]) for name, values in self.reward_terms.items()}}
            | ({"costs": costs} if costs else {})
            | ({PLAIN: costs[PLAIN]} if PLAIN in costs else {}),
        )

    @property
    def undiscounted_return(self) -> float:
        """Sum of rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))

    @property
    def interventions(self) -> list[Intervention]:
        """Ranges of steps of a person, derived from `sources`."""
        human = np.concatenate(([False], self.sources == ActionSource.HUMAN, [False])).astype(np.int8)
        edges = np.flatnonzero(np.diff(human))
        return [Intervention(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True)
class Intervention:
    """Half-open range of steps of a person."""

    start: int
    stop: int


@dataclass(frozen=True)
class Batch:
    """Transitions with a leading axis B."""

    observations: Mapping[str, Array]
    actions: Array
    rewards: npt.NDArray[np.float32]
    """(B,) n-step sums if n_step > 1"""
    masks: npt.NDArray[np.float32]
    """(B,) 1 - terminated; 1 at a time limit"""
    discounts: npt.NDArray[np.float32]
    """(B,) gamma ** n of the bootstrap value"""
    next_observations: Mapping[str, Array]
    weights: npt.NDArray[np.float32]
    """(B,) importance of each row, 1 by default"""
    is_human: npt.NDArray[np.bool_]
    extras: Mapping[str, Array] = field(default_factory=dict)
    """name -> (B, ...) extras that the learner requests in its `Sampling` (robo_rl.extras)"""

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Windows:
    """Stretches of L consecutive steps, each within one episode, with a leading axis B."""

    observations: Mapping[str, Array]
    """name -> (B, L, ...), before each action"""
    actions: Array
    """(B, L, A), or (B, L) of discrete actions"""
    rewards: npt.NDArray[np.float32]
    """(B, L)"""
    valid: npt.NDArray[np.bool_]
    """(B, L) False beyond the episode, at repetitions of its first or last step"""

    def __len__(self) -> int:
        return len(self.valid)


@dataclass(frozen=True)
class Labels:
    """Rewards of K steps, or scores of K pictures; a missing one is missing, not zero.

    Raises InvalidSetting for arrays that differ in length or type, and for a valid value that is not finite.
    """

    values: Array
    """(K,) float32; float64 on the way to a sum. Meaningless if a label is missing."""
    valid: npt.NDArray[np.bool_]
    """(K,) False if a label is missing"""

    def __post_init__(self) -> None:
        values, valid = self.values, self.valid
        if values.shape != valid.shape or values.ndim != 1:
            raise InvalidSetting(
                "Values and validity of labels differ.", got=f"{values.shape} and {valid.shape}", allowed="(K,)"
            )
        if values.dtype not in (np.float32, np.float64) or valid.dtype != np.bool_:
            raise InvalidSetting(
                "Labels are of a wrong type.", got=f"{values.dtype} and {valid.dtype}", allowed="float32 or float64, and bool"
            )
        if not np.isfinite(values[valid]).all():
            raise InvalidSetting("A valid label is not finite.", got=values, fix="mark missing labels as not valid")

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def finite(cls, values: npt.ArrayLike, valid: npt.ArrayLike = True, dtype: type[np.floating[Any]] = np.float32) -> Labels:
        """Return labels that are 0 and missing if not `valid`, or if not finite in the type they are given."""
        with np.errstate(over="ignore"):
            found = np.asarray(values).astype(dtype)
        present = np.isfinite(found) & valid
        return cls(np.where(present, found, dtype(0)), present)

    @classmethod
    def missing(cls, count: int) -> Labels:
        """Return `count` labels that are all missing."""
        return cls(np.zeros(count, np.float32), np.zeros(count, np.bool_))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Return the labels of one part or more as one, in their order."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.valid for part in parts]))

    @property
    def or_nan(self) -> npt.NDArray[np.float64]:
        """(K,) float64, NaN if a label is missing."""
        return np.where(self.valid, self.values.astype(np.float64), np.nan)

    def by(self, identity: tuple[str, str], prompt_hash: str = "none", confidence: Array | None = None) -> RewardLabels:
        """Return these labels with their provenance: the identity of the model, and a hash of its prompt."""
        return RewardLabels(self.values, self.valid, *identity, prompt_hash, confidence)


@dataclass(frozen=True)
class RewardLabels(Labels):
    """Rewards of a model for one episode, stored next to the recorded ones."""

    model: str
    weights_hash: str
    prompt_hash: str
    confidence: npt.NDArray[np.float32] | None = None
    """(T,) in [0, 1]"""


@dataclass(frozen=True)
class StepRewards:
    """Rewards of K steps of environments under way, and the model's view of the end of the task."""

    labels: Labels
    ends: npt.NDArray[np.bool_]
    """(K,) True if the model sees the task completed with a step: learnt from as terminated; later steps of the episode have no
    label."""


@dataclass(frozen=True)
class Preference:
    """A comparison of two segments (episode id, start, stop)."""

    first: tuple[str, int, int]
    second: tuple[str, int, int]
    label: float | Literal["skip"]
    """0 first is better, 1 second is better, 0.5 equal, "skip" cannot tell"""
    rater: str
    kind: Literal["human", "model", "oracle"]
