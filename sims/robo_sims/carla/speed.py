"""Measures the stand-in for CARLA through the real client, for `robo-rl bench drive`.

A step is: send controls, tick, wait for the picture where there is a camera, read pose and velocity. The server runs in its own
process beside this one, so ticks per second want two cores that nothing else uses; the processor time of a tick does not.
"""

from __future__ import annotations

import contextlib
import queue
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from robo_rl.benchmark import Cases, Effort, Measurement, Trial, measurement
from robo_rl.errors import MissingExtra
from robo_sims.carla import highway_speed

if TYPE_CHECKING:
    from robo_sims.carla.local_server import StandIn

STEP = 0.05
"""[s] that a tick simulates."""
PATIENCE = 10.0
"""[s] for a call or a picture."""
ASLEEP = "asleep between calls"
"""Name of the same server where it does not look for the next call before it sleeps."""


@dataclass(frozen=True)
class Drive:
    """One case."""

    map: str
    picture: int = 0
    """[pixels] along either side of a semantic camera; 0 is none."""
    cars: int = 0
    """That drive themselves."""
    kind: str = "semantic_segmentation"
    peer: bool = False
    """Whether highway-env is measured beside it, where it is installed."""


CASES = {
    "ring, one car": Drive("ring"),
    "ring, one car, 84x84 semantic camera": Drive("ring", 84),
    "grid, one car, 84x84 semantic camera": Drive("grid", 84),
    "grid, 20 cars more": Drive("grid", 0, 20),
    "grid, 20 cars more, 84x84 semantic camera": Drive("grid", 84, 20),
    "highway, 20 cars more": Drive("highway", 0, 20, peer=True),
    "highway, 20 cars more, 84x84 picture": Drive("highway", 84, 20, peer=True),
    "ring, one car, 320x240 colour camera": Drive("ring", 320, 0, "rgb"),
}


def cases(effort: Effort) -> Cases:
    """Returns the cases."""
    found: Cases = {}
    for name, drive in CASES.items():
        if drive.peer and not highway_speed.is_installed():
            name += f" ({highway_speed.NAME} is not installed)"  # noqa: PLW2901
        found[name] = partial(_measure, name, drive, effort)
        busy = f"{name}: processor time"
        found[busy] = partial(_measure, busy, drive, effort, busy=True)
        if not (drive.picture or drive.cars):
            found[f"{busy}, server"] = partial(_measure, f"{busy}, server", drive, effort, busy=True, both=False)
    return found


def _measure(name: str, drive: Drive, effort: Effort, *, busy: bool = False, both: bool = True) -> Measurement:
    with contextlib.ExitStack() as stack:
        contestants: dict[str, Trial] = {"ours": _trial(stack, drive, busy=busy, both=both)}
        if drive.peer and highway_speed.is_installed():
            peer = stack.enter_context(closing(highway_speed.Motorway(drive.cars, drive.picture, 1 / STEP)))
            contestants[highway_speed.NAME] = peer.busy if busy else peer.trial
        if not drive.peer:
            contestants[ASLEEP] = _trial(stack, drive, busy=busy, both=both, linger=0.0)
        return measurement("drive", name, "us" if busy else "ticks/s", contestants, effort)


def _trial(stack: contextlib.ExitStack, drive: Drive, *, busy: bool, both: bool, **settings: Any) -> Trial:
    """Returns trials at a server of their own, which lives as long as the stack."""
    try:
        import carla

        from robo_sims.carla.local_server import StandIn
    except ModuleNotFoundError as error:
        raise MissingExtra("bench drive", error.name or "carla", "carla") from None
    server = stack.enter_context(StandIn(map=drive.map, navigation=False, **settings))
    client = carla.Client(server.host, server.port)
    client.set_timeout(PATIENCE)
    driving = stack.enter_context(closing(Driving(carla, client, drive)))
    return partial(driving.busy, server, both=both) if busy else driving.trial


class Driving:
    """A client that drives one car straight on, slowly."""

    def __init__(self, carla: Any, client: Any, drive: Drive) -> None:
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
        """Stops listening."""
        if self.camera is not None:
            self.camera.stop()
            self.camera.destroy()

    def busy(self, server: StandIn, seconds: float, *, both: bool = True) -> float:
        """Returns the processor time of a tick [us], of both sides or of the server alone: other load hardly counts."""
        before = both * time.process_time() + server.processor_seconds()
        ticks = seconds * self.trial(seconds)
        return 1e6 * (both * time.process_time() + server.processor_seconds() - before) / ticks

    def trial(self, seconds: float) -> float:
        """Returns ticks per second."""
        started, ticks = time.perf_counter(), 0
        while not ticks or time.perf_counter() - started < seconds:
            self.vehicle.apply_control(self.control)
            frame = self.world.tick()
            while self.camera is not None and self.pictures.get(timeout=PATIENCE).frame < frame:
                pass
            self.vehicle.get_transform()
            self.vehicle.get_velocity()
            ticks += 1
        return ticks / (time.perf_counter() - started)
