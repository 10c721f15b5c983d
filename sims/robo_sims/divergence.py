"""Detects divergence of a MuJoCo simulation.

By default MuJoCo resets a bad state silently to the model's initial state, which looks like an ordinary step to a learner. Here
that reset is disabled, and environments check the state after each control step.
"""

from __future__ import annotations

import logging
import math

import mujoco

_STATES = ("qpos", "qvel", "qacc")
_WARNINGS = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


class DivergenceMonitor:
    """Divergence check of one model and data; disables the model's automatic reset."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, fastest: float = math.inf) -> None:
        """fastest: [m/s, rad/s] largest norm of all velocities.

        MuJoCo itself warns only above 1e10: a body at 1e6 m/s would pass.
        """
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        # Without a handler MuJoCo appends each warning to MUJOCO_LOG.TXT in the working directory.
        mujoco.set_mju_user_warning(_log_warning)
        self._states = [getattr(data, name) for name in _STATES]
        self._warnings = [data.warning[int(warning)] for warning in _WARNINGS]
        self._counts = [0] * len(_WARNINGS)
        self._fastest = fastest**2
        self.reset()

    def reset(self) -> None:
        """Store the warning counters; call it after mj_resetData, at the start of an episode."""
        self._counts = [int(warning.number) for warning in self._warnings]

    def reason(self) -> str | None:
        """Return the reason of a divergence in words, or None if the state is valid."""
        squares = [state.dot(state) for state in self._states]  # a quarter of the time of np.isfinite
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
