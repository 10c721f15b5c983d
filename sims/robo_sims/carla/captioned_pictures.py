"""Captioned bird's-eye pictures: training data for an image-text model.

Scenes are composed on the roads of a task without simulation: the car on a route, other vehicles on nearby lanes, walkers. A
third of the scenes have an actor very near and half have one on the route ahead, because good driving rarely produces them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.environments.captioned_pictures import CaptionedPictures
from robo_rl.errors import UnknownName
from robo_sims.carla import birdseye, routes
from robo_sims.carla.boxes import FINE, LOOK, gap, way_to
from robo_sims.carla.environment import CAMERA, DrivingEnv
from robo_sims.carla.roads import HEADING, SPACING, Floats, Roads
from robo_sims.carla.scene import EGO_SIZE, GREEN, RED, WALKER, YELLOW, Ego, Scene, X, Y

SLOTS = "own car", "car", "walker", "somebody in the way"
"""Names of the objects that have a position in a picture.

Own car: the ego vehicle. Car and walker: the nearest ones in the picture. Somebody in the way: the first obstacle on the route.
"""
NEAR, TOUCH, FREE = 4.0, 0.7, 10.0
"""[m] gap below which two bodies are near, below which they collide, and above which the road is clear."""
HALT, GO = 8.0, 16.0
"""Gap [m] from the car's front to an obstacle on the route below which it must stop, and above which it may go on.

At 8 m/s the gaps are 1 s and 2 s long.
"""
DISTANCE = 10.0
"""[m] nominal camera distance; any value works because all objects lie on the ground."""
CAR, PERSON = (2.3, 1.0), (0.25, 0.25)
"""[m] half length and half width of a car and of a walker."""
LENGTH = 100.0
"""Length [m] of the routes along which pictures are taken."""
UNIT = 20.0
"""[m] unit of positions: the embedded model resolves positions within about one unit (1 m for arms) around their mean."""

Gaps = npt.NDArray[np.float64]
Says = Callable[[Gaps, Gaps, Gaps], npt.NDArray[np.bool_]]
CAPTIONS: dict[str, Says] = {
    "two cars have collided with each other on the road": lambda car, walker, way: car < TOUCH,
    "the car has collided": lambda car, walker, way: np.minimum(car, walker) < TOUCH,
    "a walker is hit by the car": lambda car, walker, way: walker < TOUCH,
    "somebody is very near to the car": lambda car, walker, way: np.minimum(car, walker) < NEAR,
    "a car is near": lambda car, walker, way: car < FREE,
    "a walker is near": lambda car, walker, way: walker < FREE,
    "the road is clear with no car accidents": lambda car, walker, way: np.minimum(car, walker) > FREE,
    "the road ahead is clear": lambda car, walker, way: np.minimum(car, walker) > FREE,
    "nobody is near to the car": lambda car, walker, way: np.minimum(car, walker) > FREE,
    "the car is about to hit somebody in its way": lambda car, walker, way: way < HALT,
    "somebody is close ahead in the way of the car": lambda car, walker, way: way < HALT,
    "somebody is in the way of the car": lambda car, walker, way: way < GO,
    "the way of the car is free": lambda car, walker, way: way > GO,
    "nobody is in the way of the car": lambda car, walker, way: way > GO,
}
"""Sentence -> truth condition on the gaps [m] to the nearest car, to the nearest walker and to the first obstacle on the route;
infinite for none."""
INSTRUCTIONS = {
    ("keep away from the car", "stay clear of the car"): "car",
    ("keep away from the walker", "stay clear of the walker"): "walker",
    ("keep the way free", "stay back from who is in the way"): "somebody in the way",
}


def captioned_pictures(
    environment: gymnasium.Env[Any, Any], *, camera: str, size: int, count: int, seed: int
) -> CaptionedPictures:
    """Return pictures of scenes on the roads of a driving environment, with captions; the seed determines them.

    Args:
        environment: A DrivingEnv.
        camera: Must be the bird's-eye view.
        size: Height and width of the pictures [pixel].
        count: Number of pictures.
        seed: Seed of the scenes.

    Raises:
        UnknownName: It is another camera.
    """
    if camera != CAMERA:
        raise UnknownName("camera of driving", camera, [CAMERA])
    assert isinstance(environment, DrivingEnv)
    environment.reset(seed=seed)
    roads = environment.roads
    random = np.random.default_rng(seed)
    drawn = [_drawn(roads, random, size) for _ in range(count)]
    pictures, positions, gaps = (np.stack(part) for part in zip(*drawn, strict=True))
    places = _places(positions, size)
    seen = np.isfinite(positions).all(-1)
    near = gaps.T
    progress = np.stack([np.clip(gaps[:, SLOTS.index(name) - 1] / FREE, 0, 1) for name in INSTRUCTIONS.values()], 1)
    progress = np.where(np.isfinite(gaps), progress, 0.0)  # no progress without the object
    return CaptionedPictures(
        environment=environment.environment_spec.name,
        camera=camera,
        pictures=pictures,
        firsts=np.arange(count),
        slots=SLOTS,
        positions=(positions / UNIT).astype(np.float32),
        places=places.astype(np.float32),
        seen=seen,
        captions=tuple(CAPTIONS),
        truth=np.stack([holds(*near) for holds in CAPTIONS.values()], 1),
        instructions=tuple(INSTRUCTIONS),
        named=tuple((name,) for name in INSTRUCTIONS.values()),
        progress=progress.astype(np.float32),
        complete=progress >= 1.0,
        recorded=f"birdseye_rgb={size} birdseye=0",
        has_task=False,  # a picture does not show route progress
    )


def _drawn(roads: Roads, random: np.random.Generator, size: int) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    """Return a picture (size, size, 3), positions (S, 3) [m] and gaps (3,) [m] of a random scene."""
    route = routes.draw_route(roads, random, "train", LENGTH)
    index = int(random.integers(12, len(route.points) - 30))
    x, y, _, heading, *_ = route.points[index].tolist()
    aside, turned = random.normal(0.0, 0.5), random.normal(0.0, 0.1)
    x, y = x - aside * math.sin(heading), y + aside * math.cos(heading)
    ego = Ego(x, y, heading + turned, 5.0, 0.0, 0.0, 0.0, 0.0, 10.0)
    line = route.ahead(index * SPACING, np.arange(0.0, LOOK, FINE))
    others = _others(roads, ego, line, random)
    painter = birdseye.BirdsEye(roads, route, size)
    stop, state = index + random.uniform(-5.0, 25.0), int(random.choice([RED, YELLOW, GREEN]))
    scene = Scene(0, ego, others, [(stop, state)] if random.random() < 1 / 2 else [])  # no sentence describes lights
    picture = birdseye.coloured(painter.draw(scene, float(index), index), EGO_SIZE, painter.scale)
    return picture, *_nearest(ego, line, others, size)


def _others(roads: Roads, ego: Ego, line: Floats, random: np.random.Generator) -> Floats:
    points = np.concatenate([lane.points for lane in roads.lanes])
    points = points[np.hypot(points[:, X] - ego.x, points[:, Y] - ego.y) < 40.0]
    rows = []
    for walks, most in ((0.0, 4), (1.0, 3)):
        for _ in range(int(random.integers(most))):
            place = points[int(random.integers(len(points)))]
            spread = 4.0 * walks
            x, y = place[:2] + random.normal(0.0, 0.3 + spread, 2)
            rows.append([x, y, place[HEADING] + random.normal(0.0, 0.1), 0.0, 0.0, *(PERSON if walks else CAR), walks])
    if random.random() < 1 / 3:  # an actor very near, more often ahead than to the side
        walks, angle = float(random.random() < 0.3), ego.yaw + random.normal(0.0, 0.8)
        away = random.uniform(1.0, 8.0)
        x, y = ego.x + away * math.cos(angle), ego.y + away * math.sin(angle)
        turned = ego.yaw + random.choice([0.0, math.pi / 2, math.pi]) + random.normal(0.0, 0.3)
        rows.append([x, y, turned, 0.0, 0.0, *(PERSON if walks else CAR), walks])
    if random.random() < 1 / 2:  # an actor on the route, mostly driving along it
        walks, place = float(random.random() < 0.2), int(random.integers(round(4.0 / FINE), len(line) - 1))
        (x, y), (onward, aside) = line[place] + random.normal(0.0, 0.3, 2), line[place + 1] - line[place]
        across = random.normal(0.0, 0.1) if random.random() < 0.8 else random.uniform(0.0, math.pi)
        rows.append([x, y, math.atan2(aside, onward) + across, 0.0, 0.0, *(PERSON if walks else CAR), walks])
    return np.array(rows).reshape(-1, 8)


def _nearest(ego: Ego, line: Floats, others: Floats, size: int) -> tuple[Floats, Floats]:
    """Return positions (S, 3) [m] of the slots, NaN if absent, and gaps (S - 1,) [m] to others, infinite if absent."""
    positions, gaps = np.full((len(SLOTS), 3), np.nan), np.full(len(SLOTS) - 1, np.inf)
    positions[0] = 0.0
    seen = ego.positions_in_ego(others[:, :2])
    shown = (np.abs(_places(np.pad(seen, ((0, 0), (0, 1))), size)[:, :2]) < 1.0).all(1) if len(others) else np.zeros(0, bool)
    for walks in (0, 1):
        chosen = np.flatnonzero((others[:, WALKER] == walks) & shown)
        if len(chosen):
            away = np.array([gap(ego, others[number]) for number in chosen])
            nearest = chosen[int(away.argmin())]
            positions[1 + walks] = [*seen[nearest], 0.0]
            gaps[walks] = away.min()
    ahead = np.array([way_to(line, other) for other in others])
    if len(others) and np.where(shown, ahead, np.inf).min() < LOOK:
        first = int(np.where(shown, ahead, np.inf).argmin())
        positions[3] = [*seen[first], 0.0]
        gaps[2] = max(ahead[first] - EGO_SIZE[0], 0.0)
    return positions, gaps


def _places(positions: Floats, size: int) -> Floats:
    """Return picture coordinates (right, down in -1 to 1, distance [m]) of positions (forward, right) [m]."""
    half = size / birdseye.SCALE / 2.0
    down = (1.0 - birdseye.BEHIND) * 2.0 - 1.0
    right, forward = positions[..., 1] / half, positions[..., 0] / half
    return np.stack([right, down - forward, np.where(np.isfinite(right), DISTANCE, np.nan)], -1)
