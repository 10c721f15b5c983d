"""Rewards of a StepScorer while a policy is trained, in place of the environment's own rewards.

`OnlineReward` combines a reward and an environment; `OnlineScoring` collects steps, scores them in batches, counts missing
rewards, and is saved. Neither reads the environment's own reward or success.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, RewardUnavailable, require_allowed
from robo_rl.protocols.rewards import DelayedRewards, Relabelling
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.scorer import StepScorer
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.spec.environment import EnvironmentSpec, Observation, ObservationSpec
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Episode, Labels, Metrics, StateDict, StepRewards

RECENT = 100  # episodes of each mean, as for the environment's own return (robo_rl.runs.observer)


class EpisodeSums:
    """Sums of named values over each episode, and their means over the newest 100 ended episodes."""

    def __init__(self) -> None:
        self._running: dict[int, dict[str, float]] = {}
        self._recent: dict[str, deque[float]] = {}

    @property
    def means(self) -> Metrics:
        """Name -> mean over the newest 100 ended episodes of the sum over an episode; empty before the first has ended."""
        return {name: float(np.mean(sums)) for name, sums in self._recent.items()}

    def add(self, steps: Steps, values: Mapping[str, npt.NDArray[np.float64]]) -> None:
        """Add values of K steps, name -> (K,); NaN means missing and adds nothing."""
        order = np.argsort(steps.index, kind="stable")
        known = {name: np.where(np.isnan(each), 0.0, each)[order] for name, each in values.items()}
        index, ended = steps.index[order], steps.ended[order]
        bounds = np.flatnonzero(np.diff(index).astype(np.bool_) | ended[:-1]) + 1
        for start, stop in pairwise([0, *bounds.tolist(), len(order)] if len(order) else ()):
            number = int(index[start])
            self._add(number, {name: float(each[start:stop].sum()) for name, each in known.items()})
            if ended[stop - 1]:
                self._finish(number)

    def restart(self) -> None:
        """Forget the sums of the running episodes."""
        self._running.clear()

    def _add(self, index: int, sums: Mapping[str, float]) -> None:
        running = self._running.setdefault(index, {})
        for name, value in sums.items():
            running[name] = running.get(name, 0.0) + value

    def _finish(self, index: int) -> None:
        for name, value in self._running.pop(index).items():
            self._recent.setdefault(name, deque(maxlen=RECENT)).append(value)

    def state_dict(self) -> StateDict:
        """Return the sums of running episodes and of the newest ended ones."""
        return {
            "running": {str(index): dict(sums) for index, sums in self._running.items()},
            "recent": {name: list(sums) for name, sums in self._recent.items()},
        }

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the value of `state_dict`."""
        self._running = {int(index): dict(sums) for index, sums in state["running"].items()}
        self._recent = {name: deque(sums, maxlen=RECENT) for name, sums in state["recent"].items()}


MOST_MISSING = 1000  # steps in a row without a label; an endpoint that is down should not cost a night of learning nothing


class OnlineScoring(DelayedRewards):
    """Scores the steps of N running environments by a StepScorer, some time after they were taken.

    Steps are collected until there are enough for one call (`StepScorer.is_due`). The whole state is saved, so that after a
    resume the same steps are scored in the same calls.
    """

    def __init__(self, reward: StepScorer, place: Place, seen: EnvironmentSpec | None = None) -> None:
        """Start without steps.

        Args:
            reward: Scorer of steps.
            place: Context of the reward.
            seen: Spec of the environment, for entries with a history, of which the reward gets only the newest observation;
                None for `place.spec`.
        """
        self._seen = (seen or place.spec).observation
        self._reward, self._place, self.repeats_itself = reward, place, reward.repeats_itself
        self._queue, self._sums = StepQueue(reward.entries(place), reward.keep), EpisodeSums()
        self._over: set[int] = set()
        """Environments with a task that the reward has seen completed"""
        self._steps = self._missing = self._missing_in_a_row = 0
        reward.start(place)

    @property
    @override
    def is_due(self) -> bool:
        return self._reward.is_due(self._queue)

    @property
    @override
    def relabelling(self) -> Relabelling | None:
        return self._reward.relabelling(self._place)

    @property
    @override
    def metrics(self) -> Metrics:
        sums = {f"reward/{name}": mean for name, mean in self._sums.means.items()}
        return {**sums, "reward/missing": self._missing / max(self._steps, 1), **self._reward.metrics(self._place)}

    @override
    def restart(self) -> None:
        self._queue.clear()
        self._sums.restart()
        self._over.clear()

    @override
    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        self._queue.begin(index, self._seen.newest(observation), instruction)

    @override
    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        seen = self._seen.newest(observation)
        self._queue.add(index, seen, action=action, reward=reward, terminated=terminated, truncated=truncated)

    @override
    def add_all(
        self, observations: Mapping[str, Array], *, actions: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        seen = self._seen.newest(observations)
        self._queue.add_all(seen, actions=actions, rewards=rewards, terminated=terminated, truncated=truncated)

    @override
    def score(self) -> StepRewards:
        steps = self._queue.take()
        if not len(steps):
            return StepRewards(Labels.missing(0), np.zeros(0, np.bool_))
        scores = timed("score", lambda: self._reward.score_steps(steps, self._place))
        ends = np.zeros(len(steps), np.bool_) if scores.ends is None else scores.ends
        is_after = self._after_an_end(steps, ends)
        weight = 1.0 if self._reward.is_weighted else self._place.weight
        total = weight * np.where(scores.labels.valid, scores.labels.values, 0.0)
        labels = Labels.finite(total, scores.labels.valid & ~is_after)
        self._count(steps, scores, np.where(labels.valid, total, np.nan), is_after)
        return StepRewards(labels, ends & labels.valid)

    def _after_an_end(self, steps: Steps, ends: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return (K,) True for steps after the task was completed in the reward's view; such steps get no label."""
        found = np.zeros(len(steps), np.bool_)
        if ends.any() or self._over:
            for row, index in enumerate(steps.index.tolist()):
                if steps.begins[row]:
                    self._over.discard(index)
                found[row] = index in self._over
                if ends[row]:
                    self._over.add(index)
        return found

    def _count(self, steps: Steps, scores: StepScores, paid: npt.NDArray[np.float64], is_after: npt.NDArray[np.bool_]) -> None:
        terms = {**({} if self._reward.is_weighted else {"model_return": paid}), **scores.terms}
        self._sums.add(steps, {name: np.where(is_after, np.nan, values) for name, values in terms.items()})
        valid = np.isfinite(paid)[~is_after]
        self._steps += len(valid)
        self._missing += int((~valid).sum())
        last = np.flatnonzero(valid)
        self._missing_in_a_row = len(valid) - 1 - int(last[-1]) if len(last) else self._missing_in_a_row + len(valid)
        if self._missing_in_a_row >= MOST_MISSING:
            raise RewardUnavailable(
                f"The reward {self._reward.identity[0]} has given no usable answer for {self._missing_in_a_row} steps.",
                got=f"{self._missing} of {self._steps} steps without a label",
                allowed=f"less than {MOST_MISSING} in a row",
                fix=self._reward.remedy,
            )

    @override
    def state_dict(self) -> StateDict:
        return {
            "queue": self._queue.state_dict(),
            "memory": self._place.memory.state_dict(),
            "sums": self._sums.state_dict(),
            "over": sorted(self._over),
            "counts": [self._steps, self._missing, self._missing_in_a_row],
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._queue.load_state_dict(state["queue"])
        self._place.memory.load_state_dict(state["memory"])
        self._sums.load_state_dict(state["sums"])
        self._over = set(state["over"])
        self._steps, self._missing, self._missing_in_a_row = state["counts"]


@dataclass(frozen=True)
class OnlineReward:
    """Reward model applied to an environment: it replaces the environment's own reward in a training.

    Implements `robo_rl.protocols.rewards.OnlineRewards`.
    """

    model: StepScorer
    """Reward model that scores the steps."""
    spec: EnvironmentSpec
    """Spec of the environment, including entries that only the reward reads."""
    weight: float = 1.0
    """Factor by which the rewards are multiplied."""
    discount: float | None = None
    """Discount of the learner; None if it has none."""

    def __post_init__(self) -> None:
        require_allowed(self, {"weight": (bool(np.isfinite(self.weight)), "a finite number")})
        self.model.require(self.place)

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name and hash of the reward, its factor, and all other values that the rewards depend on."""
        name, weights = self.model.identity
        return {"model": name, "weights": weights, "weight": self.weight, **self.model.facts(self.place)}

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec without the entries that only the reward reads."""
        return without(spec, self.model.hidden())

    def running(self, environments: int) -> DelayedRewards:
        """Return an object that scores the steps of `environments` environments.

        Raises InvalidSetting if only one is supported.
        """
        place = self.place
        if environments != 1 and self.model.relabelling(place) is not None:
            raise InvalidSetting(
                "A reward that is learned from returns is for one environment.",
                got=f"{environments} environments",
                allowed="a learner that acts in one and keeps single steps: sac",
                fix="set algorithm to sac",
            )
        return OnlineScoring(self.model, place, self.spec)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yield a recorded episode with these rewards, in parts that end at steps without a label.

        A part before a gap counts as truncated: its last step is bootstrapped, and no sum of rewards crosses the gap. Steps
        after the completion of the task are left out.

        spec: spec of the policy; other entries are left out.
        """
        self.model.require_demonstrations()
        return self._pieces(episode, spec)

    def _pieces(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        if missing := [name for name in self.model.entries(self.place) if name not in episode.observations]:
            raise InvalidSetting(
                f"A recorded episode lacks entries that the reward {self.model.identity[0]} reads.",
                got=", ".join(episode.observations),
                allowed=", ".join(missing),
                fix="record in the environment of the recipe, with the arguments of its reward",
            )
        running = self.running(1)
        running.begin(0, _at(episode, 0), episode.instruction)
        for step in range(1, len(episode) + 1):
            is_last = step == len(episode)
            terminated = is_last and episode.terminated
            running.add(
                0,
                _at(episode, step),
                action=episode.actions[step - 1],
                reward=float(episode.rewards[step - 1]),
                terminated=terminated,
                truncated=is_last and not terminated,
            )
        found = running.score()
        for start, stop in _stretches(found.labels.valid):
            terminated = bool(found.ends[stop - 1]) or (episode.terminated and stop == len(episode))
            yield _piece(replace(episode, rewards=found.labels.values), slice(start, stop), spec, terminated=terminated)

    @property
    def place(self) -> Place:
        """Context in which the reward is computed, with an empty memory."""
        return Place(self.spec.single, self.discount, self.weight)


def without(spec: EnvironmentSpec, hidden: Sequence[str]) -> EnvironmentSpec:
    """Return a spec without the observation entries in `hidden`."""
    return replace(
        spec, observation=ObservationSpec(tuple(each for each in spec.observation.arrays if each.name not in hidden))
    )


def _at(episode: Episode, step: int) -> StateDict:
    return {name: values[step] for name, values in episode.observations.items()}


def _stretches(valid: npt.NDArray[np.bool_]) -> Sequence[tuple[int, int]]:
    """Return the half-open ranges of consecutive valid steps."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], valid.astype(np.int8), [0]))))
    return [*pairwise(edges.tolist())][::2]


def _piece(episode: Episode, steps: slice, spec: EnvironmentSpec, *, terminated: bool) -> Episode:
    """Return a range of steps of an episode, with the observation entries of `spec`."""
    pictures = slice(steps.start, steps.stop + 1)
    return replace(
        episode,
        observations={name: episode.observations[name][pictures] for name in spec.observation},
        actions=episode.actions[steps],
        policy_actions=episode.policy_actions[steps],
        rewards=episode.rewards[steps],
        reward_terms={name: terms[steps] for name, terms in episode.reward_terms.items()},
        costs={name: costs[steps] for name, costs in episode.costs.items()},
        sources=episode.sources[steps],
        timestamps=episode.timestamps[pictures],
        terminated=terminated,
        truncated=not terminated,
        spec_fingerprint=spec.single.fingerprint,
    )
