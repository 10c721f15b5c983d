"""Headless rendering: choice of the OpenGL back end.

MuJoCo reads MUJOCO_GL once, at its first import: the choice must come before, and this module does not import it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from robo_rl.errors import RenderingUnavailable, printable

BACKENDS = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
"""Headless back ends in order of preference -> required shared library."""
OTHERS = ("glfw", "glx", "", "enable", "enabled", "on", "true", "1", "disable", "disabled", "off", "false", "0")
"""Further values of MUJOCO_GL accepted on Linux; the last five disable rendering."""
OFF = OTHERS[-5:]
REQUESTED = os.environ.get("MUJOCO_GL")
"""Back end requested by the environment variable; None leaves the choice to `prefer_headless`."""
INSTALL = "apt-get install -y libegl1 libgl1 libgles2 libosmesa6 libgl1-mesa-dri"

_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    assert renderer.render().max() > 0, "the picture is black"
"""


def prefer_headless() -> None:
    """Set MUJOCO_GL to the first installed headless back end, unless it is set or there is a display.

    If it is set to a value that cannot work, a later import of MuJoCo raises RenderingUnavailable.
    """
    if sys.platform == "linux" and (problem := setting_problem(os.environ.get("MUJOCO_GL", ""))) is not None:
        sys.meta_path.insert(0, _Refusal(problem))
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
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
    """Import hook that raises one clear error for MuJoCo, whose own import would raise that of some library."""

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


def probe(backend: str | None, *, timeout: float = 60.0) -> str | None:
    """Draw one picture in a child process; return None if that works, else the last line of its error.

    backend: "egl", "osmesa" or "glfw"; None for the present environment variables. timeout: [s].
    """
    other = {} if backend is None else {"MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend if backend != "glfw" else ""}
    environment = {**os.environ, **other}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"exit status {done.returncode}")


def choose_backend() -> str:
    """Return the first headless back end that can draw; raises RenderingUnavailable with the fix."""
    problems = {}
    for backend in BACKENDS:
        problem = probe(backend)
        if problem is None:
            return backend
        problems[backend] = problem
    raise RenderingUnavailable(
        "No OpenGL back end can draw without a display.",
        got="; ".join(f"{backend}: {problem}" for backend, problem in problems.items()),
        allowed=" or ".join(BACKENDS),
        fix=f"as root: {INSTALL}",
    )


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
