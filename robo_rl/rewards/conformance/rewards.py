"""Checks of reward models that label recorded episodes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.conformance.rule import require_rule
from robo_rl.types import Episode, RewardLabels

RewardCheck = Callable[[RewardModel, Sequence[Episode]], None]


def check_reward(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Run all checks of a reward model that labels recorded episodes.

    Args:
        model: The reward model under test.
        episodes: Two or more recorded episodes, with the entries that the model reads.

    Raises:
        ConformanceFailure: A check failed; the message names its rule.
    """
    for check in REWARD_CHECKS:
        check(model, copy.deepcopy(episodes))


def labels_fit_the_episode(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Check that labels are float32, one for each step, and none for an episode without steps."""
    for episode in [*episodes, _without_steps(episodes[0])]:
        labels, steps = model.label(episode), len(episode)
        found, wanted = (len(labels), labels.values.dtype), (steps, np.dtype(np.float32))
        require_rule(found == wanted, model, "labels fit the episode", "the arrays differ", found, wanted)


def labels_say_whose_they_are(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Check that labels carry the model's name and hash as in `identity`, which labelling must not change."""
    before = model.identity
    for episode in episodes:
        labels = model.label(episode)
        named = labels.model, labels.weights_hash
        is_right = named == before == model.identity
        require_rule(is_right, model, "labels say whose they are", "they say something else", named, before)


def labels_repeat(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Check that an episode gets the same labels again, in another order of episodes, and from a copy of the model."""
    first = [model.label(episode) for episode in episodes]
    for again in (model, copy.deepcopy(model)):
        for labels, episode in reversed([*zip(first, episodes, strict=True)]):
            same = _are_equal(labels, again.label(episode))
            require_rule(same, model, "labels repeat", "the same episode got other labels", episode.seed)


def episodes_stay_as_they_are(model: RewardModel, episodes: Sequence[Episode]) -> None:
    """Check that labelling does not change the arrays of the episode."""
    for episode in episodes:
        before = copy.deepcopy(episode)
        model.label(episode)
        arrays = {"actions": episode.actions, "rewards": episode.rewards, **episode.observations}
        kept = {"actions": before.actions, "rewards": before.rewards, **before.observations}
        changed = [name for name, array in arrays.items() if array.tobytes() != kept[name].tobytes()]
        require_rule(not changed, model, "episodes stay as they are", "an array was written to", changed)


REWARD_CHECKS: Sequence[RewardCheck] = (
    labels_fit_the_episode,
    labels_say_whose_they_are,
    labels_repeat,
    episodes_stay_as_they_are,
)


def _are_equal(one: RewardLabels, other: RewardLabels) -> bool:
    return all(first.tobytes() == second.tobytes() for first, second in ((one.values, other.values), (one.valid, other.valid)))


def _without_steps(episode: Episode) -> Episode:
    empty = {name: getattr(episode, name)[:0] for name in ("actions", "policy_actions", "rewards", "sources")}
    first = {name: array[:1] for name, array in episode.observations.items()}
    terms = {name: array[:0] for name, array in episode.reward_terms.items()}
    costs = {name: array[:0] for name, array in episode.costs.items()}
    return replace(episode, observations=first, reward_terms=terms, costs=costs, timestamps=episode.timestamps[:1], **empty)
