"""Family "world": environments inside worlds that `robo-rl world fit` learned, `world:FOLDER`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.components import EnvironmentFamily

if TYPE_CHECKING:
    from robo_papers.world_models.batch import WorldBatch

SETTINGS = ("starts", "horizon", "penalty", "device", "render_mode")
STARTS = ("first", "any")


class WorldFamily(EnvironmentFamily):
    """Environment family of learned worlds.

    It lists no names, because each environment is named by its folder: `world:FOLDER`.
    """

    @override
    def names(self) -> Iterable[str]:
        return ()

    @override
    def make(self, name: str, **arguments: Any) -> NoReturn:
        raise UnknownName("task of family 'world'", name, (), fix="a world is world:FOLDER, as `robo-rl world fit` wrote it")

    def at(self, address: str, *, render_mode: str | None = None, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Return an environment inside the world in a folder.

        Args:
            address: Folder of the world.
            render_mode: None, or "rgb_array" if the real environment can draw observations.
            **arguments: starts: "first" for the first states of recorded episodes, "any" for any recorded ones. horizon: time
                limit [steps], by default that of the spec. penalty: deviations of reward that a disagreement of the world's
                members by one deviation costs, by default 0. device: of the networks, by default cpu.
        """
        from robo_papers.world_models.environment import ImaginedEnv

        return ImaginedEnv(_batch(address, 1, arguments), render_mode)

    def make_vector_at(
        self, address: str, num_envs: int, *, threads: int | None = None, autoreset_mode: Any = "NextStep", **arguments: Any
    ) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
        """Return `num_envs` environments in one batch; arguments as in `at`. threads: without effect."""
        from robo_papers.world_models.environment import ImaginedEnvironments

        arguments.pop("render_mode", None)
        return ImaginedEnvironments(_batch(address, num_envs, arguments), autoreset_mode=autoreset_mode)


def _batch(address: str, num_envs: int, arguments: dict[str, Any]) -> WorldBatch:
    starts, horizon = arguments.get("starts", STARTS[0]), arguments.get("horizon")
    if starts not in STARTS:
        raise UnknownName("value of starts", str(starts), STARTS)
    if horizon is not None and (not isinstance(horizon, int) or isinstance(horizon, bool) or horizon < 1):
        raise InvalidSetting("horizon is out of range.", got=repr(horizon), allowed="integer from 1")
    penalty = arguments.get("penalty", 0.0)
    if not isinstance(penalty, int | float) or isinstance(penalty, bool) or not 0.0 <= penalty < math.inf:
        raise InvalidSetting("penalty is out of range.", got=repr(penalty), allowed="number from 0")
    from robo_papers.world_models.batch import WorldBatch
    from robo_papers.world_models.world import load_world

    world = load_world(address).on(arguments.get("device", "cpu"))
    _require_recorded(arguments, world.facts.get("arguments", {}))
    return WorldBatch(world, num_envs, starts=starts, horizon=horizon, penalty=float(penalty))


def _require_recorded(arguments: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Raise InvalidSetting for arguments of the real environment unless the episodes were recorded with them.

    They may be there, because a recipe for the real environment has them.
    """
    for name, value in arguments.items():
        if name not in SETTINGS and (name not in recorded or recorded[name] != value):
            there = f"{name} {recorded[name]!r}" if name in recorded else f"no argument {name}"
            raise InvalidSetting(
                "The world was learned from episodes with other arguments.",
                got=f"{name} {value!r}",
                allowed=f"{there}, as recorded; and those of a world: {', '.join(SETTINGS)}",
                fix="leave the argument out, or fit a world to episodes that are recorded with it",
            )


FAMILY = WorldFamily()
"""Environments inside learned worlds."""
