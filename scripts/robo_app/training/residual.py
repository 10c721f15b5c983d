"""The wrapper `residual`: a base policy (an expert or a run's policy) whose actions are corrected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.assembly import policy_of, recipe_of, scripted_expert
from robo_policies.learners.residual import SCALE, ResidualEnv
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import find_run
from robo_rl.spec.environment import specification

SCRIPTED = "scripted"
RUNS = Path("runs")


@dataclass(frozen=True)
class ResidualWrapper(EnvironmentWrapper):
    """Correct the actions of a base policy."""

    changes = ("name", "observation", "action")

    base: str = SCRIPTED
    """"scripted", the environment's expert, or a run."""
    scale: float = SCALE
    """Largest correction."""
    noise: float = 0.0
    """Of the scripted expert."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> ResidualEnv:
        return ResidualEnv(environment, base_for(environment, self.base, self.noise), scale=self.scale)


def base_for(environment: gymnasium.Env[Any, Any], base: str, noise: float) -> Callable[[int], Policy]:
    """Return a function from the seed of an episode to a base policy, of the environment's expert or of a run."""
    if base == SCRIPTED:
        expert_for = scripted_expert(environment, specification(environment).name)
        return lambda seed: expert_for(seed=seed, noise=noise)
    run = find_run(base, RUNS)
    trained = policy_of(run, recipe_of(run))
    return lambda _: trained
