"""Notices when a MuJoCo simulation has left the realm of finite numbers.

By default MuJoCo answers a bad state with a silent reset to the model's initial state, which looks like an ordinary step to a
learner. Here that reset is switched off and the environment asks after each control step whether the state can still be used.
"""

from __future__ import annotations

import logging
import math

import mujoco

_STATES = ("qpos", "qvel", "qacc")
_WARNINGS = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class DivergenceMonitor:
    """Watches one pair of model and data; switches the model's automatic reset off."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, fastest: float = math.inf) -> None:
        """fastest: [m/s, rad/s] of all velocities together, above which the state is none of the real world.

        MuJoCo itself warns from 1e10 on, so that a body which was thrown at 1e6 m/s passes for sound.
        """
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        # Without a handler of our own MuJoCo appends each warning to MUJOCO_LOG.TXT in the working directory.
        mujoco.set_mju_user_warning(_log_warning)
        self._states = [getattr(data, name) for name in _STATES]
        self._warnings = [data.warning[int(warning)] for warning in _WARNINGS]
        self._counts = [0] * len(_WARNINGS)
        self._fastest = fastest**2
        self.reset()

    def reset(self) -> None:
        """Notes the warning counters; call it after mj_resetData, at the start of an episode."""
        self._counts = [int(warning.number) for warning in self._warnings]

    def reason(self) -> str | None:
        """Returns None while the simulation is sound, else what is wrong with it, in words."""
        squares = [state.dot(state) for state in self._states]  # a quarter of the time of looking at each element
        for name, square in zip(_STATES, squares, strict=True):
            if not math.isfinite(square):
                return f"{name} is not finite"
        if squares[1] > self._fastest:
            return f"qvel is above {math.sqrt(self._fastest):g}"
        for kind, warning, before in zip(_WARNINGS, self._warnings, self._counts, strict=True):
            if warning.number > before:
                return f"MuJoCo warning {kind.name.removeprefix('mjWARN_')}"
        return None


def _log_warning(message: str) -> None:
    logging.getLogger("mujoco").info(message)
