"""Measures how fast pictures are drawn, for `robo-rl bench render`.

The contestants of a case draw the same states from the same camera.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement, measurement
from robo_rl.discovery import make_environment, make_vector_environment
from robo_rl.vector import SequentialEnvironments
from robo_sims.cameras import PLAIN, PRETTY, Cameras

SIZE, LARGE, BATCH = 84, 320, 16
BLIND = "without a camera"
Contestants = dict[str, Callable[[], int]]
"""name -> function that does some work and returns how many units of it; "ours" is one of them"""


def cases(effort: Effort) -> Cases:
    """Returns the cases."""
    return {case: partial(_measure, case, effort) for case in CASES}


def _measure(case: str, effort: Effort) -> Measurement:
    unit, contestants = CASES[case]
    with contestants() as taking_part:
        trials = {name: partial(_rate, work) for name, work in taking_part.items()}
        return measurement("render", case, unit, trials, effort, [BLIND] if BLIND in trials else [])


@contextmanager
def _one_picture(size: int, **details: Any) -> Iterator[Contestants]:
    """A cheetah, drawn by Gymnasium as it comes, by Gymnasium without shadows and reflections, and by us."""
    with contextlib.ExitStack() as stack:
        default, light = (_gymnasium(size, stack) for _ in range(2))
        light.model.light_castshadow[:] = light.model.mat_reflectance[:] = 0
        cameras = stack.enter_context(contextlib.closing(Cameras(height=size, width=size, **details)))
        yield {
            "ours": lambda: len(cameras.draw((default.data,), "track")),
            "gymnasium": lambda: _render(default),
            "gymnasium without shadows and reflections": lambda: _render(light),
        }


@contextmanager
def _batch() -> Iterator[Contestants]:
    """Many states of one model, drawn with one context or with one for each."""
    with contextlib.ExitStack() as stack:
        model = _gymnasium(SIZE, stack).model
        datas = [mujoco.MjData(model) for _ in range(BATCH)]
        for number, data in enumerate(datas):
            data.qpos[2] = 0.1 * number
            mujoco.mj_forward(model, data)
        cameras = stack.enter_context(contextlib.closing(Cameras(height=SIZE, width=SIZE)))
        renderers = [stack.enter_context(_light_renderer(model)) for _ in datas]
        out = np.empty((BATCH, SIZE, SIZE, 3), np.uint8)

        def draw_each() -> int:
            for renderer, data, picture in zip(renderers, datas, out, strict=True):
                renderer.update_scene(data, "track")
                renderer.render(out=picture)
            return BATCH

        yield {"ours": lambda: len(cameras.draw(datas, "track", out)), "a mujoco.Renderer for each": draw_each}


@contextmanager
def _arm() -> Iterator[Contestants]:
    """Control steps of the arm that observes a picture, beside those of one that does not."""
    with contextlib.ExitStack() as stack:
        contestants: Contestants = {}
        for name, cameras in (("ours", ("front",)), (BLIND, ())):
            environment = stack.enter_context(contextlib.closing(make_environment("robo/ArmPick-v0", cameras=cameras)))
            environment.reset(seed=0)
            contestants[name] = _stepper(environment)
        yield contestants


@contextmanager
def _arms() -> Iterator[Contestants]:
    """Pictures that a batch of arms observes, beside single environments with cameras, and the steps of a batch without."""
    with contextlib.ExitStack() as stack:
        task, front = "robo/ArmPick-v0", ("front",)
        vectors: dict[str, gymnasium.vector.VectorEnv[Any, Any, Any]] = {
            "ours": make_vector_environment(task, BATCH, cameras=front),
            "SyncVectorEnv": SequentialEnvironments(lambda: make_environment(task, cameras=front), BATCH),
            BLIND: make_vector_environment(task, BATCH),
        }
        for vector in vectors.values():
            stack.enter_context(contextlib.closing(vector)).reset(seed=0)
        yield {name: _vector_stepper(vector) for name, vector in vectors.items()}


CASES: dict[str, tuple[str, Callable[[], AbstractContextManager[Contestants]]]] = {
    f"HalfCheetah-v5 {SIZE}x{SIZE}": ("pictures/s", lambda: _one_picture(SIZE)),
    f"HalfCheetah-v5 {LARGE}x{LARGE}, plain": ("pictures/s", lambda: _one_picture(LARGE, detail=PLAIN)),
    f"HalfCheetah-v5 {LARGE}x{LARGE}, pretty": ("pictures/s", lambda: _one_picture(LARGE, detail=PRETTY)),
    f"HalfCheetah-v5 {SIZE}x{SIZE}, batch of {BATCH}": ("pictures/s", _batch),
    f"ArmPick-v0 with its front camera {SIZE}x{SIZE}": ("control steps/s", _arm),
    f"ArmPick-v0 with its front camera {SIZE}x{SIZE}, {BATCH} environments": ("pictures/s", _arms),
}


def _rate(work: Callable[[], int], seconds: float) -> float:
    done, started, now = 0, time.perf_counter(), 0.0
    while done == 0 or now - started < seconds:
        done += work()
        now = time.perf_counter()
    return done / (now - started)


def _gymnasium(size: int, stack: contextlib.ExitStack) -> Any:
    made = gymnasium.make("HalfCheetah-v5", render_mode="rgb_array", width=size, height=size, camera_name="track")
    environment: Any = stack.enter_context(contextlib.closing(made)).unwrapped
    environment.reset(seed=0)
    return environment


def _render(environment: Any) -> int:
    for viewer in environment.mujoco_renderer._viewers.values():
        viewer.make_context_current()  # it counts on being the only one that draws
    environment.render()
    return 1


@contextmanager
def _light_renderer(model: mujoco.MjModel) -> Iterator[mujoco.Renderer]:
    model.vis.quality.offsamples = 0
    with mujoco.Renderer(model, SIZE, SIZE) as renderer:
        for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
            renderer.scene.flags[flag] = 0
        yield renderer


def _stepper(environment: gymnasium.Env[Any, Any]) -> Callable[[], int]:
    still = np.zeros(environment.action_space.shape or (), np.float32)

    def step() -> int:
        if environment.step(still)[3]:
            environment.reset(seed=0)
        return 1

    return step


def _vector_stepper(vector: gymnasium.vector.VectorEnv[Any, Any, Any]) -> Callable[[], int]:
    still = np.zeros(vector.action_space.shape or (), np.float32)

    def step() -> int:
        vector.step(still)
        return vector.num_envs

    return step
