"""Choice of MuJoCo's OpenGL back end on a machine without a display.

MuJoCo reads the variable MUJOCO_GL once, when it is first imported, so that the choice must come before. Packages and modules
that import MuJoCo call `prefer_headless` first; this module does not import MuJoCo.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from robo_rl.errors import RenderingUnavailable, printable

BACKENDS = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
"""Headless back ends in order of preference -> required shared library."""
OTHERS = ("glfw", "glx", "", "enable", "enabled", "on", "true", "1", "disable", "disabled", "off", "false", "0")
"""Further values of MUJOCO_GL that are accepted on Linux; the last five of them disable rendering."""
OFF = OTHERS[-5:]
REQUESTED = os.environ.get("MUJOCO_GL")
"""Back end requested by the environment variable; None leaves the choice to `prefer_headless`."""
INSTALL = "apt-get install -y libegl1 libgl1 libgles2 libosmesa6 libgl1-mesa-dri"


def prefer_headless() -> None:
    """Set MUJOCO_GL to the first installed headless back end, unless it is set or there is a display.

    If it is set to a value that cannot work, a later import of MuJoCo raises RenderingUnavailable.
    """
    if sys.platform != "linux":
        return
    if "MUJOCO_GL" in os.environ:
        problem = setting_problem(os.environ["MUJOCO_GL"])
        if problem is not None and not any(isinstance(finder, _Refusal) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Refusal(problem))
    elif not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        backend = next((name for name, library in BACKENDS.items() if _is_loadable(library)), None)
        if backend is not None:
            os.environ["MUJOCO_GL"] = backend


def setting_problem(value: str) -> str | None:
    """Return the reason why a value of MUJOCO_GL cannot work, or None."""
    backend, platform = value.lower().strip(), os.environ.get("PYOPENGL_PLATFORM", "")
    if backend not in BACKENDS:
        return None if backend in OTHERS else "no back end of that name"
    if platform and platform.lower() != backend:
        return f"PYOPENGL_PLATFORM is {printable(platform)}"
    library = BACKENDS[backend]
    found = _is_loadable(library) or ctypes.util.find_library(library.removeprefix("lib").partition(".")[0])
    return None if found else f"{library} is not installed"


class _Refusal(MetaPathFinder):
    """Import hook that raises one clear error when MuJoCo is imported, in place of an error of some library."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "mujoco":
            raise RenderingUnavailable(
                "MuJoCo cannot draw as MUJOCO_GL says.",
                got=f"MUJOCO_GL={printable(os.environ.get('MUJOCO_GL', ''))}: {self._problem}",
                allowed=f"{', '.join(BACKENDS)}, glfw, disabled, or not set",
                fix=f"unset MUJOCO_GL, or as root: {INSTALL}; `robo-rl doctor` says what works",
            )


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
