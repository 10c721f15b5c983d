"""A reward of a model while a policy learns: pictures wait until there are some, are scored in one call, and become rewards.

    reward of a step = weight * (level, delta or potential of the model's scores)
                     + bonus, where the model sees the task completed, which then ends for the learner

Nothing here knows the environment's own reward or success.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rewards.pictures import PictureReward
from robo_rl.rewards.running import Completion, RunningRewards
from robo_rl.spec import EnvironmentSpec, ObservationSpec
from robo_rl.types import Episode, StateDict


@dataclass(frozen=True)
class OnlineReward:
    """What a policy learns from in the place of the environment's reward."""

    model: PictureReward
    weight: float = 1.0
    """Factor of the model's reward."""
    every: int = 64
    """Pictures that are scored in one call."""
    hold: int = 1
    """Steps from one picture that is scored to the next, for models that are slow or cost money; in between the score holds."""
    completion: Completion | None = None
    hidden: tuple[str, ...] = ()
    """Entries of the observation that are there for the reward alone."""

    def __post_init__(self) -> None:
        counts = {name: (getattr(self, name) >= 1, "1 or more") for name in ("every", "hold")}
        require_allowed(self, counts | {"weight": (bool(np.isfinite(self.weight)), "a finite number")})
        if self.model.mode == "potential" and self.completion is None:
            raise InvalidSetting(
                "A potential alone makes all policies equally good: nothing would be learnt.",
                got="mode potential without a completion",
                allowed="potential with a completion bonus, or mode: delta",
                fix="name a model of completion in reward.completion, or set reward.settings.mode to delta",
            )

    @property
    def identity(self) -> Mapping[str, str | float]:
        """What the rewards follow from: names, hashes of weights and words, weights."""
        facts: dict[str, str | float] = _told(self.model, "") | {"weight": self.weight, "hold": self.hold}
        if (completion := self.completion) is not None:
            facts |= _told(completion.model, "completion_")
            facts |= {"completion_threshold": completion.threshold, "completion_bonus": completion.bonus}
        return facts

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec without what is hidden from the policy."""
        arrays = tuple(array for array in spec.observation.arrays if array.name not in self.hidden)
        return replace(spec, observation=ObservationSpec(arrays))

    def running(self, environments: int) -> DelayedRewards:
        """Returns what scores so many environments under way."""
        return RunningRewards(
            self.model,
            environments,
            weight=self.weight,
            every=self.every,
            hold=self.hold,
            completion=self.completion,
        )

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode as a policy of `spec` would have lived it, with these rewards, cut where one is missing."""
        return lived(episode, self.running(1), spec)


def lived(episode: Episode, live: DelayedRewards, spec: EnvironmentSpec) -> Iterator[Episode]:
    """Yields a recorded episode as a policy of `spec` would have lived it, with fresh rewards, cut where one is missing.

    A piece before a gap ends as a truncated episode does: its last step is bootstrapped, and no sum of rewards crosses the
    gap. Nothing is left of what follows the completion.
    """
    live.begin(0, _at(episode, 0), episode.instruction)
    for step in range(1, len(episode) + 1):
        is_last = step == len(episode)
        terminated = is_last and episode.terminated
        live.add(
            0,
            _at(episode, step),
            action=episode.actions[step - 1],
            reward=float(episode.rewards[step - 1]),
            terminated=terminated,
            truncated=is_last and not terminated,
        )
    found = live.score()
    for start, stop in _stretches(found.labels.valid):
        terminated = bool(found.ends[stop - 1]) or (episode.terminated and stop == len(episode))
        yield _piece(replace(episode, rewards=found.labels.values), slice(start, stop), spec, terminated=terminated)


def _told(model: PictureReward, prefix: str) -> dict[str, str | float]:
    name, weights = model.identity
    return {f"{prefix}model": name, f"{prefix}weights": weights, f"{prefix}prompt": model.prompt_hash}


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
