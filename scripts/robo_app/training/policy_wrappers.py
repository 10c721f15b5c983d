"""Environment wrappers that involve a second policy, either a scripted expert or the policy of a run.

The second policy is corrected by the learner (residual), or asked for labels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.assembly import policy_of, recipe_of, scripted_expert
from robo_policies.learners.dagger import NOISE, SHARE, LabelledEnv
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
    """Base policy: "scripted" for the environment's scripted expert, otherwise name or path of a run."""
    scale: float = SCALE
    """Largest correction, as a share of half the range of each element of the action."""
    noise: float = 0.0
    """Noise of the scripted expert."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> ResidualEnv:
        return ResidualEnv(environment, base_for(environment, self.base, self.noise), scale=self.scale)


@dataclass(frozen=True)
class LabelledWrapper(EnvironmentWrapper):
    """Label every step with an expert's action, and let the expert act in some episodes, while a policy is trained."""

    in_evaluations = False

    expert: str = SCRIPTED
    """"scripted", the environment's expert, or a run."""
    share: float = SHARE
    """Share of the episodes in which the expert acts."""
    noise: float = NOISE
    """Standard deviation of the noise on executed actions, in [-1, 1] units; of discrete actions the chance of a random one."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> LabelledEnv:
        expert_for = base_for(environment, self.expert, noise=0.0)
        return LabelledEnv(environment, expert_for, share=self.share, noise=self.noise)


def base_for(environment: gymnasium.Env[Any, Any], base: str, noise: float) -> Callable[[int], Policy]:
    """Return a function from the seed of an episode to the base policy of that episode.

    Args:
        environment: The environment.
        base: "scripted" for the environment's expert, or the name or path of a run.
        noise: Standard deviation of the noise on a scripted expert's actions.
    """
    if base == SCRIPTED:
        expert_for = scripted_expert(environment, specification(environment).name)
        return lambda seed: expert_for(seed=seed, noise=noise)
    policy = trained(base)
    return lambda _: policy


def trained(name: str) -> Policy:
    """Return the newest policy of a run by name or path."""
    run = find_run(name, RUNS)
    return policy_of(run, recipe_of(run))
