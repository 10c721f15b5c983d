"""The environment of the conformance suite with a prior, its script."""

from __future__ import annotations

from typing import Any

import gymnasium

from robo_papers.sac_prior.environment import PriorEnv
from robo_rl.conformance.swerving import Swerving


def with_prior(environment: gymnasium.Env[Any, Any]) -> PriorEnv:
    """Wrap an environment so that the action of its scripted expert is observed as the prior."""
    return PriorEnv(environment, Swerving().scripted_policy)
