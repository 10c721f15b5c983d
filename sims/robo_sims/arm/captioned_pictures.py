"""Captioned pictures of random states of an arm task: training data for an image-text model."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.environments.captioned_pictures import HAND, CaptionedPictures
from robo_sims.arm.captions import States
from robo_sims.arm.inverse_kinematics import solve
from robo_sims.arm.physics import ArmPhysics, Array
from robo_sims.arm.pose_sampling import Pose, SceneObject
from robo_sims.arm.tasks import TASKS
from robo_sims.cameras import Cameras

AWAY = np.array([0.0, 0.0, -5.0])
"""[m] position of bodies that are not in a scene."""
POSES = 8
"""Pictures per scene, the first in an initial state of the task."""
ALIKE = 0.2
"""Largest difference of hues (largest component scaled to 1) between a pixel and its object, in light or shadow."""
ITERATIONS = 8
"""Inverse kinematics iterations; a residual does no harm because labels use the actual gripper position."""


class SceneRenderer:
    """Simulation that shows given states of a task without stepping; it has two objects of each kind."""

    def __init__(self, task: str, camera: str, size: int) -> None:
        bodies, self.kinds = TASKS[task].bodies, TASKS[task].kinds
        other = bodies.replace('name="', 'name="other_')
        self.physics = ArmPhysics(bodies + other)
        self.camera, self._cameras = camera, Cameras(height=size, width=size)
        self._bodies = {name: (kind.body, f"other_{kind.body}") for name, kind in self.kinds.items()}

    def show(self, pose: Pose) -> States:
        """Set the simulation to a pose of hand and objects, and return the resulting state."""
        physics = self.physics
        physics.reset()
        for kind, names in self._bodies.items():
            things = [each for each in pose.things if each.kind == kind]
            for index, name in enumerate(names):
                self._place(name, things[index] if index < len(things) else None)
        solve(physics, pose.gripper, pose.yaw, ITERATIONS)
        physics.set_opening(pose.opening)
        mujoco.mj_forward(physics.model, physics.data)  # mj_kinematics alone would not move camera and light
        return self.state(pose)

    def state(self, pose: Pose) -> States:
        """Return the ground truth of the state, N = 1."""
        things = {(colour, kind): np.full((1, 3), np.nan) for kind, of in self.kinds.items() for colour in of.colours}
        for each in pose.things:
            things[each.colour, each.kind] = each.position[None]
        return States(self.physics.gripper_position[None].copy(), things)

    def picture(self) -> npt.NDArray[np.uint8]:
        """Return a picture (H, W, 3) of the state."""
        return self._cameras.picture(self.physics.data, self.camera)

    def project(self, positions: Array) -> Array:
        """Return picture coordinates of points (..., 3) [m]: right and down in -1 to 1, and distance [m]."""
        camera, model = self.physics.data.camera(self.camera), self.physics.model
        right, up, back = np.moveaxis((positions - camera.xpos) @ camera.xmat.reshape(3, 3), -1, 0)
        half = np.tan(np.radians(model.cam_fovy[camera.id]) / 2)
        return np.stack([right / (-back * half), -up / (-back * half), -back], -1)

    def close(self) -> None:
        """Free the OpenGL context."""
        self._cameras.close()

    def _place(self, name: str, thing: SceneObject | None) -> None:
        if thing is None:
            self.physics.place(name, AWAY)
        else:
            kind, model = self.kinds[thing.kind], self.physics.model
            model.geom_rgba[model.geom_bodyid == model.body(name).id, :3] = kind.colours[thing.colour]
            self.physics.place(name, thing.position, thing.yaw if kind.turns else 0.0)


def captioned_pictures(
    task: str, *, camera: str = "front", size: int = 64, count: int = 8000, seed: int = 0
) -> CaptionedPictures:
    """Return pictures (count, size, size, 3) of a task, eight per scene."""
    random, of, renderer = np.random.default_rng(seed), TASKS[task], SceneRenderer(task, camera, size)
    pictures, states = np.empty((count, size, size, 3), np.uint8), []
    for index in range(count):
        if index % POSES == 0:
            things = of.scene(random)
        pose = (of.start if index % POSES == 0 else of.pose)(things, random)
        states.append(renderer.show(pose))
        pictures[index] = renderer.picture()
    renderer.close()
    return describe(f"robo/{task}", renderer, pictures, concatenate(states), np.arange(count) // POSES * POSES)


def describe(
    environment: str, renderer: SceneRenderer, pictures: npt.NDArray[np.uint8], states: States, firsts: npt.NDArray[np.int64]
) -> CaptionedPictures:
    """Return the pictures with captions, positions and progress of their states."""
    task = TASKS[environment.removeprefix("robo/")]
    sentences, instructions = task.sentences(), [*task.instructions()]
    colours = [task.kinds[kind].colours[colour] for colour, kind in states.things]
    positions = np.stack([states.gripper, *states.things.values()], 1)
    places = renderer.project(positions)
    return CaptionedPictures(
        environment=environment,
        camera=renderer.camera,
        pictures=pictures,
        firsts=firsts,
        slots=(HAND, *(" ".join(key) for key in states.things)),
        positions=positions.astype(np.float32),
        places=places.astype(np.float32),
        seen=visible_slots(pictures, places, [None, *colours]),
        captions=tuple(each.words for each in sentences),
        truth=np.stack([each.holds(states) for each in sentences], 1),
        instructions=tuple(each.wordings for each in instructions),
        named=tuple(tuple(" ".join(key) for key in each.things) for each in instructions),
        progress=np.stack([each.progress(states) for each in instructions], 1).astype(np.float32),
        complete=np.stack([each.complete(states) for each in instructions], 1),
        recorded=f"cameras=[{renderer.camera}] image_size={pictures.shape[1]}",
    )


Colour = tuple[float, float, float]


def visible_slots(pictures: npt.NDArray[np.uint8], places: Array, colours: Sequence[Colour | None]) -> npt.NDArray[np.bool_]:
    """Return (N, S): True if a slot is in the picture, with two pixels of its colour, if any, around it."""
    size = pictures.shape[1]
    inside = np.asarray(np.isfinite(places).all(-1) & (np.abs(np.nan_to_num(places[..., :2])) < 1).all(-1))  # (N, S)
    pixel = np.where(inside[..., None], (np.nan_to_num(places[..., :2]) + 1) / 2 * size, 0).astype(int)
    reach = np.arange(-(size // 24), size // 24 + 1)
    for slot, colour in enumerate(colours):
        if colour is None:
            continue
        rows = np.clip(pixel[:, slot, 1, None, None] + reach[:, None], 0, size - 1)
        columns = np.clip(pixel[:, slot, 0, None, None] + reach[None, :], 0, size - 1)
        around = pictures[np.arange(len(pictures))[:, None, None], rows, columns].astype(np.float32)  # (N, R, R, 3)
        wanted = np.array(colour) / max(colour)
        alike = np.abs(around / around.max(-1, keepdims=True).clip(1) - wanted).max(-1) < ALIKE
        inside[:, slot] &= alike.sum((1, 2)) >= 2
    return inside


def concatenate(states: Sequence[States]) -> States:
    """Return many states as one."""
    keys = states[0].things
    return States(
        np.concatenate([each.gripper for each in states]),
        {key: np.concatenate([each.things[key] for each in states]) for key in keys},
    )
