"""steered:NAME, an environment in which a run's flow policy acts and the action is its noise."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from robo_app.training.assembly import policy_of, recipe_of
from robo_policies.learners.chunks import ChunkPolicy
from robo_policies.learners.steering import REACH, SteeredEnv
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run

RUNS = Path("runs")


class SteeredFamily:
    """Makes environments of steered policies."""

    def names(self) -> Iterable[str]:
        """Return no names: the address is the name of another environment."""
        return ()

    def at(self, address: str, *, base: str, reach: float = REACH, **arguments: Any) -> SteeredEnv:
        """Return the environment named by `address` with a policy to steer.

        base: a run of flow-bc. reach: largest noise in standard deviations. The rest goes to the environment.
        """
        if base == "latest":
            fix = "name the run, such as --environment.arguments.base runs/20260101-120000-offline-flow-bc-0"
            raise InvalidSetting("The latest run would be the one that begins.", got="base latest", fix=fix)
        run = find_run(base, RUNS)
        policy = policy_of(run, recipe_of(run))
        if not isinstance(policy, ChunkPolicy):
            raise InvalidSetting(
                "The base cannot be steered.", got=f"{run.path.name}, of {recipe_of(run).algorithm}", allowed="a run of flow-bc"
            )
        return SteeredEnv(make_environment(address, **arguments), policy, reach=reach)


FAMILY = SteeredFamily()
