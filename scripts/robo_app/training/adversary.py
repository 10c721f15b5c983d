"""adversary:NAME, an environment in which forces are learnt that a run's policy, frozen, can bear least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from robo_app.training.assembly import policy_of, recipe_of
from robo_rl.environments.forces import Forces, OpposedEnv
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, RoboRLError
from robo_rl.runs.run import find_run

RUNS = Path("runs")


class AdversaryFamily:
    """Makes environments of adversaries."""

    def names(self) -> Iterable[str]:
        """Return no names: the address is the name of another environment."""
        return ()

    def at(
        self,
        address: str,
        *,
        policy: str = "",
        force: float = 1.0,
        bodies: Sequence[str] = (),
        axes: str = "xz",
        **arguments: Any,
    ) -> OpposedEnv:
        """Return the environment named by `address` with a run's policy in it.

        policy: a run, by name or path. force: [N] largest force along each of `axes` on each of `bodies`.
        """
        if policy in ("", "latest"):  # the latest would be the adversary's own run as soon as it is made
            raise InvalidSetting(
                "An adversary needs a named policy.", got=policy or "none", allowed="policy: RUN", fix="name a run"
            )
        run = find_run(policy, RUNS)
        recipe = recipe_of(run)
        objective = {name: value for name, value in recipe.arguments.items() if name == "objective"}
        environment = make_environment(address, **objective, **arguments)
        try:
            return OpposedEnv(environment, policy_of(run, recipe), Forces(environment, bodies, axes, force))
        except RoboRLError:
            environment.close()
            raise


FAMILY = AdversaryFamily()
