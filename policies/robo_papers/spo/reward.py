"""The reward `spo`: the share of recent episodes that an episode beats, by a rater."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.spo.win_rates import WinRates
from robo_rl.entry_points import load
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.rewards import Relabelling
from robo_rl.rewards.preferences.raters import Rater, Segment
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.settings import settings_as
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import ActionSource, Array, Batch, Episode, Labels, Metrics, RewardLabels, StateDict

MOST_EPISODES = 2**24
"""Largest number of an episode: numbers stand in place of rewards in a memory, which is exact up to this integer."""


@dataclass(frozen=True)
class SelfPlayReward(StepReward):
    """Reward of SPO at the last step of an episode: the share of recent episodes that it beats, by any rater."""

    name: ClassVar[str] = "spo"
    learns_in_a_run: ClassVar[bool] = True

    rater: str = "measures"
    """Rater that compares whole episodes: entry point of `robo_rl.raters`."""
    rater_settings: Mapping[str, Any] = field(default_factory=dict)
    queue: int = 32
    """Number of newest episodes that are opponents. A long queue holds old policies; preferences in a circle are then not
    averaged."""
    opponents: int = 8
    """Opponents drawn for each episode; 0 for all. Each is one comparison, which a person or a model charges for."""
    relabels: bool = False
    """For learners with a replay memory: share the worth over the steps, and compare stored episodes again with recent ones,
    one at each update."""
    pictures: bool = False
    """True to let the rater see pictures."""
    seed: int = 0
    """Seed by which opponents are drawn."""

    def __post_init__(self) -> None:
        least = {"queue": 1, "opponents": 0, "seed": 0}
        require_allowed(self, {name: (getattr(self, name) >= count, f"{count} or more") for name, count in least.items()})
        _ = self.judge

    @cached_property
    def judge(self) -> Rater:
        """The rater, made from the settings; raises UnknownName, InvalidSetting."""
        settings = dict(self.rater_settings)
        found: Rater = settings_as(load("raters", self.rater), settings, source=f"the rater {self.rater}")
        return found

    @override
    def facts(self, place: Place) -> Mapping[str, str | float]:
        rater, settings = self.judge.identity
        return {"rater": rater, "rater_settings": settings}

    @override
    def entries(self, place: Place) -> list[str]:
        arrays = place.spec.observation.arrays
        return [array.name for array in arrays if self.pictures or array.role != "image"]

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True at once; False until an episode ends if episodes are relabelled, because these are stored as a whole."""
        return len(waiting) > 0 and not self.relabels

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting: recorded episodes are no opponents of a policy's own."""
        raise InvalidSetting(
            f"The reward {self.name} compares a policy with itself, and has none for recorded episodes.",
            got="demonstrations",
            fix="set demonstrations.episodes to 0, or use a preference reward (robo-rl reward fit preference)",
        )

    def label(self, episode: Episode) -> RewardLabels:
        """Return only missing labels, because there is no policy to compare with."""
        return Labels.missing(len(episode)).by(self.identity)

    @override
    def relabelling(self, place: Place) -> Relabelling | None:
        return self._relabelled(place) if self.relabels else None

    def _relabelled(self, place: Place) -> RelabelledEpisodes:
        return place.memory.part("episodes", lambda: RelabelledEpisodes(self._wins(place), place.weight))

    def _wins(self, place: Place) -> WinRates[StateDict]:
        spec, judge = place.spec, self.judge

        def beats(one: StateDict, other: StateDict) -> float | None:
            first, second = (segment_of(spec, each) for each in (one, other))
            found = judge.compare(first, second)
            return None if found == "skip" else 1.0 - float(found)

        make = lambda: WinRates[StateDict](beats, queue=self.queue, opponents=self.opponents, seed=self.seed)  # noqa: E731
        return place.memory.part("wins", make)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the worth of an episode at its last step and 0 before; if it will be relabelled, the episode's number."""
        wins, running = self._wins(place), place.memory.part("running", RunningEpisodes)
        values, worths = np.zeros(len(steps)), np.full(len(steps), np.nan)
        for row, index in enumerate(steps.index.tolist()):
            running.add(index, steps, row)
            if steps.ended[row]:
                episode = running.finish(index)
                worths[row] = values[row] = wins.worth(episode)
                wins.push(episode)
                if self.relabels:
                    length = len(episode["actions"])
                    values[max(0, row + 1 - length) : row + 1] = self._relabelled(place).add(episode, worths[row])
        if self.relabels:  # steps of an episode that is not whole
            values = np.where(running.is_whole(steps), values, np.nan)
        return StepScores(Labels.finite(values, dtype=np.float64), {"win_rate": worths + 0.5})

    @property
    def is_weighted(self) -> bool:  # type: ignore[override]
        """True if episodes are relabelled, because numbers of episodes are not to be multiplied."""
        return self.relabels

    @override
    def metrics(self, place: Place) -> Metrics:
        return {"reward/comparisons": float(self._wins(place).comparisons)}


class RunningEpisodes(Stateful):
    """Collects the steps of the running episode of each environment."""

    def __init__(self) -> None:
        self._steps: dict[str, list[StateDict]] = {}

    def add(self, index: int, steps: Steps, row: int) -> None:
        """Add the step in row `row` of `steps` to the episode of environment `index`."""
        if steps.begins[row]:
            first = {name: np.array(values[row]) for name, values in steps.before.items()}
            self._steps[str(index)] = [{"first": first, "instruction": steps.instructions[row]}]
        after = {name: np.array(values[row]) for name, values in steps.after.items()}
        step = {"after": after, "action": np.array(steps.actions[row]), "reward": float(steps.rewards[row])}
        self._steps[str(index)].append(step | {"terminated": bool(steps.terminated[row])})

    def finish(self, index: int) -> StateDict:
        """Return the arrays of an episode that ended, for `segment_of`."""
        first, *rest = self._steps.pop(str(index))
        observations = {
            name: np.stack([value, *(step["after"][name] for step in rest)]) for name, value in first["first"].items()
        }
        return {
            "observations": observations,
            "actions": np.stack([step["action"] for step in rest]),
            "rewards": np.array([step["reward"] for step in rest], np.float32),
            "terminated": rest[-1]["terminated"],
            "instruction": first["instruction"],
        }

    def is_whole(self, steps: Steps) -> npt.NDArray[np.bool_]:
        """Return (K,) True for those steps whose episode has ended among them."""
        ended = [bool(steps.ended[row:][steps.index[row:] == index].any()) for row, index in enumerate(steps.index.tolist())]
        return np.array(ended, np.bool_)

    @override
    def state_dict(self) -> StateDict:
        return {"steps": self._steps}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._steps = {index: list(steps) for index, steps in state["steps"].items()}


def segment_of(spec: EnvironmentSpec, arrays: StateDict) -> Segment:
    """Return an episode as raters see it: they know whether it terminated, not whether it succeeded."""
    steps = len(arrays["actions"])
    period = spec.action.control_period or 1.0
    terminated = bool(arrays["terminated"])
    episode = Episode(
        observations=arrays["observations"],
        actions=arrays["actions"],
        policy_actions=arrays["actions"],
        rewards=arrays["rewards"],
        sources=np.full(steps, ActionSource.POLICY, np.int8),
        timestamps=np.arange(steps + 1, dtype=np.float64) * np.float64(period),
        terminated=terminated,
        truncated=not terminated,
        stop_reason="goal" if terminated else "time_limit",
        success=None,
        seed=None,
        spec_fingerprint=spec.single.fingerprint,
        instruction=arrays["instruction"],
    )
    return Segment(episode, 0, steps)


class RelabelledEpisodes(Stateful):
    """Episodes in a replay memory with their present worth, which is recomputed as the policy changes.

    Implements `robo_rl.protocols.rewards.Relabelling`.
    """

    def __init__(self, wins: WinRates[StateDict], weight: float) -> None:
        self._wins, self._weight, self._capacity = wins, weight, 0
        self._episodes: list[StateDict] = []
        self._paid: list[float] = []
        """Reward of each step of an episode"""
        self._first = self._steps = self._next = 0

    def reserve(self, steps: int) -> None:
        """Allocate room for the episodes of the newest `steps` steps."""
        self._capacity = steps

    def add(self, episode: StateDict, worth: float) -> float:
        """Store an episode with its worth and return its number; the oldest leave."""
        number = self._first + len(self._episodes)
        if number >= MOST_EPISODES:
            raise InvalidSetting("There are too many episodes to relabel.", got=number, allowed=MOST_EPISODES)
        length = len(episode["actions"])
        self._episodes.append(episode)
        self._paid.append(0.0 if np.isnan(worth) else worth / length)
        self._steps += length
        while self._steps > self._capacity + length:  # one more than the memory may still hold
            self._steps -= len(self._episodes.pop(0)["actions"])
            self._paid.pop(0)
            self._first += 1
        return float(number)

    def update(self) -> Metrics:
        """Compare the next stored episode with recent ones, and store its new worth.

        Each call takes another episode in turn.
        """
        if not self._episodes:
            return {}
        self._next = (self._next + 1) % len(self._episodes)
        worth = self._wins.worth(self._episodes[self._next])
        if not np.isnan(worth):
            self._paid[self._next] = worth / len(self._episodes[self._next]["actions"])
        return {}

    def relabel(self, batch: Batch) -> Batch:
        """Replace the episodes' numbers in a batch by their present worth, shared over their steps."""
        numbers = batch.rewards.astype(np.int64) - self._first
        paid = np.asarray(self._paid, np.float32)
        rewards: Array = np.where(numbers >= 0, paid[np.clip(numbers, 0, None)], np.float32(0.0))
        return replace(batch, rewards=np.float32(self._weight) * rewards)

    @override
    def state_dict(self) -> StateDict:
        return {"episodes": list(self._episodes), "paid": list(self._paid), "counts": [self._first, self._steps, self._next]}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._episodes, self._paid = list(state["episodes"]), [float(each) for each in state["paid"]]
        self._first, self._steps, self._next = (int(each) for each in state["counts"])
