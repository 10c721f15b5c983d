"""Family "robo": tabletop arm tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import gymnasium
from typing_extensions import override

from robo_rl.errors import UnknownName
from robo_rl.protocols.components import EnvironmentFamily
from robo_sims.task_family import refuse_unknown_arguments

if TYPE_CHECKING:
    from robo_rl.environments.captioned_pictures import CaptionedPictures
    from robo_sims.arm.realtime_arm import RealtimeArm

NAMES = ("ArmReach-v0", "ArmPush-v0", "ArmPick-v0", "ArmPegInsert-v0")
"""Keys of robo_sims.arm.tasks.TASKS, repeated here so that listing them loads no simulator."""


class ArmFamily(EnvironmentFamily):
    """Family of arm tasks, made by name."""

    @override
    def names(self) -> Iterable[str]:
        return NAMES

    @override
    def make(self, name: str, *, relative_frame: bool = False, **arguments: Any) -> gymnasium.Env[Any, Any]:
        """Return a new environment; arguments as in ArmEnv, raises UnknownName for any other.

        relative_frame: observe and command in the frames of robo_rl.environments.relative_frame.
        """
        _require(name)
        from robo_sims.arm.environment import ArmEnv

        refuse_unknown_arguments(f"robo/{name}", ArmEnv, arguments, also=["relative_frame"])
        environment = ArmEnv(name, **arguments)
        if not relative_frame:
            return environment
        from robo_rl.environments.relative_frame import RelativeFrame

        return RelativeFrame(environment)

    def make_vector(
        self, name: str, num_envs: int, *, relative_frame: bool = False, **arguments: Any
    ) -> gymnasium.vector.VectorEnv[Any, Any, Any] | None:
        """Return a vector environment; raises UnknownName for an argument that ArmEnv does not take.

        None in the relative frame, with randomisation and with costs, which have no batched implementation.
        """
        if relative_frame or arguments.get("randomization") is not None or arguments.get("costs"):
            return None
        _require(name)
        from robo_sims.arm.batch import build
        from robo_sims.arm.environment import ArmEnv

        settings = set(arguments) - {"threads", "autoreset_mode"}
        refuse_unknown_arguments(f"robo/{name}", ArmEnv, sorted(settings), also=["relative_frame"])
        return build(name, num_envs, **arguments)

    def make_realtime_arm(self, name: str, **arguments: Any) -> RealtimeArm:
        """Return a task's simulated arm in real time, as a stand-in for a real one; arguments as in RealtimeArm.

        Raises UnknownName if there is no such task.
        """
        _require(name)
        from robo_sims.arm.realtime_arm import RealtimeArm

        refuse_unknown_arguments(f"robo/{name}", RealtimeArm, arguments)
        return RealtimeArm(name, **arguments)

    def captioned_pictures(self, name: str, *, camera: str, size: int, count: int, seed: int) -> CaptionedPictures:
        """Return captioned pictures of a task for `robo-rl reward fit embedded`; raises UnknownName."""
        _require(name)
        from robo_sims.arm.captioned_pictures import captioned_pictures

        return captioned_pictures(name, camera=camera, size=size, count=count, seed=seed)


def _require(name: str) -> None:
    if name not in NAMES:
        raise UnknownName("task of family 'robo'", name, NAMES)


FAMILY = ArmFamily()
"""Our own seven-axis arm."""
