"""Golden bytes of every layout, written out by hand: the client casts them without a check."""

import struct

import numpy as np
import pytest

pytest.importorskip("msgpack")
import msgpack

from carla_standin import layouts
from carla_standin.actors import Actor, Bodies, Box
from carla_standin.blueprints import BY_NAME, Blueprint, Property
from carla_standin.calls.physics import physics_control
from carla_standin.errors import Refused
from carla_standin.layouts import Attribute, SensorType
from carla_standin.physics.parameters import VEHICLES
from carla_standin.responses import bare, valued, void
from carla_standin.settings import Settings


def test_a_token_is_24_bytes_without_an_address():
    assert layouts.token(7, 2001) == bytes.fromhex("07000000 d107 01 00" + "00" * 16)


def test_a_message_begins_with_its_length():
    assert layouts.length_of((b"abc", memoryview(b"de"))) == b"\x05\0\0\0"


def test_the_headers():
    header = layouts.SENSOR_HEADER.pack(SensorType.WORLD, 3, 0.5, 1, 2, 3, 4, 5, 6)
    assert header == bytes.fromhex(
        "1100000000000000 0300000000000000 000000000000e03f 0000803f 00000040 00004040 00008040 0000a040 0000c040"
    )
    snapshot = layouts.SNAPSHOT_HEADER.pack(2, 1.0, 0.5, 0, 0, 0, layouts.MAP_CHANGED)
    assert snapshot == bytes.fromhex("0200000000000000 000000000000f03f 0000003f" + "00" * 12 + "01000000")
    assert layouts.IMAGE_HEADER.pack(84, 42, 90.0) == bytes.fromhex("54000000 2a000000 0000b442")
    assert layouts.LIDAR_HEADER.pack(0.5, 2) == bytes.fromhex("0000003f 02000000")


def test_the_numbers_of_the_sensors_are_those_of_0_9_16():
    numbers = {kind.name: int(kind) for kind in SensorType}
    assert numbers == dict(
        COLLISION=0,
        DEPTH=1,
        NORMALS=2,
        DVS=3,
        GNSS=4,
        IMU=5,
        OBSTACLE=7,
        OPTICAL_FLOW=8,
        RADAR=9,
        SEMANTIC_LIDAR=10,
        LIDAR=11,
        RGB=13,
        SEMANTIC=14,
        INSTANCE=15,
        COSMOS=16,
        WORLD=17,
    )


def test_points_and_events_are_packed():
    semantic = np.array([((1, 2, 3), 0.5, 258, 14)], layouts.SEMANTIC_POINT)
    assert semantic.tobytes() == bytes.fromhex("0000803f 00000040 00004040 0000003f 02010000 0e000000")
    radar = np.array([(1, 2, 3, 0.5)], layouts.RADAR_POINT)
    assert radar.tobytes() == bytes.fromhex("0000803f 00000040 00004040 0000003f")
    event = np.array([(258, 3, 5, True)], layouts.DVS_EVENT)
    assert event.tobytes() == bytes.fromhex("0201 0300 0500000000000000 01")
    assert np.array([(1, 2)], layouts.FLOW_PIXEL).tobytes() == bytes.fromhex("0000803f 00000040")


def record(**fields: object) -> bytes:
    bodies = Bodies()
    bodies.add(Actor(258, "any", {}, []), [[1, 2, 3], [4, 5, 6]])
    for name, value in fields.items():
        bodies.records[0][name] = value
    return bodies.snapshot()


FRONT = bytes.fromhex("02010000 01") + struct.pack("<15f", 1, 2, 3, 4, 5, 6, *[0] * 9)


def test_a_vehicle_in_a_snapshot():
    got = record(
        pedals=(0.5, -0.5, 1),
        hand_brake=1,
        reverse=1,
        manual=1,
        gear=-1,
        limit=30,
        light_state=2,
        has_light=1,
        light=9,
        failure=0,
    )
    union = struct.pack("<3f???ifB?IB", 0.5, -0.5, 1, True, True, True, -1, 30, 2, True, 9, 0)
    assert len(union) == 30 and got == FRONT + union + bytes(24)


def test_a_light_in_a_snapshot():
    got = record(sign=b"12", times=(10, 3, 2, 1.5), pole=4, frozen=1, colour=2)
    union = b"12".ljust(32, b"\0") + struct.pack("<4fI?B", 10, 3, 2, 1.5, 4, True, 2)
    assert len(union) == 54 and got == FRONT + union


def test_a_walker_in_a_snapshot():
    got = record(direction=(1, 0, 0), walking=1.5, jump=0)
    assert got == FRONT + struct.pack("<4f?", 1, 0, 0, 1.5, False) + bytes(37)


def test_records_keep_their_size_when_actors_come_and_go():
    bodies = Bodies()
    actors = [Actor(number, "any", {}, []) for number in range(1, 5)]
    for actor in actors:
        bodies.add(actor, [[actor.id, 0, 0], [0, 0, 0]])
    bodies.remove(actors[1])
    assert len(bodies.snapshot()) == 3 * 119
    assert np.frombuffer(bodies.snapshot(), layouts.ACTOR_RECORD)["motion"][:, 0].tolist() == [1, 3, 4]


def test_an_actor_on_a_call():
    token = layouts.token(2, 2001)
    actor = Actor(5, "sensor.other.imu", {}, [1, "sensor.other.imu", []], Box.standing(4, 2, 1.5), 14, 3, token)
    assert actor.encoded() == [
        5,
        3,
        [1, "sensor.other.imu", []],
        [[0, 0, 0.75], [2, 1, 0.75], [0, 0, 0], 5],
        b"\x0e",
        token,
    ]
    assert msgpack.packb(actor.encoded())[-26:-24] == b"\xc4\x18"  # 24 bytes, not text


def test_a_blueprint_on_a_call():
    blueprint = Blueprint("a.b", (Property("speed", Attribute.FLOAT, "1.4", ("1.4", "2.8"), True, False),))
    assert blueprint.encoded(3) == [3, "a.b", "a,b", [["speed", 3, "1.4", ["1.4", "2.8"], True, False]]]
    assert {kind.name: int(kind) for kind in Attribute} == dict(BOOL=1, INT=2, FLOAT=3, STRING=4, COLOUR=5)
    assert BY_NAME["vehicle.tesla.model3"].values([["role_name", 4, "hero"]])["role_name"] == "hero"


def test_layouts_have_as_many_fields_as_the_client():
    assert Settings().encoded() == [False, False, [False], True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True]
    told = [True, False, [True, 0.05], *Settings().encoded()[3:]]
    assert Settings.decoded(told).encoded() == told
    for vehicle in VEHICLES:
        control = physics_control(vehicle)
        assert len(control) == 17 and all(len(wheel) == 10 for wheel in control[15])


def test_answers_are_wrapped_as_the_client_expects():
    def refuse() -> None:
        raise Refused("no")

    assert valued(a=lambda: 3)["a"]() == [[1, 3]] and valued(a=refuse)["a"]() == [[0, ["no"]]]
    assert void(a=lambda: 3)["a"]() == [[False]] and void(a=refuse)["a"]() == [[True, ["no"]]]
    assert bare(a=lambda: [[[1, 34]]])["a"]() == [[[1, 34]]]
