"""Drawing without a display: which OpenGL back end works here.

MuJoCo reads MUJOCO_GL once, when it is first imported: the choice comes before that import, and nothing here imports it early.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

from robo_rl.errors import RenderingUnavailable

BACKENDS = {"egl": "libEGL.so.1", "osmesa": "libOSMesa.so.8"}
"""Headless back ends in order of preference, and the shared library that each needs."""
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
    """Sets MUJOCO_GL to the first headless back end whose library is here, unless it is set or there is a display."""
    if sys.platform != "linux" or "MUJOCO_GL" in os.environ or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        return
    backend = next((name for name, library in BACKENDS.items() if _is_loadable(library)), None)
    if backend is not None:
        os.environ["MUJOCO_GL"] = backend


def probe(backend: str, *, timeout: float = 60.0) -> str | None:
    """Draws one picture in a process of its own; returns None if that works, else the last line of what went wrong.

    backend: "egl", "osmesa" or "glfw". timeout: [s].
    """
    environment = {**os.environ, "MUJOCO_GL": backend, "PYOPENGL_PLATFORM": backend if backend != "glfw" else ""}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:g} s"
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else (lines[-1] if lines else f"exit status {done.returncode}")


def choose_backend() -> str:
    """Returns the first headless back end that really draws; raises RenderingUnavailable with the remedy."""
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
