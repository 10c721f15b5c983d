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
"""Layout of stored arrays: name -> (shape, type) of one row."""
StateDict = dict[str, Any]
"""Nested dict of a checkpoint; its leaves are numpy arrays, torch tensors or JSON values."""
Metrics = dict[str, float]
"""Scalars for the log by TensorBoard tag, such as "train/critic_loss"."""
MEASURES = "measures"
"""Key of measures of the whole episode, in `info` of its last step and in the episode's metadata
(robo_rl.evaluation.measures)."""
MEASURED_AT = "measured_at"
"""Key in `info` of a reset or step: time at which the observation was measured [s], by a monotonic clock of the robot."""
METADATA = "metadata"
"""Key in `info` of a reset: JSON values by name, which are stored in the metadata of the episode."""
DIVERGED = "sim_diverged"
"""Stop reason of an episode whose simulation produced NaN or infinity."""
DISCARDED = "discarded"
"""Stop reason of an episode that a person rejected; it is not counted."""


class ActionSource(IntEnum):
    """Who chose an executed action: the policy, a person, a script, a guard, ..."""

    POLICY = 0
    HUMAN = 1
    SCRIPT = 2
    GUARD = 3
    DATASET = 4
    IMAGINED = 5
    """The policy chose the action, in a step that a world model imagined (robo_rl.worlds)."""


AS_PROPOSED = (ActionSource.POLICY, ActionSource.IMAGINED)
"""Sources that mean that the policy itself chose the action."""


@dataclass(frozen=True)
class Executed:
    """Command that a robot executed, and why it differs from the wanted one."""

    action: Array
    """(A,) in [-1, 1], as sent to the robot"""
    reasons: tuple[str, ...] = ()
    """Reasons for which the guard changed the command; empty if the command passed unchanged"""


@dataclass(frozen=True)
class Transition:
    """One step of an environment.

    Learners train on `action`, the executed action. `policy_action` is the action that the policy proposed.
    """

    observation: Observation
    action: Array
    """Executed action: (A,) in [-1, 1], or an int64 scalar."""
    reward: float
    next_observation: Observation
    terminated: bool
    """True if the task itself ended with this step; only then there is no bootstrap value."""
    truncated: bool
    """True if the episode was cut after this step: time limit, operator, divergence, lost link."""
    policy_action: Array
    """Action that the policy proposed, in the form of `action`."""
    source: ActionSource = ActionSource.POLICY
    info: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, Array] = field(default_factory=dict)
    """Values of the learner's extra columns (robo_rl.extras), recorded in the acting process; empty before that."""


@dataclass(frozen=True)
class VectorTransition:
    """One step of N environments. An environment whose episode ends begins the next episode in the same step."""

    observations: Mapping[str, Array]
    """name -> (N, ...) observations before the step"""
    actions: Array
    """(N, A) or (N,) executed actions"""
    rewards: npt.NDArray[Any]
    """(N,) rewards of the environments"""
    next_observations: Mapping[str, Array]
    """name -> (N, ...) observations after the step; for an episode that ended, its last observation"""
    following: Mapping[str, Array]
    """name -> (N, ...) observations from which the next step starts: for an episode that ended, the first observation of the
    new episode; otherwise equal to `next_observations`"""
    terminated: npt.NDArray[np.bool_]
    """(N,) True if the task itself ended"""
    truncated: npt.NDArray[np.bool_]
    """(N,) True if the episode was cut and did not terminate"""
    diverged: npt.NDArray[np.bool_]
    """(N,) True if the episode was cut because its simulation diverged; nothing is learned from such a step"""
    policy_actions: Array
    """(N, A) or (N,) actions that the policy proposed"""
    sources: npt.NDArray[np.int8]
    """(N,) values of ActionSource: who chose each action"""
    infos: Mapping[str, Any]
    """`infos` of Gymnasium's vector environment; those of the last step of an episode are in `infos["final_info"]`"""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """(N,) True if the episode ended with this step."""
        over: npt.NDArray[np.bool_] = self.terminated | self.truncated
        return over

    def transition(self, place: int) -> Transition:
        """Return the step of environment `place`, counted from 0."""
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
        """Return the task in words of the episode that runs in environment `place` after the step, or None."""
        told: str | None = info_of(self.infos, place).get("instruction")
        return told


def info_of(infos: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return the `info` of environment `place` from the `infos` of Gymnasium's vector environment.

    Entries that the environment did not report (their mask `_name` is False) and `final_...` entries are left out.
    """
    found = {}
    for name, values in infos.items():
        if f"_{name}" in infos and infos[f"_{name}"][place] and not name.startswith("final_"):
            found[name] = info_of(values, place) if isinstance(values, Mapping) else values[place]
    return found


@dataclass(frozen=True)
class Episode:
    """A whole recorded episode of T steps, which cannot be changed: T + 1 observations, T actions, rewards and so on.

    Raises InvalidEpisode if the arrays differ in length.
    """

    observations: Mapping[str, Array]
    """name -> (T+1, ...), the last one after the last step"""
    actions: Array
    """(T, A), or (T,) of discrete actions: executed actions"""
    policy_actions: Array
    """(T, A) or (T,) actions that the policy proposed"""
    rewards: npt.NDArray[np.float32]
    """(T,) rewards of the environment"""
    sources: npt.NDArray[np.int8]
    """(T,) values of ActionSource: who chose each action"""
    timestamps: npt.NDArray[np.float64]
    """(T+1,) times of the observations [s] by a monotonic clock: of the measurement if a robot reports it, otherwise of the
    arrival"""
    terminated: bool
    """True if the task itself ended with the last step."""
    truncated: bool
    """True if the episode was cut after the last step."""
    stop_reason: str
    """"goal", "failure", "time_limit", "sim_diverged", "operator", "safety", "link_lost", "crash", ..."""
    success: bool | None
    """True or False if the environment reports success, None if it has no success criterion."""
    seed: int | None
    """Seed of the reset that began the episode; None if unknown."""
    spec_fingerprint: str
    """`EnvironmentSpec.fingerprint` of the environment."""
    instruction: str | None = None
    """Task in words; None if there are none."""
    reward_terms: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """Name of a term of the reward -> its values (T,)."""
    costs: Mapping[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    """Name of a constraint cost -> (T,), 0 or more; a single array (T,) is stored under the name "cost"."""
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
        """Return step number `step`, counted from 0.

        The last step of an episode that did not terminate counts as truncated.
        """
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
        """Sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))

    @property
    def interventions(self) -> list[Intervention]:
        """Ranges of steps in which a person acted instead of the policy, derived from `sources`."""
        human = np.concatenate(([False], self.sources == ActionSource.HUMAN, [False])).astype(np.int8)
        edges = np.flatnonzero(np.diff(human))
        return [Intervention(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True)
class Intervention:
    """Range of steps of an episode in which a person acted: `start` included, `stop` excluded."""

    start: int
    stop: int


@dataclass(frozen=True)
class Batch:
    """B transitions for one or more gradient steps of a learner; every array has a leading axis B."""

    observations: Mapping[str, Array]
    """name -> (B, ...) observations before the action"""
    actions: Array
    """(B, A) or (B,) executed actions"""
    rewards: npt.NDArray[np.float32]
    """(B,) rewards; discounted sums of up to n rewards if n_step > 1"""
    masks: npt.NDArray[np.float32]
    """(B,) 0 if the task terminated, otherwise 1, also at a time limit; factor of the bootstrap value"""
    discounts: npt.NDArray[np.float32]
    """(B,) discount ** (number of rewards in the sum); factor of the bootstrap value"""
    next_observations: Mapping[str, Array]
    """name -> (B, ...) observations of the bootstrap value"""
    weights: npt.NDArray[np.float32]
    """(B,) weight of each row in the loss, 1 by default"""
    sources: npt.NDArray[np.int8]
    """(B,) values of ActionSource: who chose the action, and whether a world imagined the step"""
    extras: Mapping[str, Array] = field(default_factory=dict)
    """name -> (B, ...) further data that the learner requests in its `Sampling` (robo_rl.extras)"""

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def is_human(self) -> npt.NDArray[np.bool_]:
        """(B,) True if a person chose the action."""
        chosen: npt.NDArray[np.bool_] = self.sources == ActionSource.HUMAN
        return chosen


@dataclass(frozen=True)
class Windows:
    """B stretches of L consecutive recorded steps; each stretch lies within one episode."""

    observations: Mapping[str, Array]
    """name -> (B, L, ...) observations before each action"""
    actions: Array
    """(B, L, A), or (B, L) of discrete actions: executed actions"""
    rewards: npt.NDArray[np.float32]
    """(B, L) rewards of the steps"""
    valid: npt.NDArray[np.bool_]
    """(B, L) False beyond the ends of the episode, where its first or last step is repeated"""

    def __len__(self) -> int:
        return len(self.valid)


@dataclass(frozen=True)
class Labels:
    """Rewards of K steps, or scores of K pictures, of which some may be missing.

    A missing label is marked in `valid`; it is not zero. Raises InvalidSetting for arrays that differ in length or have a wrong
    type, and for a valid value that is not finite.
    """

    values: Array
    """(K,) float32, or float64 for intermediate results; meaningless where `valid` is False"""
    valid: npt.NDArray[np.bool_]
    """(K,) False if the label is missing"""

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
        """Return labels of type `dtype`; those that are not `valid` or not finite are missing, with the value 0.

        Args:
            values: (K,) labels.
            valid: (K,), or one value for all: False for a missing label.
            dtype: Type of the result. A value that overflows in this type is missing.
        """
        with np.errstate(over="ignore"):
            found = np.asarray(values).astype(dtype)
        present = np.isfinite(found) & valid
        return cls(np.where(present, found, dtype(0)), present)

    @classmethod
    def missing(cls, count: int) -> Labels:
        """Return `count` missing labels."""
        return cls(np.zeros(count, np.float32), np.zeros(count, np.bool_))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Join several labels into one object, in order; `parts` must not be empty."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.valid for part in parts]))

    @property
    def or_nan(self) -> npt.NDArray[np.float64]:
        """(K,) float64 values, NaN for missing labels."""
        return np.where(self.valid, self.values.astype(np.float64), np.nan)

    def by(self, identity: tuple[str, str], prompt_hash: str = "none", confidence: Array | None = None) -> RewardLabels:
        """Return these labels together with the name and hash of the model that made them.

        Args:
            identity: (name, hash of the weights) of the reward model that made the labels.
            prompt_hash: Hash of its prompt; "none" without a prompt.
            confidence: (K,) in [0, 1], if the model reports it.
        """
        return RewardLabels(self.values, self.valid, *identity, prompt_hash, confidence)


@dataclass(frozen=True)
class RewardLabels(Labels):
    """Rewards of a model for the T steps of one episode, with the model's name and hashes.

    Stored beside the recorded rewards.
    """

    model: str
    """Name of the reward model."""
    weights_hash: str
    """Hash of everything in the model that its labels depend on."""
    prompt_hash: str
    """Hash of the prompt; "none" without a prompt."""
    confidence: npt.NDArray[np.float32] | None = None
    """(T,) confidence of the model in each label, in [0, 1]; None if it reports none"""


@dataclass(frozen=True)
class StepRewards:
    """Rewards of K steps in running environments by a model, and the steps in which it sees the task completed."""

    labels: Labels
    ends: npt.NDArray[np.bool_]
    """(K,) True if the model considers the task completed with the step. Such a step is learned from as terminated; later steps
    of the episode have no label."""


@dataclass(frozen=True)
class Preference:
    """A rater's answer which of two segments of episodes is better."""

    first: tuple[str, int, int]
    """(episode id, start, stop) of the first segment; `stop` is excluded"""
    second: tuple[str, int, int]
    """(episode id, start, stop) of the second segment; `stop` is excluded"""
    label: float | Literal["skip"]
    """0 if the first segment is better, 1 if the second is better, 0.5 if they are equal, "skip" if the rater cannot tell"""
    rater: str
    """Name of the rater."""
    kind: Literal["human", "model", "oracle"]
