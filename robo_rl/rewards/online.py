"""The reward of a run: a reward of steps in the environment of a recipe, in place of the environment's own.

Nothing here knows the environment's own reward or success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rewards.online_scoring import RunningReward
from robo_rl.rewards.place import Place
from robo_rl.rewards.programs.judging import UsedProgram
from robo_rl.spec import EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode, StateDict

if TYPE_CHECKING:
    from robo_rl.rewards.step_reward import StepReward


@dataclass(frozen=True)
class OnlineReward:
    """Reward that replaces that of the environment; implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: StepReward
    spec: EnvironmentSpec
    """Of the environment, with what is drawn for the reward alone."""
    weight: float = 1.0
    """Factor of the rewards."""
    discount: float | None = None
    """The learner's."""

    def __post_init__(self) -> None:
        require_allowed(self, {"weight": (bool(np.isfinite(self.weight)), "a finite number")})
        self.model.require(self._place)

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name, hash, factor, and what else the rewards follow from."""
        name, weights = self.model.identity
        return {"model": name, "weights": weights, "weight": self.weight, **self.model.facts(self._place)}

    @property
    def programs(self) -> Sequence[UsedProgram]:
        """The programs that the reward follows from."""
        return self.model.programs(self._place)

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec without what is there for the reward alone."""
        return without(spec, self.model.hidden())

    def running(self, environments: int) -> DelayedRewards:
        """Return what scores so many environments under way; raise InvalidSetting for too many."""
        place = self._place
        if environments != 1 and self.model.relabelling(place) is not None:
            raise InvalidSetting(
                "A reward that is learned from returns is for one environment.",
                got=f"{environments} environments",
                allowed="a learner that acts in one and keeps single steps: sac",
                fix="set algorithm to sac",
            )
        return RunningReward(self.model, place)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yield a recorded episode as a policy of `spec` would have seen it, with these rewards, cut where one is missing.

        A piece before a gap ends as a truncated episode does: its last step is bootstrapped, and no sum of rewards crosses the
        gap. Nothing is left of what follows the completion.
        """
        self.model.require_demonstrations()
        return self._pieces(episode, spec)

    def _pieces(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        if missing := [name for name in self.model.entries(self._place) if name not in episode.observations]:
            raise InvalidSetting(
                f"A recorded episode lacks what the reward {self.model.identity[0]} looks at.",
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
    def _place(self) -> Place:
        """A place whose memory is empty."""
        return Place(self.spec, self.discount, self.weight)


def without(spec: EnvironmentSpec, hidden: Sequence[str]) -> EnvironmentSpec:
    """Return a spec without some entries of the observation."""
    return replace(
        spec, observation=ObservationSpec(tuple(each for each in spec.observation.arrays if each.name not in hidden))
    )


def _at(episode: Episode, step: int) -> StateDict:
    return {name: values[step] for name, values in episode.observations.items()}


def _stretches(valid: npt.NDArray[np.bool_]) -> Sequence[tuple[int, int]]:
    """Returns the half-open ranges of steps in which all are valid."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], valid.astype(np.int8), [0]))))
    return [*pairwise(edges.tolist())][::2]


def _piece(episode: Episode, steps: slice, spec: EnvironmentSpec, *, terminated: bool) -> Episode:
    """Returns some steps of an episode, with what a policy of `spec` sees of them."""
    pictures = slice(steps.start, steps.stop + 1)
    return replace(
        episode,
        observations={name: episode.observations[name][pictures] for name in spec.observation},
        actions=episode.actions[steps],
        policy_actions=episode.policy_actions[steps],
        rewards=episode.rewards[steps],
        reward_terms={name: terms[steps] for name, terms in episode.reward_terms.items()},
        costs=None if episode.costs is None else episode.costs[steps],
        sources=episode.sources[steps],
        timestamps=episode.timestamps[pictures],
        terminated=terminated,
        truncated=not terminated,
        spec_fingerprint=spec.fingerprint,
    )
