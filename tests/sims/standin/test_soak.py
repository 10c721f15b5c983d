"""Episode after episode on one server: nothing grows, nothing hangs. Seconds in the fast suite, twenty minutes as slow."""

import pytest

PROGRAM = """
import gc, os, random, time
chance = random.Random(0)
def of_server():
    status = open(f"/proc/{sys.argv[2]}/status").read()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000, len(os.listdir(f"/proc/{sys.argv[2]}/fd"))
def episode(world):
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    points = world.get_map().get_spawn_points()
    chance.shuffle(points)
    vehicle = world.spawn_actor(library.find("vehicle.tesla.model3"), points[0])
    for number, where in enumerate(points[1:13]):
        other = library.find("vehicle.audi.a2")
        other.set_attribute("driver", "traffic")
        other.set_attribute("driver_seed", str(number))
        world.try_spawn_actor(other, where)
    blueprint = library.find("sensor.camera." + chance.choice(["rgb", "depth", "semantic_segmentation"]))
    blueprint.set_attribute("image_size_x", "64")
    blueprint.set_attribute("image_size_y", "64")
    got, hits = queue.Queue(), queue.Queue()
    camera = world.spawn_actor(blueprint, carla.Transform(carla.Location(z=2)), vehicle)
    collision = world.spawn_actor(library.find("sensor.other.collision"), carla.Transform(), vehicle)
    camera.listen(got.put)
    collision.listen(hits.put)
    for _ in range(200):
        vehicle.apply_control(carla.VehicleControl(throttle=chance.random(), steer=chance.uniform(-0.3, 0.3)))
        frame = world.tick()
        while got.get(timeout=5).frame < frame:
            pass
    for sensor in (camera, collision):
        sensor.stop()
        sensor.destroy()
    return 200
maps = ["ring", "grid", "highway", "grid_train_4", "ring_test_1"]
end, ticks, episodes, first = time.monotonic() + SECONDS, 0, 0, None
while time.monotonic() < end or episodes < 4:
    world = client.load_world(maps[episodes % len(maps)]) if episodes % 2 else client.reload_world()
    ticks += episode(world)
    episodes += 1
    gc.collect()
    if episodes == max(3, len(maps) * 2 if SECONDS > 60 else 3):
        first = of_server()
result["ticks"], result["episodes"], result["first"], result["last"] = ticks, episodes, first, of_server()
"""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [3.0, pytest.param(1200.0, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_repeated_episodes_leak_no_memory_or_sockets(client, seconds):
    result = client(f"SECONDS = {seconds}\n{PROGRAM}", limit=seconds + 60)
    (megabytes, files), (last_megabytes, last_files) = result["first"], result["last"]
    assert result["ticks"] == 200 * result["episodes"] and result["episodes"] >= 4
    assert last_megabytes < megabytes + (60 if seconds < 60 else 40) and last_files <= files + 2
    assert "failed" not in result["said"]
