"""Random states of the arm tasks without simulation: objects, hand pose and grasp.

A scene has the objects of its task, and half of the scenes one more of each kind in another colour, so that the words matter.
Half of the poses are close to the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from robo_sims.arm.captions import COLOURS
from robo_sims.arm.control import MAX_YAW, WORKSPACE
from robo_sims.arm.environment import START, START_YAW
from robo_sims.arm.physics import MAX_OPENING, Array
from robo_sims.arm.tasks import pick, push, reach

APART = {"point": 0.06, "cube": 0.09, "mark": 0.08}
"""[m] minimum distance of two objects of one kind."""
SEEN = np.array([[0.30, -0.24, 0.012], [0.64, 0.24, 0.36]])
"""[m] part of the workspace in which the front camera sees the fingers."""
CAMERA = np.array([1.15, 0.0, 0.62])
"""[m] position of the front camera."""
OWN_COLOUR = 0.4
"""Share of scenes in which the first object has the task's own colour."""


@dataclass(frozen=True)
class SceneObject:
    """Coloured object with a pose."""

    kind: str
    colour: str
    position: Array
    """(3,) [m] frame base"""
    yaw: float = 0.0
    """[rad]"""


@dataclass(frozen=True)
class Pose:
    """Pose of a downward hand, and the objects of the scene."""

    gripper: Array
    """(3,) [m] target of the point between the finger pads, frame base"""
    yaw: float
    """[rad]"""
    opening: float
    """[m]"""
    things: tuple[SceneObject, ...] = field(default=())


Random = np.random.Generator


def start(things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return an initial pose of an episode."""
    return Pose(random.uniform(*START), random.uniform(-START_YAW, START_YAW), MAX_OPENING, things)


def reach_scene(random: Random) -> tuple[SceneObject, ...]:
    """Return one or two points in the air."""
    return _several("point", "green", reach.REGION, random)


def reach_pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return a hand anywhere, or near one of the points."""
    aim, kind = _one_of(things, random).position, random.random()
    far = _in_line(aim, random) if kind < 0.2 else _anywhere(random)
    position = far if kind < 0.5 else _near(aim, 0.12, random)
    return Pose(position, _turn(random), random.uniform(0, MAX_OPENING), things)


def pick_scene(random: Random) -> tuple[SceneObject, ...]:
    """Return one or two cubes on the table."""
    return _several("cube", "red", pick.REGION, random)


def pick_pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return a hand anywhere, above or around a cube, or holding one at any height."""
    chosen, kind = _one_of(things, random), random.random()
    if kind < 0.35:
        place = _anywhere(random) if kind < 0.15 else _in_line(chosen.position, random)
        return _clear(Pose(place, _turn(random), random.uniform(0, MAX_OPENING), things))
    if kind < 0.65:
        return _over(chosen, things, random)
    held = replace(chosen, position=_held_at(chosen, random))
    grip = held.position + np.array([*random.uniform(-0.005, 0.005, 2), random.uniform(-0.008, 0.008)])
    others = tuple(held if each is chosen else each for each in things)
    yaw = _along(chosen.yaw, random)
    return Pose(grip, yaw, 2 * pick.HALF_SIZE, others)


def push_scene(random: Random) -> tuple[SceneObject, ...]:
    """Return one or two cubes and one or two marks on the table."""
    cubes = _several("cube", "red", push.REGION, random)
    marks = _several("mark", "green", push.REGION, random)
    return (*cubes, *marks)


def push_pose(things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return a hand anywhere or next to a cube at its start, on its way or at the mark."""
    cubes = [each for each in things if each.kind == "cube"]
    marks = [each for each in things if each.kind == "mark"]
    cube, mark = _one_of(cubes, random), _one_of(marks, random)
    if random.random() < 0.7:
        way = mark.position - cube.position
        share = random.uniform(0, 1.1) if random.random() < 0.7 else 1.0
        position = cube.position + share * way + np.array([*random.normal(0, 0.02, 2), 0])
        moved = replace(cube, position=np.array([*position[:2], pick.HALF_SIZE]), yaw=cube.yaw + random.normal(0, 0.3))
    else:
        moved = cube
    there = tuple(moved if each is cube else each for each in things)
    if (kind := random.random()) < 0.4:
        place = _anywhere(random) if kind < 0.2 else _in_line(moved.position, random)
        return _clear(Pose(place, _turn(random), random.uniform(0, MAX_OPENING), there))
    angle, gap = random.uniform(-np.pi, np.pi), random.uniform(0.04, 0.10)
    close_by = moved.position + np.array([gap * np.cos(angle), gap * np.sin(angle), 0])
    low = np.array([*close_by[:2], random.uniform(0.015, 0.06) if random.random() < 0.7 else random.uniform(0.06, 0.15)])
    return Pose(low, _turn(random), random.uniform(0.02, MAX_OPENING), there)


@dataclass(frozen=True)
class PoseSampler:
    """Distribution of the states of one task."""

    scene: Callable[[Random], tuple[SceneObject, ...]]
    pose: Callable[[tuple[SceneObject, ...], Random], Pose]


POSE_SAMPLERS: Mapping[str, PoseSampler] = {
    "ArmReach-v0": PoseSampler(reach_scene, reach_pose),
    "ArmPick-v0": PoseSampler(pick_scene, pick_pose),
    "ArmPush-v0": PoseSampler(push_scene, push_pose),
}
"""Task -> sampler."""


def _several(kind: str, own: str, region: Array, random: Random) -> tuple[SceneObject, ...]:
    names = [*random.permutation([*COLOURS])]
    if random.random() < OWN_COLOUR:
        names = [own, *(name for name in names if name != own)]
    count = 1 + int(random.random() < 0.5)
    while True:
        places = [_lying(kind, np.asarray(random.uniform(*region))) for _ in range(count)]
        if count == 1 or np.linalg.norm(places[0] - places[1]) >= APART[kind]:
            return tuple(
                SceneObject(kind, str(name), place, random.uniform(-np.pi, np.pi))
                for name, place in zip(names, places, strict=False)
            )


def _lying(kind: str, place: Array) -> Array:
    heights = {"cube": pick.HALF_SIZE, "mark": push.MARK_HEIGHT}
    return np.array([*place[:2], heights.get(kind, place[-1])])


def _one_of(things: tuple[SceneObject, ...] | list[SceneObject], random: Random) -> SceneObject:
    return things[random.integers(len(things))]


def _anywhere(random: Random) -> Array:
    return np.asarray(random.uniform(*(SEEN if random.random() < 0.9 else WORKSPACE)))


def _near(place: Array, radius: float, random: Random) -> Array:
    way = random.normal(size=3)
    return np.clip(place + random.uniform(0, radius) * way / np.linalg.norm(way), WORKSPACE[0], WORKSPACE[1])


def _in_line(place: Array, random: Random) -> Array:
    """Return a position in line with another as seen from the camera, which only its size distinguishes."""
    way = CAMERA - place
    share = random.uniform(-0.1, 0.4)
    return np.clip(place + share * way + random.normal(0, 0.015, 3), WORKSPACE[0], WORKSPACE[1])


def _turn(random: Random) -> float:
    return float(np.clip(random.normal(0, 0.6), -MAX_YAW, MAX_YAW))


def _along(yaw: float, random: Random) -> float:
    """Return the yaw of fingers along the faces of a cube, closest to straight."""
    return float((yaw + np.pi / 4) % (np.pi / 2) - np.pi / 4 + random.normal(0, 0.05))


def _over(cube: SceneObject, things: tuple[SceneObject, ...], random: Random) -> Pose:
    """Return an open hand around or above a cube, aligned with its faces when low."""
    above = random.uniform(0, 0.14)
    sideways = random.normal(0, 0.004 + 0.35 * max(above - 0.04, 0), 2)
    yaw = _along(cube.yaw, random) if above < 0.06 else _turn(random)
    return Pose(cube.position + np.array([*sideways, above]), yaw, random.uniform(0.065, MAX_OPENING), things)


def _held_at(cube: SceneObject, random: Random) -> Array:
    """Return the position of a held cube: near its start and raised, or anywhere."""
    up = random.uniform(0, 0.2) if random.random() < 0.7 else 0.0
    if random.random() < 0.5:
        return np.asarray(cube.position + np.array([*random.normal(0, 0.02, 2), up]))
    return np.array([*random.uniform(*WORKSPACE)[:2], pick.HALF_SIZE + up])


def _clear(pose: Pose) -> Pose:
    """Return the pose with the hand lifted out of any cube."""
    places = [each.position for each in pose.things if each.kind == "cube"]
    inside = any(np.linalg.norm(pose.gripper[:2] - place[:2]) < 0.07 and pose.gripper[2] < 0.09 for place in places)
    return replace(pose, gripper=pose.gripper + np.array([0, 0, 0.09])) if inside else pose
