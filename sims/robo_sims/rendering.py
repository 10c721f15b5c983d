"""Drawing without a display: which OpenGL back end works here, and cameras for a MuJoCo model.

MuJoCo reads MUJOCO_GL once, when it is first imported: the choice comes before that import, and nothing here imports it early.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import subprocess
import sys
import weakref
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robo_rl.errors import RenderingUnavailable

if TYPE_CHECKING:
    import mujoco

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


@dataclass(frozen=True)
class Detail:
    """How finely pictures are drawn; without a graphics card this decides the frame rate."""

    samples: int
    """per pixel, against jagged edges; 0 takes one"""
    slices: int
    """flat faces around a cylinder"""


SENSOR = Detail(samples=0, slices=16)
"""For small pictures that a policy looks at."""
FINE = Detail(samples=4, slices=40)
"""For people."""


class Cameras:
    """Draws a model's cameras in a light scene: no shadows, no reflections. Opens OpenGL at the first picture."""

    def __init__(self, model: mujoco.MjModel, *, height: int, width: int, detail: Detail = SENSOR) -> None:
        self._model, self._size, self._detail = model, (height, width), detail
        self._renderer: Any = None

    def picture(self, data: mujoco.MjData, camera: str) -> npt.NDArray[np.uint8]:
        """Returns (height, width, 3) uint8 RGB."""
        if self._renderer is None:
            self._renderer = self._open()
        self._renderer.update_scene(data, camera)
        image: npt.NDArray[np.uint8] = self._renderer.render()
        return image

    def close(self) -> None:
        """Frees the OpenGL context; a later picture opens a fresh one."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def _open(self) -> Any:
        import mujoco

        quality, (height, width) = self._model.vis.quality, self._size
        quality.offsamples, quality.numslices = self._detail.samples, self._detail.slices
        quality.numstacks, quality.numquads = self._detail.slices // 2, 2
        self._model.vis.global_.offheight, self._model.vis.global_.offwidth = height, width  # the buffer is cleared whole
        try:
            renderer = mujoco.Renderer(self._model, *self._size)
        except Exception as error:  # each back end raises its own kinds, down to AttributeError of a missing library
            raise RenderingUnavailable(
                "MuJoCo cannot open an OpenGL context.",
                got=f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '(unset)')}: {error}",
                allowed=" or ".join(BACKENDS),
                fix=f"as root: {INSTALL}; and import robo_sims before mujoco, or set MUJOCO_GL=egl before Python starts",
            ) from error
        _OPEN.add(self)
        _close_before_opengl_ends()
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            renderer.scene.flags[flag] = 0
        return renderer


_OPEN: weakref.WeakSet[Cameras] = weakref.WeakSet()


@cache
def _close_before_opengl_ends() -> None:
    """Makes the interpreter close what a program leaves open; called after MuJoCo's back end has registered its own end.

    Exit handlers run last in, first out. A weakref.finalize would not do: all of them share the handler of the first one.
    """
    atexit.register(_close_all)


def _close_all() -> None:
    for cameras in list(_OPEN):
        cameras.close()


def _is_loadable(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
