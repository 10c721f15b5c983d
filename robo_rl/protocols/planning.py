"""Policies that plan several actions ahead, and how to discard a plan that was not followed."""

from __future__ import annotations

from typing import Protocol

from robo_rl.protocols.components import Policy


class Planner(Policy, Protocol):
    """Interface of a policy that plans several actions from one observation, such as a chunk of actions.

    A policy that wraps another policy forwards `replan` to it with the function `replan`.
    """

    def replan(self) -> None:
        """Discard the planned actions; the next `act` makes a new plan from its observation."""


def replan(policy: Policy) -> None:
    """Tell a policy that its newest action was not executed; a policy that plans no actions ignores it.

    `Rollout` calls this after each step whose action came from a person or script, or was changed by a guard.
    """
    forget = getattr(policy, "replan", None)
    if forget is not None:
        forget()
