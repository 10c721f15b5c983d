"""residual:NAME, an environment with a base policy (an expert or a run's policy) whose actions are corrected."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium

from robo_app.training.assembly import policy_of, recipe_of, scripted_expert
from robo_policies.learners.residual import SCALE, ResidualEnv
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import find_run

SCRIPTED = "scripted"
RUNS = Path("runs")


class ResidualFamily:
    """Makes environments of corrections."""

    def names(self) -> Iterable[str]:
        """Return no names: the address is the name of another environment."""
        return ()

    def at(
        self, address: str, *, base: str = SCRIPTED, scale: float = SCALE, noise: float = 0.0, **arguments: Any
    ) -> ResidualEnv:
        """Return the environment named by `address` with a base policy.

        base: "scripted", or a run. scale: largest correction. noise: of the scripted expert. The rest goes to the environment.
        """
        environment = make_environment(address, **arguments)
        return ResidualEnv(environment, base_for(environment, address, base, noise), scale=scale)


def base_for(environment: gymnasium.Env[Any, Any], name: str, base: str, noise: float) -> Callable[[int], Policy]:
    """Return a function from the seed of an episode to a base policy, of the environment's expert or of a run."""
    if base == SCRIPTED:
        expert_for = scripted_expert(environment, name)
        return lambda seed: expert_for(seed=seed, noise=noise)
    run = find_run(base, RUNS)
    trained = policy_of(run, recipe_of(run))
    return lambda _: trained


FAMILY = ResidualFamily()
