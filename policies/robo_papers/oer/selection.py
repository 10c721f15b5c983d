"""Rules for the recorded steps that small memories of continual learning keep of a task. N steps, F inputs, A actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial import KDTree

from robo_rl.worlds.dynamics import DynamicsConfig
from robo_rl.worlds.fitting import DynamicsFit
from robo_rl.worlds.imagining import distribution
from robo_rl.worlds.steps import Steps

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
WORLD = DynamicsConfig(hidden=(128, 128), members=1, elites=1, epochs=10_000, patience=50)
"""Settings of the dynamics model for the rule "model"."""
Rule = Literal["model", "random", "reward", "surprise", "coverage"]


@dataclass(frozen=True)
class Recorded:
    """Recorded steps of one task, from which a memory is chosen, and a policy that was learned from them."""

    states: Floats
    """(N, F) states before the steps, standardised"""
    actions: Floats
    """(N, A) recorded actions"""
    following: Floats
    """(N, F) states after the steps, standardised"""
    rewards: Floats
    """(N,) rewards of the steps"""
    firsts: Places
    """(E,) numbers of the first steps of episodes"""
    surprise: Floats
    """(N,) absolute errors of the critic at the steps"""
    act: Callable[[Places], Floats]
    """Function from numbers of recorded steps (K,) to the policy's actions there (K, A)."""


def select(rule: Rule, recorded: Recorded, count: int, random: np.random.Generator, *, updates: int = 2000) -> Places:
    """Choose the steps of a memory by a rule; return the numbers of at most `count` different steps.

    updates: of the dynamics model, for the rule "model".
    """
    total = len(recorded.states)
    if count >= total:
        return np.arange(total)
    if rule == "random":
        return random.choice(total, count, replace=False)
    if rule == "coverage":
        return spread_out(recorded.states, count, random)
    if rule == "model":
        return along_the_policy(recorded, count, random, updates)
    worth = recorded.rewards if rule == "reward" else recorded.surprise
    return np.argsort(-worth, kind="stable")[:count]


def spread_out(states: Floats, count: int, random: np.random.Generator) -> Places:
    """Choose a random step, then each time the one farthest from those chosen before; return their indices."""
    chosen = [int(random.integers(len(states)))]
    nearest = np.square(states - states[chosen[0]]).sum(1)
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.square(states - states[chosen[-1]]).sum(1))
    return np.array(chosen)


def along_the_policy(recorded: Recorded, count: int, random: np.random.Generator, updates: int) -> Places:
    """Choose steps near those that the policy would take (MBES); return their numbers.

    A model predicts one step, and the nearest recorded state is taken. Errors do not add up, because each step of the model
    begins in a recorded state.
    """
    _, near = KDTree(recorded.states).query(predicted(recorded, random, updates))
    chosen, longest = dict[int, None](), max(1, len(recorded.states) // len(recorded.firsts))
    for _ in range(50 * count):
        place = int(random.choice(recorded.firsts))
        for _ in range(longest):
            chosen[place] = None
            if len(chosen) == count:
                return np.array([*chosen])
            place = int(near[place])
    left = np.setdiff1d(np.arange(len(recorded.states)), [*chosen])  # the policy visits fewer states than there is room for
    return np.concatenate([np.array([*chosen]), random.choice(left, count - len(chosen), replace=False)])


def predicted(recorded: Recorded, random: np.random.Generator, updates: int) -> Floats:
    """Return the states (N, F) that a dynamics model, fitted to the steps, expects after the policy's actions."""
    nothing = np.zeros(len(recorded.states), np.bool_)
    states, actions = recorded.states.astype(np.float32), recorded.actions.astype(np.float32)
    following, rewards = recorded.following.astype(np.float32), recorded.rewards.astype(np.float32)
    steps = Steps(states, actions, following, rewards, nothing, nothing)
    config = replace(WORLD, seed=int(random.integers(2**31)))
    dynamics = DynamicsFit(steps, config).run(most_updates=updates)
    chosen = recorded.act(np.arange(len(steps))).astype(np.float32)
    change, _ = distribution(dynamics, steps.states, chosen)
    return recorded.states + change[:, :-1]
