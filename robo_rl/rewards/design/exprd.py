"""EXPRD: Devidze et al. 2021, "Explicable Reward Design for Reinforcement Learning Agents" (NeurIPS).

A teacher who knows an MDP chooses a reward that is paid in few states, is bounded, keeps the optimal actions, and shows a
learner within few steps which action is best: a linear program for each set of states, by HiGHS. S states, A actions, H
horizons; Q is linear in the reward R (S, A), and so is everything below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, require_allowed

Table = npt.NDArray[np.float64]
TIE = 1e-9
"""Difference of values up to which two actions are equally good."""
SLACK = 1.001
"""The gap asked for is that of the original reward, divided by this.

The authors have 1 + 1e-5, which is within the rounding of a linear program if the bound is tight.
"""


@dataclass(frozen=True)
class ExpRDSettings:
    """Settings of the design; defaults are the authors' for four rooms."""

    discount: float = 0.95
    """gamma"""
    largest: float = 10.0
    """Largest reward of a state and action, and the smallest with a minus."""
    horizons: tuple[int, ...] = (1, 4, 8, 16, 32)
    """Steps within which the best action should show."""
    sparsity: float = 0.0
    """Weight of the sum of absolute rewards."""

    def __post_init__(self) -> None:
        allowed = {"discount": (0.0 <= self.discount < 1.0, "0 to below 1"), "largest": (self.largest > 0, "above 0")}
        allowed |= {"horizons": (bool(self.horizons) and min(self.horizons, default=0) >= 1, "1 or more, at least one")}
        require_allowed(self, allowed | {"sparsity": (self.sparsity >= 0, "0 or more")})


@dataclass(frozen=True)
class Design:
    """A reward and its worth."""

    rewards: Table
    """(S, A), 0 outside of `states`"""
    states: tuple[int, ...]
    informativeness: float
    """I(R), 0 at most: minus the mean gap that is missing, over horizons and states."""


class Designer:
    """Designs rewards for an MDP whose model is known."""

    def __init__(self, moves: Table, rewards: Table, settings: ExpRDSettings | None = None) -> None:
        """moves: (S, A, S) probabilities. rewards: (S, A) of the task."""
        self.moves, self.rewards, self.settings = moves, rewards, ExpRDSettings() if settings is None else settings
        self.values = optimal_values(moves, rewards, self.settings.discount)
        """Q* (S, A) of the task"""
        best = self.values.max(1)
        self.is_best = self.values >= best[:, None] - TIE * (1.0 + np.abs(best[:, None]))
        """(S, A): the actions that must stay optimal"""
        self.policy = self.is_best.argmax(1)
        others = np.where(self.is_best, -np.inf, self.values).max(1)
        self.gaps = np.where(np.isfinite(others), best - others, 0.0) / SLACK
        """(S,), delta"""

    def design(self, states: Sequence[int]) -> Design:
        """Return the best reward that is paid in these states alone; raises InvalidSetting if none keeps the gaps."""
        from scipy.optimize import linprog  # late: a model alone does not need it

        settings, (count, actions) = self.settings, self.rewards.shape
        size, shown = count * actions, len(settings.horizons) * count
        rows, bounds = [], []
        for state, action in self._pairs(~self.is_best):
            within = [self._difference(linear, state, action) for linear in self._within]
            for index, difference in enumerate([self._difference(self._forever, state, action), *within]):
                row = np.concatenate([-difference, np.zeros(shown + size)])
                if index:  # what is missing to the gap within a horizon is what the program makes small
                    row[size + (index - 1) * count + state] = -1.0
                rows.append(row)
                bounds.append(-self.gaps[state])
        for sign in (1.0, -1.0):  # absolute rewards
            rows += [*np.hstack([sign * np.eye(size), np.zeros((size, shown)), -np.eye(size)])]
        ties = [pair for pair in self._pairs(self.is_best) if pair[1] != self.policy[pair[0]]]
        equal = [np.concatenate([self._difference(self._forever, *tie), np.zeros(shown + size)]) for tie in ties]
        is_paid = np.repeat(np.isin(np.arange(count), states), actions)
        ranges = [(-settings.largest, settings.largest) if paid else (0.0, 0.0) for paid in is_paid]
        program = partial(
            linprog,
            np.repeat([0.0, 1.0 / shown, settings.sparsity], [size, shown, size]),
            A_ub=np.array(rows),
            b_ub=np.concatenate([bounds, np.zeros(2 * size)]),
            A_eq=np.array(equal) if equal else None,
            b_eq=np.zeros(len(equal)) if equal else None,
            bounds=ranges + [(0.0, None)] * (shown + size),
        )
        found = program(method="highs")
        if found.x is None:  # the simplex method may take rounding for a contradiction
            found = program(method="highs-ipm")
        if found.x is None:
            raise InvalidSetting(
                "No reward in these states keeps the gaps between the best action and the others.",
                got=f"states {list(states)}, rewards of {settings.largest} at most",
                allowed="states that the best policy reaches, and a bound that is large enough",
                fix="add the goal to the states, or raise `largest`",
            )
        rewards = found.x[:size].reshape(count, actions)
        return Design(rewards, tuple(int(state) for state in states), -float(found.x[size : size + shown].mean()))

    def grown(self, states: Sequence[int], more: int) -> Design:
        """Return a design in which `more` states were added to `states`, each the one that helps most."""
        best = self.design(states)
        for _ in range(more):
            left = [state for state in range(len(self.rewards)) if state not in best.states and self.gaps[state] > 0.0]
            best = max((self.design((*best.states, state)) for state in left), key=lambda design: design.informativeness)
        return best

    def _pairs(self, mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
        """Return state and action of each place of a mask (S, A)."""
        return [(int(state), int(action)) for state, action in zip(*np.nonzero(mask), strict=True)]

    def _difference(self, linear: Table, state: int, action: int) -> Table:
        """Return the row (S A,) that gives Q(s, best) - Q(s, a) of a reward."""
        actions = self.rewards.shape[1]
        row: Table = linear[state * actions + self.policy[state]] - linear[state * actions + action]
        return row

    @cached_property
    def _chain(self) -> Table:
        """Transitions (S A, S A) under the policy: to the pair of next state and its action."""
        count, actions = self.rewards.shape
        chain = np.zeros((count, actions, count, actions))
        chain[:, :, np.arange(count), self.policy] = self.moves
        return chain.reshape(count * actions, count * actions)

    @cached_property
    def _forever(self) -> Table:
        """Q of the policy, (S A, S A) times the reward."""
        found: Table = np.linalg.inv(np.eye(len(self._chain)) - self.settings.discount * self._chain).astype(np.float64)
        return found

    @cached_property
    def _within(self) -> list[Table]:
        """Q of the policy within each horizon, the same."""
        step, found = np.eye(len(self._chain)), {}
        total = power = step
        for horizon in range(1, max(self.settings.horizons) + 1):
            found[horizon] = total
            power = self.settings.discount * power @ self._chain
            total = total + power
        return [found[horizon] for horizon in self.settings.horizons]


def optimal_values(moves: Table, rewards: Table, discount: float) -> Table:
    """Return Q* (S, A), by policy iteration, exact."""
    policy = rewards.argmax(1)
    states = np.arange(len(rewards))
    while True:
        values = np.linalg.solve(np.eye(len(states)) - discount * moves[states, policy], rewards[states, policy])
        found: Table = rewards + discount * moves @ values
        better = found.max(1) > found[states, policy] + TIE * (1.0 + np.abs(values))
        if not better.any():
            return found
        policy = np.where(better, found.argmax(1), policy)
