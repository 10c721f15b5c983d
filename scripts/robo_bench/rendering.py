"""Measure drawing of pictures, for `robo-rl bench render`.

The contestants of a case draw the same states from the same camera.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import gymnasium
import mujoco
import numpy as np

from robo_bench.measurement import Bound, Case, Contestants, Effort, Trial, rate
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import SequentialEnvironments
from robo_sims.cameras import PLAIN, PRETTY, Cameras

SIZE, LARGE, BATCH = 84, 320, 16
BLIND = "without a camera"


def cases(effort: Effort) -> list[Case]:
    """Return the cases of the benchmark: pictures per second of one state, of a batch, and as observations of environments."""
    return [
        Case(f"HalfCheetah-v5 {SIZE}x{SIZE}", "pictures/s", partial(_one_picture, SIZE, {})),
        Case(f"HalfCheetah-v5 {LARGE}x{LARGE}, plain", "pictures/s", partial(_one_picture, LARGE, {"detail": PLAIN})),
        Case(f"HalfCheetah-v5 {LARGE}x{LARGE}, pretty", "pictures/s", partial(_one_picture, LARGE, {"detail": PRETTY})),
        Case(f"HalfCheetah-v5 {SIZE}x{SIZE}, batch of {BATCH}", "pictures/s", _batch),
        Case(f"ArmPick-v0 with its front camera {SIZE}x{SIZE}", "control steps/s", _arm),
        Case(f"ArmPick-v0 with its front camera {SIZE}x{SIZE}, {BATCH} environments", "pictures/s", _arms),
    ]


def _one_picture(size: int, details: dict[str, Any], _: Effort, stack: ExitStack) -> Contestants:
    """Return contestants that draw a cheetah: Gymnasium as it comes, Gymnasium without shadows and reflections, ours."""
    default, light = (_gymnasium(size, stack) for _ in range(2))
    light.model.light_castshadow[:] = light.model.mat_reflectance[:] = 0
    cameras = stack.enter_context(closing(Cameras(height=size, width=size, **details)))
    return {
        "ours": rate(lambda: len(cameras.draw((default.data,), "track"))),
        "gymnasium": rate(lambda: _render(default)),
        "gymnasium without shadows and reflections": rate(lambda: _render(light)),
    }


def _batch(_: Effort, stack: ExitStack) -> Contestants:
    """Return contestants that draw many states of one model: with one context, and with one for each."""
    model = _gymnasium(SIZE, stack).model
    datas = [mujoco.MjData(model) for _ in range(BATCH)]
    for number, data in enumerate(datas):
        data.qpos[2] = 0.1 * number
        mujoco.mj_forward(model, data)
    cameras = stack.enter_context(closing(Cameras(height=SIZE, width=SIZE)))
    renderers = [stack.enter_context(_light_renderer(model)) for _ in datas]
    out = np.empty((BATCH, SIZE, SIZE, 3), np.uint8)

    def draw_each() -> int:
        for renderer, data, picture in zip(renderers, datas, out, strict=True):
            renderer.update_scene(data, "track")
            renderer.render(out=picture)
        return BATCH

    return {"ours": rate(lambda: len(cameras.draw(datas, "track", out))), "a mujoco.Renderer for each": rate(draw_each)}


def _arm(_: Effort, stack: ExitStack) -> Contestants:
    """Return contestants that take control steps of the arm: with and without an observed picture."""

    def stepping(cameras: tuple[str, ...]) -> Trial:
        environment = stack.enter_context(closing(make_environment("robo/ArmPick-v0", cameras=cameras)))
        environment.reset(seed=0)
        still = np.zeros(environment.action_space.shape or (), np.float32)

        def step() -> int:
            if environment.step(still)[3]:
                environment.reset(seed=0)
            return 1

        return rate(step)

    return {"ours": stepping(("front",)), BLIND: Bound(stepping(()))}


def _arms(_: Effort, stack: ExitStack) -> Contestants:
    """Return contestants with pictures, a batch of arms and single environments, and the batch without pictures."""
    task, front = "robo/ArmPick-v0", ("front",)

    def stepping(vector: gymnasium.vector.VectorEnv[Any, Any, Any]) -> Trial:
        stack.enter_context(closing(vector)).reset(seed=0)
        still = np.zeros(vector.action_space.shape or (), np.float32)

        def step() -> int:
            vector.step(still)
            return vector.num_envs

        return rate(step)

    return {
        "ours": stepping(make_vector_environment(task, BATCH, cameras=front)),
        "SyncVectorEnv": stepping(SequentialEnvironments(lambda: make_environment(task, cameras=front), BATCH)),
        BLIND: Bound(stepping(make_vector_environment(task, BATCH))),
    }


def _gymnasium(size: int, stack: ExitStack) -> Any:
    made = gymnasium.make("HalfCheetah-v5", render_mode="rgb_array", width=size, height=size, camera_name="track")
    environment: Any = stack.enter_context(closing(made)).unwrapped
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
