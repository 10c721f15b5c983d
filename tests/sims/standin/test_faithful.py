"""Small things that scripts of CARLA rely on: debris, lean, grip, recommended values, widths."""

import numpy as np
import pytest

pytest.importorskip("msgpack")

from carla_standin import layouts
from carla_standin.actors import LEAN, PITCH
from carla_standin.errors import Refused
from carla_standin.maps.catalogue import town
from carla_standin.physics.parameters import GRIP
from carla_standin.world import World


class Nobody:
    port, may_drop = 2001, False

    def is_heard(self, stream: int) -> bool:
        return False


def spawn(world: World, type_id: str, pose, **attributes: str):
    return world.spawn([1, type_id, [[key, 4, value] for key, value in attributes.items()]], pose)


def car(world: World, **attributes: str):
    return spawn(world, "vehicle.tesla.model3", world.town.spawn_points[0], **attributes)


def drive(world: World, made, seconds: float, throttle: float = 1.0, steer: float = 0.0) -> None:
    world.group_of(made).control(made, world.bodies, [throttle, steer, 0.0, False, False, False, 0])
    for _ in range(round(seconds * 20)):
        world.tick()


def test_wheels_roll_over_debris():
    """Red before: dirt of 15 cm was a wall, and refused to lie where other dirt lay."""
    world = World(town("ring"), Nobody())
    made = car(world)
    (x, y, _), (_, yaw, _) = world.town.spawn_points[0]
    ahead = [x + 15 * np.cos(np.radians(yaw)), y + 15 * np.sin(np.radians(yaw)), 0.0]
    for _ in range(2):
        spawn(world, "static.prop.dirtdebris01", [ahead, [0.0, 0.0, 0.0]])
    follower = spawn(world, "vehicle.audi.a2", world.town.spawn_points[1], driver="traffic")
    assert len(world.collisions.solid) == 2 and len(world.cars.detector.rows) == 2
    drive(world, made, 4)
    assert np.hypot(*(world.bodies.motion[made.row, :2] - [x, y])) > 20 and follower in world.cars.actors
    with pytest.raises(Refused, match="collision"):
        spawn(world, "static.prop.container", [world.bodies.motion[made.row, :3].tolist(), [0.0, 0.0, 0.0]])


def test_a_vehicle_leans_only_while_it_moves():
    """Red before: a car that had just been spawned was pitched by 0.05 degrees."""
    world = World(town("ring"), Nobody())
    made = car(world)

    def pitch() -> float:
        records = np.frombuffer(world.snapshot(), layouts.ACTOR_RECORD)
        return float(records["motion"][made.row, PITCH])

    world.tick()
    assert pitch() == 0.0
    drive(world, made, 2)
    assert pitch() == pytest.approx(LEAN) and world.bodies.motion[made.row, PITCH] == 0.0


def test_grip_is_what_a_server_or_a_blueprint_says():
    """Red before: every vehicle held 0.9 g, whatever CARLA's agents expect, and there was no setting."""

    def lateral(world: World, **attributes: str) -> float:
        made = car(world, **attributes)
        made_group = world.group_of(made)
        made_group.state.forward[made_group.actors.index(made)] = 25.0
        drive(world, made, 1.0, 0.3, 0.5)
        state = made_group.state
        return float(abs(state.turning[0]) * np.hypot(state.forward[0], state.sideways[0])) / 9.81

    assert lateral(World(town("ring"), Nobody())) == pytest.approx(GRIP, rel=0.02)
    assert lateral(World(town("ring"), Nobody(), grip=1.5)) == pytest.approx(1.5, rel=0.02)
    assert lateral(World(town("ring"), Nobody()), grip="1.5") == pytest.approx(1.5, rel=0.02)
    for wrong in ("-1", "nan", "slippery"):
        with pytest.raises(Refused, match="no coefficient of friction"):
            car(World(town("ring"), Nobody()), grip=wrong)


@pytest.mark.slow
def test_friction_that_is_told_is_that_which_holds(client):
    result = client(
        """
        first = car(grip=1.8)
        control = first.get_physics_control()
        result["told"] = [wheel.tire_friction for wheel in control.wheels]
        second = car(spawn_points[3])
        result["usual"] = second.get_physics_control().wheels[0].tire_friction
        result["empty"] = [[one.id, attribute.id] for one in library.filter("sensor.*") for attribute in one
                           if attribute.is_modifiable and not attribute.recommended_values]
        result["lidar"] = library.find("sensor.lidar.ray_cast").get_attribute("channels").recommended_values[0]
        """
    )
    assert result["told"] == pytest.approx([7.0] * 4) and result["usual"] == pytest.approx(3.5)
    assert result["empty"] == [] and result["lidar"] == "32"  # red before: empty, and CARLA's examples take the first


def test_no_lane_has_a_negative_width():
    """Red before: -8.9e-16 m where a lane of the highway closes, which CARLA's smoke test of maps refuses."""
    for name in ("highway", *(f"highway_{which}_{number}" for which in ("train", "test") for number in range(8))):
        for road in town(name).road_map.roads:
            s = road.length
            for a, b, c, d in (lane.width for lane in road.lanes):
                assert min(a + s * (b + s * (c + s * d)), a + b * s + c * s * s + d * s * s * s) >= 0.0
