"""Rules for the recorded steps that small memories of continual learning keep of a task. N steps, F inputs, A actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial import KDTree
from torch import nn

from robo_rl.fitting import fit

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Rule = Literal["model", "random", "reward", "surprise", "coverage"]


@dataclass(frozen=True)
class Recorded:
    """Steps of one task, and a policy that was learned from them."""

    states: Floats
    """(N, F) standardised"""
    actions: Floats
    """(N, A)"""
    following: Floats
    """(N, F) standardised"""
    rewards: Floats
    """(N,)"""
    firsts: Places
    """(E,) numbers of the first steps of episodes"""
    surprise: Floats
    """(N,) absolute errors of the critic"""
    act: Callable[[Places], Floats]
    """Returns the policy's actions (K, A) at recorded steps."""


def select(rule: Rule, recorded: Recorded, count: int, random: np.random.Generator, *, updates: int = 2000) -> Places:
    """Return the numbers of at most `count` different steps; updates: of the model of dynamics, for the rule "model"."""
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
    """Return steps, each the farthest from those before it."""
    chosen = [int(random.integers(len(states)))]
    nearest = np.square(states - states[chosen[0]]).sum(1)
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, np.square(states - states[chosen[-1]]).sum(1))
    return np.array(chosen)


def along_the_policy(recorded: Recorded, count: int, random: np.random.Generator, updates: int) -> Places:
    """Return steps near those that the policy would take: one step of a model, then the nearest recorded state (MBES).

    Errors do not add up, because each step of the model begins in a recorded state.
    """
    predict = model_of(recorded, random, updates)
    proposed = recorded.states + predict(recorded.states, recorded.act(np.arange(len(recorded.states))))
    _, near = KDTree(recorded.states).query(proposed)
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


def model_of(recorded: Recorded, random: np.random.Generator, updates: int) -> Callable[[Floats, Floats], Floats]:
    """Return a model of the change (N, F) of states, given states (N, F) and actions (N, A)."""
    size, actions = recorded.states.shape[1], recorded.actions.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(random.integers(2**31)))
        network = nn.Sequential(nn.Linear(size + actions, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, size))
    changes = recorded.following - recorded.states
    scale = np.maximum(changes.std(0), 1e-6)
    inputs = torch.from_numpy(np.hstack([recorded.states, recorded.actions]).astype(np.float32))
    targets = torch.from_numpy((changes / scale).astype(np.float32))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    batches = (torch.from_numpy(random.integers(len(inputs), size=256)) for _ in range(updates))
    fit(network, batches, lambda rows: (network(inputs[rows]) - targets[rows]).square().mean(), optimizer, title="dynamics")

    def predict(states: Floats, chosen: Floats) -> Floats:
        with torch.no_grad():
            found = network(torch.from_numpy(np.hstack([states, chosen]).astype(np.float32)))
        return np.asarray(found.numpy() * scale, np.float64)

    return predict
