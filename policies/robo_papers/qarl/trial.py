"""The environment of the conformance suite with a body that an adversary can push."""

from __future__ import annotations

import mujoco

from robo_rl.conformance.swerving import Swerving


class WithBody(Swerving):
    """Environment of the conformance suite with a MuJoCo model, so that an adversary can push a body."""

    model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><body name='it'><geom size='1'/></body></worldbody></mujoco>")

    def __init__(self) -> None:
        super().__init__()
        self.data = mujoco.MjData(self.model)
