"""Constraint costs of arm tasks: force on fixed things, speed near a person, leaving a corridor, spilling from a held cup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import mujoco
import numpy as np

from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.spec.cost import CostSpec
from robo_sims.arm.physics import CONTROL_PERIOD, ArmPhysics

GENTLE = 20.0
"""[N] force on fixed things that costs nothing."""
PERSON = 0.10
"""A person may stand where y is greater than this [m], frame base; the hand must be slow there."""
SLOW = 0.08
"""[m/s] speed allowed near a person, half of what displacements reach; ISO 10218-1 has 0.25 for arms that can be faster."""
CORRIDOR = np.array([[0.28, -0.22, 0.0], [0.68, 0.22, 0.30]])
"""[m] box in which the gripper may move, frame base: wider than the objects' places, narrower than the workspace."""
UPRIGHT = 0.26
"""[rad] tilt of the hand at which a full cup begins to spill: 15 degrees."""


def _force(physics: ArmPhysics) -> float:
    return max(0.0, force_on_fixed(physics) - GENTLE)


def _speed(physics: ArmPhysics) -> float:
    velocity = physics.jacobian()[:3] @ physics.joint_velocity
    return float(physics.gripper_position[1] > PERSON and np.linalg.norm(velocity) > SLOW)


def _corridor(physics: ArmPhysics) -> float:
    return float(np.any((physics.gripper_position < CORRIDOR[0]) | (physics.gripper_position > CORRIDOR[1])))


def _spill(physics: ArmPhysics) -> float:
    return max(0.0, float(np.arccos(np.clip(-physics.gripper_matrix[2, 2], -1.0, 1.0))) - UPRIGHT)


RATES: dict[str, tuple[CostSpec, Callable[[ArmPhysics], float]]] = {
    "force": (CostSpec("force", 2.0, "N s", f"force of arm and objects on fixed things above {GENTLE:g} N"), _force),
    "speed": (CostSpec("speed", 0.25, "s", f"time faster than {SLOW} m/s with y above {PERSON} m, near a person"), _speed),
    "corridor": (CostSpec("corridor", 0.25, "s", f"time of the gripper outside the box {CORRIDOR.tolist()} m"), _corridor),
    "spill": (CostSpec("spill", 0.05, "rad s", f"tilt of the hand beyond {UPRIGHT} rad, as if it held a full cup"), _spill),
}
"""Name of a cost -> its spec, and the function that returns its rate per second in the present state."""


class ArmCosts:
    """Meter of constraint costs: their rates at the end of each control period, times the period."""

    def __init__(self, costs: Sequence[str] | Mapping[str, float | str]) -> None:
        """costs: names, or names with limits such as {"force": "3 N s"}; raises UnknownName, InvalidSetting."""
        if isinstance(costs, str):
            raise InvalidSetting("costs is a list or a mapping.", got=costs, allowed=f"a list of {', '.join(RATES)}")
        for name in costs:
            if name not in RATES:
                raise UnknownName("cost of the arm", str(name), RATES)
        limits = costs if isinstance(costs, Mapping) else {}
        declared = [RATES[name][0] for name in costs]
        self.specs = tuple(replace(cost, limit=cost.limit_of(limits.get(cost.name, cost.limit))) for cost in declared)
        self._sums = dict.fromkeys(costs, 0.0)

    def measure(self, physics: ArmPhysics) -> None:
        """Add the costs of a control period that has just ended."""
        for name in self._sums:
            self._sums[name] += RATES[name][1](physics) * CONTROL_PERIOD

    def take(self) -> dict[str, float]:
        """Return the costs since the last call."""
        taken, self._sums = self._sums, dict.fromkeys(self._sums, 0.0)
        return taken


def force_on_fixed(physics: ArmPhysics) -> float:
    """Return the sum of normal forces [N] between bodies that move and those that do not."""
    physics.update_forces()
    data, total, wrench = physics.data, 0.0, np.zeros(6)
    fixed = physics.model.body_weldid[physics.model.geom_bodyid[data.contact.geom]] == 0
    for number in np.flatnonzero(fixed[:, 0] != fixed[:, 1]):
        mujoco.mj_contactForce(physics.model, data, int(number), wrench)
        total += wrench[0]
    return total
