"""Headless rendering: which OpenGL back end can draw."""

from __future__ import annotations

import os
import subprocess
import sys

from robo_rl.errors import RenderingUnavailable
from robo_rl.system.opengl import BACKENDS, INSTALL

_PROBE = """
import mujoco
model = mujoco.MjModel.from_xml_string('<mujoco><worldbody><light pos="0 0 3"/><geom size="1"/></worldbody></mujoco>')
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
with mujoco.Renderer(model, 16, 16) as renderer:
    renderer.update_scene(data)
    assert renderer.render().max() > 0, "the picture is black"
"""


def probe(backend: str | None, *, timeout: float = 60.0) -> str | None:
    """Try to draw a picture in a child process; return None if it works, else the last line of the error.

    backend: "egl", "osmesa" or "glfw"; None to keep the current environment variables. timeout: [s].
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
    """Return the name of the first headless back end that can draw; raises RenderingUnavailable if none can."""
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
