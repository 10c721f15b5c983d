"""Measure the stand-in for CARLA through the real client, and the driving environment, for `robo-rl bench drive`.

A tick is: send controls, tick, wait for the picture if there is a camera, read pose and velocity. The server runs in its own
process, so ticks per second need two quiet cores; the processor time of a tick does not. A step of the environment is a
tick and the whole observation, in this process and through the client; its actions are a scripted driver's, chosen before, so
that the driver's time does not count.

highway-env, a light simulator of motorways that many papers use, is the peer: no client and server, simpler roads and
cars. A tick of it is one frame of one driven car and 20 others, with a list of the nearest cars or a picture.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from robo_bench.measurement import Case, Contestants, Effort, Trial, microseconds, rate
from robo_rl.errors import MissingExtra
from robo_sims.carla.connection import STAND_IN
from robo_sims.carla.family import FAMILY

if TYPE_CHECKING:
    from robo_sims.carla.local_server import StandIn

STEP = 0.05
"""Simulated time [s] that one tick covers."""
TICKS = {True: 10, False: 100}
"""True with pictures, False without -> number of ticks between two readings of the clocks.

The system counts a server's time in steps of 10 ms, which is much for a fast tick.
"""
TIMEOUT = 10.0
"""[s] of a call or a picture."""
ROUTE_LENGTH = 400.0
"""Length [m] of the route that is driven again and again."""


@dataclass(frozen=True)
class Drive:
    """Case of the benchmark of driving: map, camera and traffic whose ticks are timed."""

    map: str
    picture: int = 0
    """[pixels] along either side of a camera; 0 is none."""
    cars: int = 0
    """Number of other cars, which drive themselves."""
    kind: str = "semantic_segmentation"
    is_beside_highway_env: bool = False


DRIVES = {
    "ring, one car": Drive("ring"),
    "ring, one car, 84x84 semantic camera": Drive("ring", 84),
    "grid, one car, 84x84 semantic camera": Drive("grid", 84),
    "grid, 20 cars more": Drive("grid", 0, 20),
    "grid, 20 cars more, 84x84 semantic camera": Drive("grid", 84, 20),
    "highway, 20 cars more": Drive("highway", 0, 20, is_beside_highway_env=True),
    "highway, 20 cars more, 84x84 picture": Drive("highway", 84, 20, is_beside_highway_env=True),
    "ring, one car, 320x240 colour camera": Drive("ring", 320, 0, "rgb"),
}
ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    "environment Ring-v0, vectors alone": {"name": "Ring-v0", "traffic": 0, "birdseye": 0},
    "environment Ring-v0, 96x96 bird's-eye view": {"name": "Ring-v0", "traffic": 0, "birdseye": 96},
    "environment Town-v0, 20 cars, vectors alone": {"name": "Town-v0", "traffic": 20, "birdseye": 0},
    "environment Town-v0, 20 cars, 96x96 bird's-eye view": {"name": "Town-v0", "traffic": 20, "birdseye": 96},
}


def cases(effort: Effort) -> list[Case]:
    """Return ticks and steps by the clock, and their processor time, of both sides or of the server alone."""
    found = []
    for name, drive in DRIVES.items():
        if drive.is_beside_highway_env and not highway_env_is_installed():
            name += " (highway-env is not installed)"  # noqa: PLW2901
        found.append(Case(name, "ticks/s", partial(_ticks, drive, rate, True)))
        found.append(Case(f"{name}: processor time", "us", partial(_ticks, drive, microseconds, True)))
        if not (drive.picture or drive.cars):
            found.append(Case(f"{name}: processor time, server", "us", partial(_ticks, drive, microseconds, False)))
    for name, arguments in ENVIRONMENTS.items():
        found.append(Case(name, "steps/s", partial(_steps, arguments, rate)))
        found.append(Case(f"{name}: processor time", "us", partial(_steps, arguments, microseconds)))
    return found


def _ticks(drive: Drive, trial: Callable[..., Trial], both: bool, _: Effort, stack: ExitStack) -> Contestants:
    """Return contestants that tick. trial: `rate` or `microseconds`; both: count the client's processor time, too."""

    def ours(**settings: Any) -> Trial:
        driving = _driving(stack, drive, **settings)
        return trial(driving.ticks, processor=lambda: both * time.process_time() + driving.server.processor_seconds())

    trials = {"ours": ours()}
    if not drive.is_beside_highway_env:
        trials["asleep between calls"] = ours(linger=0.0)
    elif highway_env_is_installed():
        peer = stack.enter_context(closing(Motorway(drive.cars, drive.picture, 1 / STEP)))
        trials["highway-env"] = trial(peer.frame, peer.begin)
    return trials


def _driving(stack: ExitStack, drive: Drive, **settings: Any) -> Driving:
    """Return a client with its own server, which lives as long as the stack."""
    try:
        import carla

        from robo_sims.carla.local_server import StandIn
    except ModuleNotFoundError as error:
        raise MissingExtra("bench drive", error.name or "carla", "carla") from None
    server = stack.enter_context(StandIn(map=drive.map, navigation=False, **settings))
    return stack.enter_context(closing(Driving(carla, server, drive)))


class Driving:
    """A client that drives one car straight on, slowly."""

    def __init__(self, carla: Any, server: StandIn, drive: Drive) -> None:
        self.server = server
        client = carla.Client(server.host, server.port)
        client.set_timeout(TIMEOUT)
        self.world = client.get_world()
        settings = self.world.get_settings()
        settings.synchronous_mode, settings.fixed_delta_seconds = True, STEP
        self.world.apply_settings(settings)
        library, places = self.world.get_blueprint_library(), self.world.get_map().get_spawn_points()
        self.vehicle = self.world.spawn_actor(library.find("vehicle.tesla.model3"), places[0])
        self.control = carla.VehicleControl(throttle=0.3, steer=0.02)
        for number, place in enumerate(places[1 :: max((len(places) - 1) // max(drive.cars, 1), 1)][: drive.cars]):
            other = library.find("vehicle.lincoln.mkz_2020")
            other.set_attribute("driver", "traffic")
            other.set_attribute("driver_seed", str(number))
            self.world.spawn_actor(other, place)
        self.pictures: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.camera = self._camera(carla, library, drive) if drive.picture else None

    def _camera(self, carla: Any, library: Any, drive: Drive) -> Any:
        blueprint = library.find(f"sensor.camera.{drive.kind}")
        height = drive.picture * 3 // 4 if drive.picture > 84 else drive.picture
        for key, value in (("image_size_x", drive.picture), ("image_size_y", height)):
            blueprint.set_attribute(key, str(value))
        where = carla.Transform(carla.Location(x=1.5, z=2.0))
        camera = self.world.spawn_actor(blueprint, where, attach_to=self.vehicle)
        camera.listen(self.pictures.put)
        return camera

    def close(self) -> None:
        """Stop listening."""
        if self.camera is not None:
            self.camera.stop()
            self.camera.destroy()

    def ticks(self) -> int:
        """Drive some steps and return their number; the clocks are read between them."""
        count = TICKS[self.camera is not None]
        for _ in range(count):
            self.vehicle.apply_control(self.control)
            frame = self.world.tick()
            while self.camera is not None and self.pictures.get(timeout=TIMEOUT).frame < frame:
                pass
            self.vehicle.get_transform()
            self.vehicle.get_velocity()
        return count


def highway_env_is_installed() -> bool:
    """Return True if the package highway-env, another driving simulator, is installed and can be compared."""
    return importlib.util.find_spec("highway_env") is not None


class Motorway:
    """One episode of highway-env after another."""

    def __init__(self, cars: int, picture: int, frames: float) -> None:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # it draws with pygame
        observation: dict[str, Any] = {"type": "Kinematics"}
        if picture:
            shape, weights = (picture, picture), [0.3, 0.6, 0.1]
            observation = {"type": "GrayscaleObservation", "observation_shape": shape, "stack_size": 1, "weights": weights}
        config = {
            "observation": observation,
            "action": {"type": "ContinuousAction"},
            "vehicles_count": cars,
            "simulation_frequency": frames,
            "policy_frequency": frames,
            "offscreen_rendering": True,
        }
        gymnasium.register_envs(importlib.import_module("highway_env"))
        self.environment = gymnasium.make("highway-v0", config=config, disable_env_checker=True).unwrapped
        self.environment.reset(seed=0)
        self._is_over = False

    def close(self) -> None:
        """Close the environment."""
        self.environment.close()

    def begin(self) -> None:
        """Begin a new episode if the last one has ended."""
        if self._is_over:
            self.environment.reset()

    def frame(self) -> int:
        """Drive one frame straight on."""
        _, _, terminated, truncated, _ = self.environment.step(np.zeros(2))
        self._is_over = terminated or truncated
        return 1


def _steps(arguments: Mapping[str, Any], trial: Callable[..., Trial], _: Effort, stack: ExitStack) -> Contestants:
    def driven(host: str | None) -> Trial:
        environment: Any = stack.enter_context(closing(FAMILY.make(**arguments, host=host, route_length=ROUTE_LENGTH)))
        actions = _scripted_actions(environment)

        def drive() -> int:
            for action in actions:
                environment.step(action)
            return len(actions)

        used = lambda: time.process_time() + environment.session.processor_seconds()  # noqa: E731
        return trial(drive, before=partial(environment.reset, seed=0), processor=used)

    return {"ours": driven(None), "through the client": driven(STAND_IN)}


def _scripted_actions(environment: Any) -> list[np.ndarray[Any, Any]]:
    """Return the actions of one episode."""
    policy = environment.scripted_policy(0)
    observation, _ = environment.reset(seed=0)
    actions, is_over = [], False
    while not is_over:
        actions.append(policy.act(observation))
        observation, _, terminated, truncated, _ = environment.step(actions[-1])
        is_over = terminated or truncated
    return actions
