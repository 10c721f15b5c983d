"""The wrapper `adversary`: forces are learnt that a run's policy, frozen, can bear least."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.assembly import policy_of, recipe_of
from robo_rl.environments.forces import Forces, OpposedEnv
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import find_run

RUNS = Path("runs")


@dataclass(frozen=True)
class AdversaryWrapper(EnvironmentWrapper):
    """Let a run's policy act, and learn the forces that it can bear least."""

    changes = ("action", "success_rule", "costs")

    policy: str = ""
    """A run, by name or path, whose policy is frozen."""
    force: float = 1.0
    """[N] Largest force along each of `axes` on each of `bodies`."""
    bodies: tuple[str, ...] = ()
    axes: str = "xz"

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> OpposedEnv:
        if self.policy in ("", "latest"):  # the latest would be the adversary's own run as soon as it is made
            raise InvalidSetting(
                "An adversary needs a named policy.", got=self.policy or "none", allowed="policy: RUN", fix="name a run"
            )
        run = find_run(self.policy, RUNS)
        forces = Forces(environment, self.bodies, self.axes, self.force)
        return OpposedEnv(environment, policy_of(run, recipe_of(run)), forces)
