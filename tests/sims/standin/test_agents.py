"""Agents drive in towns: CARLA's own if CARLA_AGENTS names the folder PythonAPI/carla, or one after their algorithm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from carla_standin.lights import REACH
from robo_sims.carla.local_server import StandIn

FOLDER = Path(__file__).parent
AT_THE_LIGHT = f"""
sys.path.insert(0, {str(FOLDER)!r})
import town_driver
lights = list(world.get_actors().filter("*traffic_light*"))
town = world.get_map()
light = next(one for one in lights if abs(one.get_transform().rotation.yaw) < 1e-3)
for one in lights:
    one.set_state(carla.TrafficLightState.Red)
    one.freeze(True)
line = town.get_waypoint(town_driver.Agent.trigger(light))
start = line.previous(35.0)[0]
def left():  # [m] from the middle of the car to the end of its road
    at = town.get_waypoint(vehicle.get_location())
    return -1.0 if at.is_junction else at.next_until_lane_end(0.1)[-1].transform.location.distance(vehicle.get_location())
"""


def drive(name: str, seconds: float, seed: int = 1) -> dict[str, float | list[str]]:
    """Return what the driver's program reports."""
    pytest.importorskip("carla", reason="no wheel here")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with StandIn(map=name) as server:
        command = [sys.executable, str(FOLDER / "town_driver.py"), str(server.port), str(seconds), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    assert lines, f"{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return json.loads(lines[-1].removeprefix("RESULT"))


def require_in_lane(told: dict[str, float | list[str]], seconds: float) -> None:
    """Fail unless the agent drove on and never left its lane, its side of the road or hit anything."""
    assert told["ticks"] == seconds * 20 and told["metres"] > 4 * seconds
    assert told["hits"] == [] and told["outside"] == 0


@pytest.mark.parametrize("name", ["grid", "grid_train_0"])
@pytest.mark.slow
def test_agents_keep_to_their_lane_in_town(name):
    require_in_lane(drive(name, 60), 60)


@pytest.mark.slow
def test_agents_keep_to_their_lane_for_ten_minutes():
    told = drive("grid", 600)
    require_in_lane(told, 600)
    assert told["trips"] >= 5 and told["crossed"] >= 20


@pytest.mark.slow
def test_agents_see_a_light_exactly_ahead(client):
    result = client(
        AT_THE_LIGHT
        + """
vehicle = car(start.transform)
world.tick()
agent = town_driver.Agent(vehicle, town, [light])
agent.points = start.next_until_lane_end(2.0)
aside = []
for _ in range(200):
    vehicle.apply_control(agent.run_step())
    world.tick()
    aside.append(abs(vehicle.get_location().y - start.transform.location.y))
result["left"], result["speed"], result["aside"] = left(), vehicle.get_velocity().length(), max(aside)
""",
        map="grid",
    )
    assert result["aside"] == 0.0 and result["speed"] < 0.01 and result["left"] > 2.4


@pytest.mark.slow
def test_lights_count_far_enough_to_stop_from_town_speed(client):
    result = client(
        AT_THE_LIGHT
        + """
vehicle = car(start.transform)
world.tick()
result["before"] = vehicle.is_at_traffic_light()
for _ in range(200):
    if vehicle.is_at_traffic_light() and vehicle.get_traffic_light_state() == carla.TrafficLightState.Red:
        vehicle.apply_control(carla.VehicleControl(brake=1.0))
    else:
        vehicle.set_target_velocity(carla.Vector3D(50 / 3.6, 0, 0))
    world.tick()
result["left"], result["at"] = left(), vehicle.get_traffic_light() is not None
result["box"] = 2 * light.trigger_volume.extent.x
""",
        map="grid",
    )
    assert not result["before"] and result["at"] and 0.0 < result["left"] < 3.0
    assert result["box"] == pytest.approx(REACH)
