"""Environment wrapper in which the forces are learnt that a trained policy can bear least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
from typing_extensions import override

from robo_app.training.policy_wrappers import trained
from robo_papers.qarl.forces import Forces, OpposedEnv
from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting


@dataclass(frozen=True)
class AdversaryWrapper(EnvironmentWrapper):
    """Let a run's policy act, and learn the forces that lower its return most."""

    changes = ("action", "success_rule", "costs")

    policy: str = ""
    """Name or path of the run whose policy acts; it does not learn further."""
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
        return OpposedEnv(environment, trained(self.policy), Forces(environment, self.bodies, self.axes, self.force))
