"""Advantages of steps from the episodes of a group: which step made the difference. E episodes, B steps in all.

Groups begin in one state. Anchor states: Feng et al. 2025, GiGPO, arXiv:2505.10978. SALT: a graph of the group's episodes, in
which shared steps count alike. Sets: polychromic objectives. Written from their descriptions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from robo_policies.learners.group_credit import Floats, standardised
from robo_rl.extras import returns_to_go
from robo_rl.types import Episode

Keys = Sequence[Sequence[Hashable]]
"""Keys of the steps of each episode: its state, or state and action; equal for steps that count as the same."""


def anchored(states: Keys, rewards: Sequence[Floats], discount: float) -> Floats:
    """Return the step advantages of GiGPO (B,) for the episodes of one group.

    A step's is the return from its state on, standardised among all visits of this state; 0 for a state that is visited once.

    Args:
        states: Keys of the states of each episode.
        rewards: Rewards (T,) of each episode.
        discount: Weight of a reward one step later.
    """
    returns = np.concatenate([returns_to_go(each, discount) for each in rewards])
    visits: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(key for each in states for key in each):
        visits[key].append(place)
    found = np.zeros(len(returns))
    for places in visits.values():
        found[places] = standardised(returns[places])
    return found


def merged(steps: Keys, advantages: Floats) -> Floats:
    """Return the advantages of SALT (B,) for the episodes of one group: a step has the mean over the episodes that take it.

    Args:
        steps: Keys of state and action of each episode.
        advantages: (E,) advantages of the episodes.
    """
    takers: dict[Hashable, set[int]] = defaultdict(set)
    for number, each in enumerate(steps):
        for key in each:
            takers[key].add(number)
    means = {key: float(np.mean(advantages[sorted(numbers)])) for key, numbers in takers.items()}
    return np.array([means[key] for each in steps for key in each])


def set_advantages(
    scores: Floats, signatures: Sequence[Hashable], size: int, sets: int, random: np.random.Generator
) -> tuple[Floats, float]:
    """Return the polychromic advantage of each episode of a group (E,), and the mean diversity of the sets.

    A set of `size` episodes is worth its mean score times its share of distinct signatures; an episode has the mean, over the
    sets that contain it, of their value less the mean of all. Episodes in no set have 0.

    Args:
        scores: (E,) in [0, 1].
        signatures: What tells episodes apart, such as the rooms visited.
        size: Episodes of a set.
        sets: Number of sets that are drawn.
        random: Draws the sets.
    """
    chosen = [random.choice(len(scores), size=size, replace=False) for _ in range(sets)]
    diversity = [len({signatures[member] for member in each}) / size for each in chosen]
    values = np.array([scores[each].mean() * variety for each, variety in zip(chosen, diversity, strict=True)])
    total, count = np.zeros(len(scores)), np.zeros(len(scores))
    for each, value in zip(chosen, values - values.mean(), strict=True):
        total[each] += value
        count[each] += 1
    return total / np.maximum(count, 1), float(np.mean(diversity))


def state_keys(episode: Episode, names: Sequence[str], resolution: float) -> list[Hashable]:
    """Return a key of the state before each step: entries of the observation, rounded to multiples of `resolution`."""
    rows = [np.floor(episode.observations[name][:-1] / resolution + 0.5) for name in names]
    flat = np.concatenate([row.reshape(len(episode), -1) for row in rows], 1) + 0.0  # no -0.0, which has other bytes
    return [row.tobytes() for row in flat]


def action_keys(episode: Episode, *, is_discrete: bool) -> list[Hashable]:
    """Return a key of each action: itself, or its place in a grid of 0.25 if it is continuous."""
    taken = episode.actions if is_discrete else np.floor(episode.actions / 0.25 + 0.5) + 0.0
    return [action.tobytes() for action in np.asarray(taken)]
