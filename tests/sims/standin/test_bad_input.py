"""What goes wrong on either side ends in one error: no hang, no crash, and others are served on."""

import random
import select
import socket
import struct
import threading
import time

import pytest

pytest.importorskip("msgpack")

import msgpack

from carla_standin.errors import InvalidOption, PortsTaken
from carla_standin.server import Options, listeners
from robo_rl.errors import InvalidSetting, MissingExtra, ServerUnavailable
from robo_sims.carla import connection
from robo_sims.carla.local_server import StandIn


class Raw:
    """Speaks to a server without the client."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 5)
        self.unpacker = msgpack.Unpacker(strict_map_key=False)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.sock.close()

    def call(self, name, *arguments):
        self.sock.sendall(msgpack.packb([0, 7, name, [[False], *arguments]]))
        while True:
            for message in self.unpacker:
                assert message[:2] == [1, 7]
                return message[2:]
            data = self.sock.recv(1 << 16)
            assert data, "it hung up"
            self.unpacker.feed(data)


@pytest.fixture(scope="module")
def server():
    with StandIn(map="grid") as running:
        yield running


@pytest.mark.slow
def test_taken_port_unknown_map_and_bad_settings_are_errors(server):
    with pytest.raises(PortsTaken, match=r"cannot listen at 127\.0\.0\.1:"):
        listeners("127.0.0.1", server.port)
    with pytest.raises(ServerUnavailable, match="did you mean 'grid'"):
        StandIn(map="gird").start()
    with pytest.raises(InvalidOption, match="'physics' is out of range"):
        Options(physics="magic")
    with pytest.raises(InvalidSetting, match="'physics' is out of range"):
        StandIn(physics="magic")


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\xc1" * 50, msgpack.packb([0, 1]), msgpack.packb({"a": 1}), b"\x94\x00"]
)
def test_foreign_protocol_is_disconnected_without_harm(server, data):
    with socket.create_connection(("127.0.0.1", server.port), 5) as bad, Raw(server.port) as good:
        bad.sendall(data)
        assert good.call("version") == [None, [[1, "0.9.16"]]]
        if data != b"\x94\x00":  # the beginning of a request may go on
            bad.settimeout(5)
            assert bad.recv(10) == b""


@pytest.mark.slow
def test_senseless_arguments_are_errors_and_server_continues(server):
    chance = random.Random(1)
    values = [None, True, -1, 0, 3, 1e308, float("nan"), float("inf"), "", "grid", b"\0", [], [[]], [1, 2], {"a": 1}, 2**63]
    values += [
        [0, "vehicle.audi.a2", []],
        [0, "walker.pedestrian.0001", [["driver", 4, "traffic"]]],
        [0, "sensor.camera.rgb", []],
    ]
    values += [
        [[100.0, 0.0, 0.0], [0.0] * 3],
        [[float("nan")] * 3, [0.0] * 3],
        [[[0, [1]]]],
        [[[99, []]]],
        [1.0] * 14,
        [0.5] * 7,
    ]
    with Raw(server.port) as raw:
        for _ in range(1500):
            name = chance.choice(NAMES)
            error, result = raw.call(name, *(chance.choice(values) for _ in range(chance.randrange(4))))
            assert error is None or isinstance(error, str), (name, error, result)
        raw.call("set_episode_settings", [True, False, [True, 0.05], True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True])
        frame = raw.call("tick_cue")[1][0][1]
        assert raw.call("tick_cue")[1][0][1] == frame + 1


NAMES = [
    "version",
    "get_episode_info",
    "get_sensor_token",
    "get_episode_settings",
    "set_episode_settings",
    "get_map_info",
    "tick_cue",
    "spawn_actor",
    "spawn_actor_with_parent",
    "destroy_actor",
    "get_actors_by_id",
    "get_actor_bounding_box",
    "apply_control_to_vehicle",
    "apply_control_to_walker",
    "apply_batch",
    "set_weather_parameters",
    "load_new_episode",
    "copy_opendrive_to_file",
    "set_actor_transform",
    "set_actor_location",
    "set_actor_target_velocity",
    "set_vehicle_light_state",
    "set_traffic_light_state",
    "freeze_traffic_light",
    "get_group_traffic_lights",
    "get_physics_control",
    "add_traffic_manager_running",
    "set_traffic_light_green_time",
    "apply_physics_control",
    "apply_ackermann_control_to_vehicle",
    "apply_ackermann_controller_settings",
    "set_actor_target_angular_velocity",
    "enable_actor_constant_velocity",
    "add_actor_impulse",
    "add_actor_impulse_at_location",
    "add_actor_torque",
    "set_actor_simulate_physics",
    "set_actor_enable_gravity",
    "set_actor_collisions",
    "get_telemetry_data",
    "get_wheel_steer_angle",
    "cast_ray",
    "project_point",
    "get_bones_transform",
    "open_vehicle_door",
    "start_recorder",
    "no_such_call",
]


def test_the_tested_names_are_all_known_but_one(server):
    with Raw(server.port) as raw:
        assert raw.call("no_such_call") == ["the stand-in has no call 'no_such_call'", None]
        unknown = [name for name in NAMES if "has no call" in str(raw.call(name)[0])]
    assert unknown == ["no_such_call"] and server.said().count("unknown call: no_such_call") == 1


@pytest.mark.real_time
def test_load_sends_nothing_until_new_subscription():
    def heard(sock: socket.socket, seconds: float) -> bool:
        return bool(select.select([sock], [], [], seconds)[0])

    with StandIn(rate=100.0) as server, Raw(server.port) as raw:
        token = raw.call("get_episode_info")[1][0][1][1][0]
        stream, port = struct.unpack("<IH", token[:6])
        with socket.create_connection(("127.0.0.1", port)) as old, socket.create_connection(("127.0.0.1", port)) as new:
            old.sendall(struct.pack("<I", stream))
            assert heard(old, 5)
            raw.call("load_new_episode", "", True, 65535)
            while heard(old, 0):  # what was under way
                old.recv(1 << 16)
            assert not heard(old, 0.3)
            new.sendall(struct.pack("<I", stream))
            assert heard(new, 0.5)


@pytest.mark.real_time
def test_a_server_that_waits_uses_no_core():
    with StandIn() as server, Raw(server.port) as raw:
        raw.call("set_episode_settings", [True, False, [True, 0.05], True, 0.01, 10, 0.0, True, 3000.0, 2000.0, True])

        before = server.processor_seconds()
        time.sleep(0.4)
        assert server.processor_seconds() - before <= 0.04


@pytest.mark.real_time
def test_server_death_is_client_error_within_timeout(client):
    result = client("""
        import os, signal, time
        vehicle = car()
        world.tick()
        client.set_timeout(1.0)
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        started = time.monotonic()
        try:
            world.tick(1.0)
        except RuntimeError as error:
            result["error"] = str(error)
        result["seconds"] = time.monotonic() - started
    """)
    assert "time-out of 1000ms while waiting for the simulator" in result["error"] and result["seconds"] < 3


def test_connecting_says_what_is_missing(server, monkeypatch):
    pytest.importorskip("carla", reason="no wheel here")
    assert connection.server_version(server.host, server.port, 5.0) == connection.VERSION
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(ServerUnavailable, match=r"No CARLA server listens at 127\.0\.0\.1:"):
            connection.connect(port=closed.getsockname()[1], timeout=1.0)
        closed.listen()
        with pytest.raises(ServerUnavailable, match="does not answer"):
            connection.connect(port=closed.getsockname()[1], timeout=0.2)
    monkeypatch.setitem(__import__("sys").modules, "carla", None)
    with pytest.raises(MissingExtra, match=r"pip install \"robo-rl\[carla\]\""):
        connection.connect(port=server.port)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (msgpack.packb([1, 1, None, [[1, "0.9.15"]]]), "another version than the client.\n  got:     0.9.15"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no CARLA server"),
        (b"", "is no CARLA server"),
    ],
)
def test_another_server_is_refused_before_a_client_is_made(reply, message):
    pytest.importorskip("carla", reason="no wheel here")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def answer() -> None:
            connected, _ = listener.accept()
            with connected:
                connected.recv(100)
                connected.sendall(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServerUnavailable, match=message):
            connection.connect(port=listener.getsockname()[1], timeout=2.0)
        thread.join()
