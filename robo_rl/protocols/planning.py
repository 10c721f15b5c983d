"""Policies that plan actions ahead, such as chunks, and the end of a plan that was not followed."""

from __future__ import annotations

from typing import Protocol

from robo_rl.protocols.components import Policy


class Planner(Policy, Protocol):
    """Policy that plans several actions from one observation.

    A policy that wraps another one passes `replan` on with the function `replan`.
    """

    def replan(self) -> None:
        """Forget the planned actions; the next `act` plans from its own observation."""


def replan(policy: Policy) -> None:
    """Tell a policy that its newest action was not executed; does nothing to one that plans no actions.

    `Rollout` calls it after each step whose action was not the policy's: a person's, a script's, or one that a guard changed.
    """
    forget = getattr(policy, "replan", None)
    if forget is not None:
        forget()
