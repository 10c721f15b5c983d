"""EXPRD: Devidze et al. 2021, "Explicable Reward Design for Reinforcement Learning Agents" (NeurIPS).

And EXPADARD: Devidze et al. 2024, "Informativeness of Reward Functions in Reinforcement Learning", arXiv:2402.07019.

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
from robo_sims.policy_iteration import TIE, optimal_values

Table = npt.NDArray[np.float64]
SLACK = 1.001
"""Divisor of the original reward's gap between best and other actions, which a designed reward must keep. The authors have 1 +
1e-5, which is within the rounding of a linear program if the bound is tight."""


@dataclass(frozen=True)
class ExpRDSettings:
    """Settings of the design of a reward by EXPRD (Devidze et al. 2021): discount, bound, horizons, sparsity.

    Defaults are the authors' for four rooms.
    """

    discount: float = 0.95
    """Discount gamma of the task, 0 to below 1."""
    largest: float = 10.0
    """Largest reward of a state and action; the smallest is minus this."""
    horizons: tuple[int, ...] = (1, 4, 8, 16, 32)
    """Numbers of steps within which the best action should show."""
    sparsity: float = 0.0
    """Weight of the sum of absolute rewards in the objective, which favours few rewards."""

    def __post_init__(self) -> None:
        allowed = {"discount": (0.0 <= self.discount < 1.0, "0 to below 1"), "largest": (self.largest > 0, "above 0")}
        allowed |= {"horizons": (bool(self.horizons) and min(self.horizons, default=0) >= 1, "1 or more, at least one")}
        require_allowed(self, allowed | {"sparsity": (self.sparsity >= 0, "0 or more")})


@dataclass(frozen=True)
class Design:
    """Designed reward of a tabular task, and how informative it is."""

    rewards: Table
    """(S, A) designed rewards, 0 outside of `states`"""
    states: tuple[int, ...]
    informativeness: float
    """I(R), at most 0: minus the mean missing gap between best and other actions, over horizons and states."""


class Designer:
    """Designs rewards for a tabular task whose model is known, by linear programs."""

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
        """Return the best reward that is paid in these states alone; raises InvalidSetting if no reward keeps the gaps."""
        settings, (count, actions) = self.settings, self.rewards.shape
        size, shown = count * actions, len(settings.horizons) * count
        rows, bounds = [], []
        for state, action in self._pairs(~self.is_best):
            for index, linear in enumerate(self._within):
                # what is missing to the gap within a horizon is what the program makes small
                missing = -np.eye(shown)[index * count + state]
                rows.append(np.concatenate([-self._difference(linear, state, action), missing]))
                bounds.append(-self.gaps[state])
        found = self._solve(states, np.repeat([0.0, 1.0 / shown], [size, shown]), np.array(rows), np.array(bounds))
        rewards = found[:size].reshape(count, actions)
        return Design(rewards, tuple(int(state) for state in states), -float(found[size : size + shown].mean()))

    def adapted(self, states: Sequence[int], policy: Table, visits: Table) -> Table:
        """Return the reward (S, A) that is most informative for a learner with its present policy (EXPADARD).

        The constraints are those of `design`. Maximised is how far the reward of a step agrees with its advantage, both less
        their means under the learner's policy:

            sum_s visits(s) sum_a pi(a|s) (A*(s, a) - mean of A*) (R(s, a) - mean of R)

        Args:
            states: States in which the reward may be paid.
            policy: (S, A) policy of the learner.
            visits: (S,) share of the learner's steps in each state.
        """
        advantages = self.values - self.values.max(1, keepdims=True)
        weights = visits[:, None] * policy
        gains = weights * (advantages - (policy * advantages).sum(1, keepdims=True))
        agreement = gains - policy * gains.sum(1, keepdims=True)
        none = np.zeros((0, self.rewards.size)), np.zeros(0)
        return self._solve(states, -agreement.ravel(), *none)[: self.rewards.size].reshape(self.rewards.shape)

    def _solve(self, states: Sequence[int], costs: Table, rows: Table, bounds: Table) -> Table:
        """Return the cheapest (R, others) that keeps the gaps and pays in `states` alone.

        costs: (S A + K,) of rewards and of K variables from 0. rows, bounds: further constraints, rows x <= bounds.
        """
        from scipy.optimize import linprog  # late: a model alone does not need it

        settings, (count, actions) = self.settings, self.rewards.shape
        size = count * actions
        others = len(costs) - size
        kept = [(-self._difference(self._forever, *pair), -self.gaps[pair[0]]) for pair in self._pairs(~self.is_best)]
        gaps = np.hstack([np.array([row for row, _ in kept]), np.zeros((len(kept), others))])
        absolute = np.hstack([np.vstack([np.eye(size), -np.eye(size)]), np.zeros((2 * size, others))])
        upper = np.vstack([gaps, rows, absolute])
        ties = [pair for pair in self._pairs(self.is_best) if pair[1] != self.policy[pair[0]]]
        equal = [np.concatenate([self._difference(self._forever, *tie), np.zeros(others + size)]) for tie in ties]
        is_paid = np.repeat(np.isin(np.arange(count), states), actions)
        ranges = [(-settings.largest, settings.largest) if paid else (0.0, 0.0) for paid in is_paid]
        signs = np.vstack([np.zeros((len(gaps) + len(rows), size)), np.tile(-np.eye(size), (2, 1))])
        program = partial(
            linprog,
            np.concatenate([costs, np.full(size, settings.sparsity)]),
            A_ub=np.hstack([upper, signs]),
            b_ub=np.concatenate([[bound for _, bound in kept], bounds, np.zeros(2 * size)]),
            A_eq=np.array(equal) if equal else None,
            b_eq=np.zeros(len(equal)) if equal else None,
            bounds=ranges + [(0.0, None)] * (others + size),
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
        solution: Table = found.x
        return solution

    def grown(self, states: Sequence[int], more: int) -> Design:
        """Design with `more` further states, added one by one, each the one that helps most."""
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
