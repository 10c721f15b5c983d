"""prior:NAME, an environment with a prior policy, an expert's or a run's, that a learner may stay near."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from robo_app.training.residual import SCRIPTED, base_for
from robo_policies.learners.prior import PriorEnv
from robo_rl.environments.make import make_environment


class PriorFamily:
    """Makes environments with a prior."""

    def names(self) -> Iterable[str]:
        """Return no names: the address is the name of another environment."""
        return ()

    def at(
        self,
        address: str,
        *,
        base: str = SCRIPTED,
        std: float = 0.3,
        reward_weight: float = 0.0,
        **arguments: Any,
    ) -> PriorEnv:
        """Return the environment named by `address` with a prior.

        base: "scripted", or a run. reward_weight: of its log density, of deviation std, in the reward. The rest goes to the
        environment.
        """
        environment = make_environment(address, **arguments)
        prior_for = base_for(environment, address, base, 0.0)
        return PriorEnv(environment, prior_for, std=std, reward_weight=reward_weight)


FAMILY = PriorFamily()
