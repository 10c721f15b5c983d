"""The environment of the conformance suite with a prior, its script."""

from __future__ import annotations

from typing import Any

import gymnasium

from robo_papers.sac_prior.environment import PriorEnv
from robo_rl.conformance.swerving import Swerving


def with_prior(environment: gymnasium.Env[Any, Any]) -> PriorEnv:
    """Return an environment in which the prior is observed."""
    return PriorEnv(environment, Swerving().scripted_policy)
