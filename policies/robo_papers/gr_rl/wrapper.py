"""The wrapper `steered`: the flow policy of a run acts, and the action is its noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.assembly import policy_of, recipe_of
from robo_papers.gr_rl.steering import REACH, SteeredEnv
from robo_policies.learners.chunks import ChunkPolicy
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run

RUNS = Path("runs")


@dataclass(frozen=True)
class SteeredWrapper(EnvironmentWrapper):
    """Settings of the wrapper `steered`: the flow policy of a run acts, and the action is its noise."""

    changes = ("name", "action")

    base: str
    """Run of the learner flow-bc: its path or folder name."""
    reach: float = REACH
    """Largest noise, in standard deviations, that an action of 1 stands for."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> SteeredEnv:
        if self.base == "latest":
            fix = "name the run, such as base: runs/20260101-120000-offline-flow-bc-0"
            raise InvalidSetting("The latest run would be the one that begins.", got="base latest", fix=fix)
        run = find_run(self.base, RUNS)
        policy = policy_of(run, recipe_of(run))
        if not isinstance(policy, ChunkPolicy):
            raise InvalidSetting(
                "The base cannot be steered.", got=f"{run.path.name}, of {recipe_of(run).algorithm}", allowed="a run of flow-bc"
            )
        return SteeredEnv(environment, policy, reach=self.reach)
