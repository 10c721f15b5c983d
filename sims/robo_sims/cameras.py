"""Rendering of MuJoCo models with shared OpenGL contexts, and camera pictures as observations.

Without a graphics card, shadows, reflections (which draw the scene again) and multisampling take most of the time. They are off
unless a `Detail` enables them; docs/simulators/rendering.md has the measurements.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeAlias

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, RenderingUnavailable, UnknownName
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.stopwatch import timed
from robo_rl.system.opengl import BACKENDS, INSTALL

Pictures = npt.NDArray[np.uint8]
"""RGB pictures (..., H, W, 3) uint8."""
Camera: TypeAlias = str | int | mujoco.MjvCamera
"""Name or number of a camera of the model, or a free camera."""

IMAGE_SIZES = range(8, 961)
"""Allowed heights and widths of observed pictures [pixel]."""
MOST_GEOMS = 10_000
"""Maximum number of geoms in a scene."""


@dataclass(frozen=True)
class Detail:
    """Rendering quality; without a graphics card it decides how long a picture takes."""

    samples: int
    """Samples per pixel, for anti-aliasing; 0 for a single one."""
    slices: int
    """Number of flat faces around a cylinder."""
    shadows: int = 0
    """Width of the shadow map [pixel]; 0 for no shadows."""
    reflections: bool = False
    """True to draw reflections."""


SENSOR = Detail(samples=0, slices=12)
"""Rendering quality of the pictures that are part of observations: no anti-aliasing, coarse round shapes."""
PLAIN = Detail(samples=0, slices=28)
"""Quality of videos."""
PRETTY = Detail(samples=4, slices=40, shadows=2048, reflections=True)
"""Quality of single pictures for people; one takes as long as dozens of plain pictures."""
DETAILS = {"sensor": SENSOR, "plain": PLAIN, "pretty": PRETTY}
"""Value of the argument `detail` of environments -> quality."""


def detail_of(name: str) -> Detail:
    """Return the Detail of a name of DETAILS; raises UnknownName."""
    if name not in DETAILS:
        raise UnknownName("detail of pictures", str(name), DETAILS)
    return DETAILS[name]


class Cameras:
    """Draws pictures of one size and quality.

    The OpenGL context is opened for the first picture. Instances with equal size, quality and geometry of the model share it.
    """

    def __init__(self, *, height: int, width: int, detail: Detail = SENSOR) -> None:
        self._settings = height, width, detail
        self._stage: _Stage | None = None

    def picture(self, data: mujoco.MjData, camera: Camera) -> Pictures:
        """Return a new RGB picture (height, width, 3) uint8; raises UnknownName for an unknown camera."""
        return np.asarray(self.draw((data,), camera)[0])

    def draw(self, datas: Sequence[mujoco.MjData], camera: Camera, out: Pictures | None = None) -> Pictures:
        """Draw one camera in N states, and return the pictures uint8 (N, height, width, 3).

        out: array of this shape to write to; None for a new one.
        """
        height, width, _ = self._settings
        pictures = np.empty((len(datas), height, width, 3), np.uint8) if out is None else out
        timed("render", lambda: self._draw(datas, camera, pictures))
        return pictures

    def close(self) -> None:
        """Free the OpenGL context, unless other instances use it; a later picture opens a new one."""
        self._stage = None

    def _draw(self, datas: Sequence[mujoco.MjData], camera: Camera, out: Pictures) -> None:
        for data, picture in zip(datas, out, strict=True):
            self._stage_for(data.model).draw(data, camera, picture)

    def _stage_for(self, model: mujoco.MjModel) -> _Stage:
        if self._stage is None or self._stage.looks != _looks(model):
            self._stage = _shared_stage(model, *self._settings)
        return self._stage


class CameraObservations:
    """Adds camera pictures to observations, as `camera_<name>` for each requested camera of a MuJoCo model."""

    def __init__(self, model: mujoco.MjModel, names: Sequence[str], image_size: int) -> None:
        """Choose cameras.

        Args:
            model: MuJoCo model.
            names: Names of cameras of the model; the name of an unnamed one is its number.
            image_size: Height and width of the pictures [pixel], 8 to 960.

        Raises:
            InvalidSetting: `names` is no list, or the size is not allowed.
            UnknownName: The model has no such camera.
        """
        if isinstance(names, str):
            raise InvalidSetting(
                "cameras must be a list.", got=repr(names), allowed=f"list of names from {camera_names(model)}"
            )
        if not isinstance(image_size, int) or image_size not in IMAGE_SIZES:
            allowed = f"integer {IMAGE_SIZES[0]} to {IMAGE_SIZES[-1]} [pixel]"
            raise InvalidSetting("image_size is out of range.", got=image_size, allowed=allowed)
        known = camera_names(model)
        for name in names:
            if name not in known:
                raise UnknownName("camera", str(name), known)
        self._keys = {_key(name): known.index(name) for name in names}
        shape = (image_size, image_size, 3)
        self.arrays = tuple(ArraySpec(_key(name), shape, "uint8", 0, 255, role="image") for name in names)
        """Specs of the pictures; empty without cameras."""
        self._cameras = Cameras(height=image_size, width=image_size)

    def added_to(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec with the pictures added after its other observations."""
        return replace(spec, observation=ObservationSpec((*spec.observation.arrays, *self.arrays))) if self.arrays else spec

    def observe(self, data: mujoco.MjData) -> dict[str, Pictures]:
        """Return a new picture uint8 (H, W, 3) of each camera, by observation name."""
        return {key: pictures[0] for key, pictures in self.observe_all((data,)).items()}

    def observe_all(self, datas: Sequence[mujoco.MjData]) -> dict[str, Pictures]:
        """Return new pictures uint8 (N, H, W, 3) of N states for each camera, by observation name."""
        return {key: self._observe_all(datas, number) for key, number in self._keys.items()}

    def _observe_all(self, datas: Sequence[mujoco.MjData], number: int) -> Pictures:
        pictures = self._cameras.draw(datas, number)
        for index, data in enumerate(datas):
            pictures[index] = upright(pictures[index], data, number)
        return pictures

    def close(self) -> None:
        """Free the OpenGL context."""
        self._cameras.close()


def camera_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return the names of all cameras of a model; an unnamed one has its number as name."""
    return tuple(model.camera(number).name or str(number) for number in range(model.ncam))


def upright(picture: Pictures, data: mujoco.MjData, camera: Camera) -> Pictures:
    """Return a picture (H, W, 3), rotated by 180 degrees if its camera is fixed upside down, as some in Meta-World."""
    seen = data.camera(camera)
    stands_still = data.model.cam_bodyid[seen.id] == 0
    upwards = seen.xmat[7]  # vertical component of the picture's up axis; about 0 for a view from above
    return picture[::-1, ::-1].copy() if stands_still and upwards < -0.1 else picture


def free_camera(data: mujoco.MjData, settings: dict[str, Any]) -> mujoco.MjvCamera:
    """Return a free camera as in Gymnasium's tasks, which looks at the middle of the scene.

    settings: attributes of the camera that are set afterwards, as in Gymnasium's `default_cam_config`.
    """
    camera = mujoco.MjvCamera()
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE
    camera.lookat[:] = np.median(data.geom_xpos, axis=0)
    camera.distance = data.model.stat.extent
    for name, value in settings.items():
        if isinstance(value, np.ndarray):
            getattr(camera, name)[:] = value
        else:
            setattr(camera, name, value)
    return camera


class _Stage:
    """OpenGL context and scene of a model; it exists as long as a Cameras object uses it."""

    def __init__(self, model: mujoco.MjModel, height: int, width: int, detail: Detail) -> None:
        self.looks = _looks(model)
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0  # sensor rays are not visible objects
        self._scene = mujoco.MjvScene(model, MOST_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = detail.shadows > 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = detail.reflections
        self._frame = mujoco.MjrRect(0, 0, width, height)
        self._upside_down = np.empty((height, width, 3), np.uint8)
        self._terrain = model.hfield_data.copy()
        self._window, self._context = _open(model, height, width, detail)

    def draw(self, data: mujoco.MjData, camera: Camera, out: Pictures) -> None:
        """Draw a picture into `out` (H, W, 3)."""
        model = data.model
        viewpoint = camera if isinstance(camera, mujoco.MjvCamera) else _fixed(model, camera)
        mujoco.mjv_updateScene(model, data, self._option, None, viewpoint, mujoco.mjtCatBit.mjCAT_ALL, self._scene)
        self._window.make_current()
        self._upload_terrain(model)
        mujoco.mjr_render(self._frame, self._scene, self._context)
        mujoco.mjr_readPixels(self._upside_down, None, self._frame, self._context)
        out[:] = self._upside_down[::-1]

    def close(self) -> None:
        """Free the context."""
        if self._context is not None:
            self._window.make_current()
            self._context.free()
            self._window.free()
            self._context = None

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            self.close()

    def _upload_terrain(self, model: mujoco.MjModel) -> None:
        """Upload height fields that have changed: some tasks draw new ones for every episode."""
        if model.nhfield and not np.array_equal(self._terrain, model.hfield_data):
            self._terrain[:] = model.hfield_data
            for number in range(model.nhfield):
                mujoco.mjr_uploadHField(model, self._context, number)


_STAGES: weakref.WeakValueDictionary[tuple[Any, ...], _Stage] = weakref.WeakValueDictionary()
_LOOKS: weakref.WeakKeyDictionary[mujoco.MjModel, bytes] = weakref.WeakKeyDictionary()


def _shared_stage(model: mujoco.MjModel, height: int, width: int, detail: Detail) -> _Stage:
    """Return the shared stage for these settings; each process and thread has its own, because OpenGL requires it."""
    key = (os.getpid(), threading.get_ident(), height, width, detail, _looks(model))
    stage = _STAGES.get(key)
    if stage is None:
        stage = _STAGES[key] = _Stage(model, height, width, detail)
    return stage


def _looks(model: mujoco.MjModel) -> bytes:
    """Return a digest of the model's geometry and materials; models with equal digests can share a stage."""
    if model not in _LOOKS:
        digest = hashlib.blake2b(repr((model.ngeom, model.nlight, model.stat.extent, model.vis.map.zfar)).encode())
        planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        for array in (planes, model.geom_size[planes], model.geom_matid, model.mat_texid, model.mat_texrepeat):
            digest.update(np.ascontiguousarray(array).data)
        for name in dir(model):
            value = getattr(model, name) if name.startswith(_UPLOADED) and name != "hfield_data" else None
            if isinstance(value, np.ndarray):
                digest.update(np.ascontiguousarray(value).data)
        _LOOKS[model] = digest.digest()
    return _LOOKS[model]


_UPLOADED = ("mesh_", "tex_", "skin_", "flex_", "hfield_")


def _open(model: mujoco.MjModel, height: int, width: int, detail: Detail) -> tuple[Any, Any]:
    """Return an OpenGL context and MuJoCo's rendering context for a model; raises RenderingUnavailable."""
    quality, buffer = model.vis.quality, model.vis.global_
    wanted: list[tuple[Any, str, int]] = [
        (quality, "offsamples", detail.samples),
        (quality, "numslices", detail.slices),
        (quality, "numstacks", detail.slices // 2),
        (quality, "numquads", 2),
        (quality, "shadowsize", detail.shadows),
        (buffer, "offheight", height),  # clearing costs the whole buffer, so it has the picture's size
        (buffer, "offwidth", width),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in wanted]
    for place, name, value in wanted:
        setattr(place, name, value)
    try:
        window = mujoco.GLContext(width, height)
        window.make_current()
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
    except Exception as error:  # each back end raises other types, even AttributeError for a missing library
        if KeyboardInterrupt.__name__ in str(error):  # ctypes turns Ctrl-C within a call into ArgumentError
            raise KeyboardInterrupt from error
        raise RenderingUnavailable(
            "MuJoCo cannot open an OpenGL context.",
            got=f"MUJOCO_GL={os.environ.get('MUJOCO_GL', '(unset)')}: {error}",
            allowed=" or ".join(BACKENDS),
            fix=f"as root: {INSTALL}; and import robo_sims before mujoco, or set MUJOCO_GL=egl before Python starts",
        ) from error
    finally:
        for place, name, value in before:
            setattr(place, name, value)
    mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, context)
    _close_before_opengl_ends()
    return window, context


@cache
def _close_before_opengl_ends() -> None:
    """Register a handler that closes open contexts at exit, after MuJoCo's back end has registered its own handler.

    Exit handlers run last in, first out. weakref.finalize does not work: all its instances share the first one's handler.
    """
    atexit.register(_close_all)


def _close_all() -> None:
    for stage in list(_STAGES.values()):
        stage.close()


def _fixed(model: mujoco.MjModel, camera: str | int) -> mujoco.MjvCamera:
    known = camera_names(model) if isinstance(camera, str) else ()
    if isinstance(camera, str) and camera not in known:
        raise UnknownName("camera", camera, known)
    viewpoint = mujoco.MjvCamera()
    viewpoint.type = mujoco.mjtCamera.mjCAMERA_FIXED
    viewpoint.fixedcamid = known.index(camera) if isinstance(camera, str) else camera
    return viewpoint


def _key(name: str) -> str:
    """Return the observation key of a camera, in snake_case."""
    return "camera_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
