"""Draw MuJoCo models: how finely, from which camera, one state or many with one OpenGL context, and as observations.

Without a graphics card shadows and reflections, which draw the scene again, and several samples a pixel cost most of the time.
They are off unless a `Detail` asks for them; docs/rendering.md has the measurements.
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
from robo_sims.rendering import BACKENDS, INSTALL

Pictures = npt.NDArray[np.uint8]
"""(..., H, W, 3) RGB"""
Camera: TypeAlias = str | int | mujoco.MjvCamera
"""A name or number of the model, or a free camera."""

IMAGE_SIZES = range(8, 961)
"""[pixel] What a picture in an observation may measure."""
MOST_GEOMS = 10_000
"""That a scene may hold."""


@dataclass(frozen=True)
class Detail:
    """Detail of drawn pictures; without a graphics card it decides the frame rate."""

    samples: int
    """per pixel, against jagged edges; 0 takes one"""
    slices: int
    """flat faces around a cylinder"""
    shadows: int = 0
    """[pixel] width of the map from which shadows are drawn; 0 draws none"""
    reflections: bool = False
    """whether materials with reflectance mirror the scene"""


SENSOR = Detail(samples=0, slices=12)
"""For small pictures that a policy looks at."""
PLAIN = Detail(samples=0, slices=28)
"""For pictures of people's size, drawn in great numbers; the roundness is MuJoCo's own default."""
PRETTY = Detail(samples=4, slices=40, shadows=2048, reflections=True)
"""For a few pictures for people; one takes as long as dozens of plain ones."""
DETAILS = {"sensor": SENSOR, "plain": PLAIN, "pretty": PRETTY}
"""By the names that environments take as `detail`."""


def detail_of(name: str) -> Detail:
    """Returns the Detail of that name; raises UnknownName."""
    if name not in DETAILS:
        raise UnknownName("detail of pictures", str(name), DETAILS)
    return DETAILS[name]


class Cameras:
    """Draws pictures of one size; OpenGL opens at the first. Those alike in size, detail and their model's looks share it."""

    def __init__(self, *, height: int, width: int, detail: Detail = SENSOR) -> None:
        self._settings = height, width, detail
        self._stage: _Stage | None = None

    def picture(self, data: mujoco.MjData, camera: Camera) -> Pictures:
        """Returns a fresh (height, width, 3) uint8 RGB picture; raises UnknownName for a camera that does not exist."""
        return np.asarray(self.draw((data,), camera)[0])

    def draw(self, datas: Sequence[mujoco.MjData], camera: Camera, out: Pictures | None = None) -> Pictures:
        """Draws one camera in many states, with one context where their models look alike.

        out: (N, height, width, 3) uint8 to write to; a fresh array if None. Returns it.
        """
        height, width, _ = self._settings
        pictures = np.empty((len(datas), height, width, 3), np.uint8) if out is None else out
        timed("render", lambda: self._draw(datas, camera, pictures))
        return pictures

    def close(self) -> None:
        """Frees the OpenGL context unless others draw with it; a later picture opens a fresh one."""
        self._stage = None

    def _draw(self, datas: Sequence[mujoco.MjData], camera: Camera, out: Pictures) -> None:
        for data, picture in zip(datas, out, strict=True):
            self._stage_for(data.model).draw(data, camera, picture)

    def _stage_for(self, model: mujoco.MjModel) -> _Stage:
        if self._stage is None or self._stage.looks != _looks(model):
            self._stage = _shared_stage(model, *self._settings)
        return self._stage


class CameraObservations:
    """Pictures in an observation: `camera_<name>` for each camera of a model that was asked for."""

    def __init__(self, model: mujoco.MjModel, names: Sequence[str], image_size: int) -> None:
        """Raises InvalidSetting, and UnknownName with the cameras that the model has.

        names: of cameras; one without a name is called by its number. image_size: height and width [pixel].
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
        """For the spec; empty if no camera was asked for."""
        self._cameras = Cameras(height=image_size, width=image_size)

    def added_to(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec with the pictures behind its other observations."""
        return replace(spec, observation=ObservationSpec((*spec.observation.arrays, *self.arrays))) if self.arrays else spec

    def observe(self, data: mujoco.MjData) -> dict[str, Pictures]:
        """Returns fresh pictures (H, W, 3), upright even where a camera of the world hangs head down."""
        return {key: pictures[0] for key, pictures in self.observe_all((data,)).items()}

    def observe_all(self, datas: Sequence[mujoco.MjData]) -> dict[str, Pictures]:
        """Returns the same of many states, (N, H, W, 3)."""
        return {key: self._observe_all(datas, number) for key, number in self._keys.items()}

    def _observe_all(self, datas: Sequence[mujoco.MjData], number: int) -> Pictures:
        pictures = self._cameras.draw(datas, number)
        for index, data in enumerate(datas):
            pictures[index] = upright(pictures[index], data, number)
        return pictures

    def close(self) -> None:
        """Frees the OpenGL context."""
        self._cameras.close()


def camera_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Returns the names of a model's cameras; the number of one without a name."""
    return tuple(model.camera(number).name or str(number) for number in range(model.ncam))


def upright(picture: Pictures, data: mujoco.MjData, camera: Camera) -> Pictures:
    """Returns a picture turned by half where its camera stands still in the world, head down, as some of Meta-World's do."""
    seen = data.camera(camera)
    stands_still = data.model.cam_bodyid[seen.id] == 0
    upwards = seen.xmat[7]  # vertical part of the picture's upward direction; about 0 for a view from above
    return picture[::-1, ::-1].copy() if stands_still and upwards < -0.1 else picture


def free_camera(data: mujoco.MjData, settings: dict[str, Any]) -> mujoco.MjvCamera:
    """Returns the free camera of Gymnasium's tasks: it looks at the middle of the scene unless `settings` say otherwise."""
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
    """An OpenGL context with the shapes and textures of a model, and a scene to fill; kept alive by the cameras that use it."""

    def __init__(self, model: mujoco.MjModel, height: int, width: int, detail: Detail) -> None:
        self.looks = _looks(model)
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = 0  # rays of sensors are not part of the world
        self._scene = mujoco.MjvScene(model, MOST_GEOMS)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = detail.shadows > 0
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = detail.reflections
        self._frame = mujoco.MjrRect(0, 0, width, height)
        self._upside_down = np.empty((height, width, 3), np.uint8)
        self._terrain = model.hfield_data.copy()
        self._window, self._context = _open(model, height, width, detail)

    def draw(self, data: mujoco.MjData, camera: Camera, out: Pictures) -> None:
        """Writes a picture to `out`, (H, W, 3)."""
        model = data.model
        viewpoint = camera if isinstance(camera, mujoco.MjvCamera) else _fixed(model, camera)
        mujoco.mjv_updateScene(model, data, self._option, None, viewpoint, mujoco.mjtCatBit.mjCAT_ALL, self._scene)
        self._window.make_current()
        self._upload_terrain(model)
        mujoco.mjr_render(self._frame, self._scene, self._context)
        mujoco.mjr_readPixels(self._upside_down, None, self._frame, self._context)
        out[:] = self._upside_down[::-1]

    def close(self) -> None:
        """Frees the context."""
        if self._context is not None:
            self._window.make_current()
            self._context.free()
            self._window.free()
            self._context = None

    def __del__(self) -> None:
        if getattr(self, "_context", None) is not None:
            self.close()

    def _upload_terrain(self, model: mujoco.MjModel) -> None:
        """Some tasks draw new heights for every episode; everything else that is uploaded stays as it is."""
        if model.nhfield and not np.array_equal(self._terrain, model.hfield_data):
            self._terrain[:] = model.hfield_data
            for number in range(model.nhfield):
                mujoco.mjr_uploadHField(model, self._context, number)


_STAGES: weakref.WeakValueDictionary[tuple[Any, ...], _Stage] = weakref.WeakValueDictionary()
_LOOKS: weakref.WeakKeyDictionary[mujoco.MjModel, bytes] = weakref.WeakKeyDictionary()


def _shared_stage(model: mujoco.MjModel, height: int, width: int, detail: Detail) -> _Stage:
    """Returns the stage of this process and thread, to which an OpenGL context is bound."""
    key = (os.getpid(), threading.get_ident(), height, width, detail, _looks(model))
    stage = _STAGES.get(key)
    if stage is None:
        stage = _STAGES[key] = _Stage(model, height, width, detail)
    return stage


def _looks(model: mujoco.MjModel) -> bytes:
    """Returns a digest of what is uploaded to OpenGL, or sizes a scene; where bodies are and how they move does not count."""
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
    """Returns an OpenGL context, and MuJoCo's own with the model's shapes; the model itself stays as it is."""
    quality, buffer = model.vis.quality, model.vis.global_
    wanted: list[tuple[Any, str, int]] = [
        (quality, "offsamples", detail.samples),
        (quality, "numslices", detail.slices),
        (quality, "numstacks", detail.slices // 2),
        (quality, "numquads", 2),
        (quality, "shadowsize", detail.shadows),
        (buffer, "offheight", height),  # the buffer is cleared whole, so it is no larger than the picture
        (buffer, "offwidth", width),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in wanted]
    for place, name, value in wanted:
        setattr(place, name, value)
    try:
        window = mujoco.GLContext(width, height)
        window.make_current()
        context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
    except Exception as error:  # each back end raises its own kinds, down to AttributeError of a missing library
        if KeyboardInterrupt.__name__ in str(error):  # ctypes makes an ArgumentError of Ctrl-C within its call
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
    """Makes the interpreter close what a program leaves open; called after MuJoCo's back end has registered its own end.

    Exit handlers run last in, first out. A weakref.finalize would not do: all of them share the handler of the first one.
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
    """Returns the key of a camera's pictures in snake_case."""
    return "camera_" + re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
