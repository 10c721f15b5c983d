"""The real client connects, drives and reads back, on the stand-in."""

import math

import pytest


def test_a_client_drives_a_car_and_reads_where_it_is(client):
    result = client("""
        vehicle = car(carla.Transform(carla.Location(0, 41.75, 0.3), carla.Rotation(yaw=180)))
        start = world.tick()
        result["yaw"] = vehicle.get_transform().rotation.yaw
        for _ in range(40):
            vehicle.apply_control(carla.VehicleControl(throttle=0.5, steer=0.0))
            frame = world.tick()
        pose, velocity, snapshot = vehicle.get_transform(), vehicle.get_velocity(), world.get_snapshot()
        result["place"] = [pose.location.x, pose.location.y, pose.location.z, pose.rotation.yaw]
        result["velocity"] = [velocity.x, velocity.y]
        result["frames"] = [frame - start, snapshot.frame - start]
        result["delta"] = snapshot.timestamp.delta_seconds
        result["control"] = vehicle.get_control().throttle
        result["limit"] = vehicle.get_speed_limit()
        result["box"] = vehicle.bounding_box.extent.x
        vehicle.destroy()
        world.tick()
        result["left"] = [actor.type_id for actor in world.get_actors()]
    """)
    assert result["yaw"] == 180.0
    x, y, z, yaw = result["place"]
    # Half throttle: 2.5 m/s2 less 0.25 idle, 0.12 rolling and a little air, for 2 s.
    assert result["velocity"] == pytest.approx([-4.25, 0.0], abs=0.05)
    assert (x, y, z, yaw) == (pytest.approx(-4.35, abs=0.1), pytest.approx(41.75, abs=1e-4), 0.0, 180.0)
    assert result["frames"] == [40, 40] and result["delta"] == pytest.approx(0.05)
    assert result["control"] == 0.5 and result["limit"] == 50.0 and result["box"] == pytest.approx(2.4)
    assert result["left"] == ["spectator"]


@pytest.mark.slow
def test_right_steering_turns_clockwise_on_bicycle_circle(client):
    result = client("""
        vehicle = car(carla.Transform(carla.Location(0, 0, 0.3), carla.Rotation(yaw=0)))
        for _ in range(200):
            vehicle.apply_control(carla.VehicleControl(throttle=0.2, steer=0.5))
            world.tick()
        turning, velocity = vehicle.get_angular_velocity().z, vehicle.get_velocity().length()
        result["radius"] = velocity / (turning * 3.141592653589793 / 180)
    """)
    wheel = math.radians(20)
    slip = math.atan(math.tan(wheel) / 2)
    assert result["radius"] == pytest.approx(2.9 / (math.tan(wheel) * math.cos(slip)), rel=1e-3)


@pytest.mark.slow
def test_server_refuses_in_a_sentence_or_a_line_in_its_log(client):
    result = client("""
        vehicle = car()
        def message(act):
            try:
                act()
            except RuntimeError as error:
                return str(error)
        result["refused"] = message(lambda: client.start_recorder("a.log"))
        result["taken"] = world.try_spawn_actor(library.find("vehicle.audi.a2"), spawn_points[0]) is None
        vehicle.apply_control(carla.VehicleControl(throttle=float("nan")))
        result["frame"] = world.tick() > 0
        result["x"] = vehicle.get_transform().location.x
    """)
    assert result["refused"].startswith("There is no recorder")
    assert "apply_control_to_vehicle is refused" in result["said"]
    assert result["taken"] and result["frame"] and math.isfinite(result["x"])
