"""Who means harm or is broken gets one error, or is hung up on; memory stays bounded and others are served on."""

import random
import selectors
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("msgpack")

import msgpack

from carla_standin import connections
from carla_standin.connections import MOST_CONNECTIONS, Connection
from carla_standin.maps.catalogue import town
from carla_standin.rpc import LARGEST, LONGEST
from carla_standin.server import Options, Server
from carla_standin.settings import Settings
from robo_sims.carla.local_server import StandIn

LIST = b"\xdd" + struct.pack(">I", LONGEST)
"""The beginning of the longest list that a call may have."""


class Wire:
    """A client that is written out by hand."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 10)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.sock.close()

    def call(self, name, *arguments):
        self.sock.sendall(msgpack.packb([0, 7, name, [[False], *arguments]]))
        unpacker = msgpack.Unpacker(strict_map_key=False)
        while True:
            data = self.sock.recv(1 << 16)
            assert data, "it hung up"
            unpacker.feed(data)
            for message in unpacker:
                return message[2:]

    def is_alive(self) -> bool:
        return self.call("version") == [None, [[1, "0.9.16"]]]

    def is_hung_up_on(self, *data: bytes) -> bool:
        try:
            for part in data:
                self.sock.sendall(part)
            return self.sock.recv(10) == b""
        except ConnectionError:
            return True


@pytest.fixture(scope="module")
def server():
    with StandIn(map="ring") as running:
        yield running


def memory(server: StandIn) -> float:
    """Returns the most [MB] that a server has held so far, where the system tells; 0 elsewhere."""
    status = Path(f"/proc/{server.process.pid}/status")
    return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1000 if status.is_file() else 0.0


@pytest.mark.slow
def test_unread_answers_are_sent_later_and_dropped(server):
    with Wire(server.port) as wire:
        later, now = ([0, number, "version", [[is_async]]] for number, is_async in ((1, True), (2, False)))
        wire.sock.sendall(msgpack.packb(later) + msgpack.packb(now))
        unpacker, numbers = msgpack.Unpacker(), []
        while len(numbers) < 2:
            unpacker.feed(wire.sock.recv(1 << 16))
            numbers += [message[1] for message in unpacker]
        assert numbers == [1, 2]
        wire.sock.sendall(msgpack.packb(later) * 6000)
        assert len(wire.sock.recv(1 << 20)) > 1000


def test_lists_that_claim_to_be_endless_are_not_waited_for(server):
    before = memory(server)
    with Wire(server.port) as good:
        for data in (b"\xdd\xff\xff\xff\xff", LIST * 3000):
            with Wire(server.port) as bad:
                assert bad.is_hung_up_on(data)
        assert good.is_alive()
    assert memory(server) < before + 150


@pytest.mark.slow
def test_endless_calls_are_aborted_before_memory_fills(server):
    before, half = memory(server), LARGEST // 2 // LONGEST
    bad = [Wire(server.port) for _ in range(6)]
    with Wire(server.port) as good:
        for wire in bad[:3]:  # many small lists take the most memory
            wire.sock.sendall(LIST + (LIST + b"\x90" * LONGEST) * half)
            assert good.is_alive()
        for wire in bad[3:]:
            wire.sock.sendall(b"\x94\x00\x01\xdb\x7f\xff\xff\xff" + b"a" * (LARGEST // 2))  # 2 GB of text, it says
            assert good.is_alive()
        end = time.monotonic() + 20
        while server.said().count("its call is incomplete") < 4 and time.monotonic() < end:
            assert good.is_alive()
    assert server.said().count("its call is incomplete") >= 4
    assert memory(server) < before + 600
    for wire in bad:
        wire.sock.close()


def test_more_connections_than_there_is_room_for_are_turned_away(server):
    with Wire(server.port) as good:
        crowd = [Wire(server.port + number % 2) for number in range(2 * MOST_CONNECTIONS + 100)]
        assert good.is_alive()
        with Wire(server.port) as late:
            assert late.is_hung_up_on()
        for wire in crowd:
            wire.sock.close()
        assert good.is_alive()
    with Wire(server.port) as next_one:
        assert next_one.is_alive()
    assert f"{MOST_CONNECTIONS} are connected" in server.said()


def test_of_those_who_do_not_read_the_slowest_is_given_up(monkeypatch):
    monkeypatch.setattr(connections, "MOST_PENDING", 3_000_000)
    with selectors.DefaultSelector() as selector:
        pairs = [socket.socketpair() for _ in range(2)]
        first, second = (Connection(sock, selector, None) for sock, _ in _unnamed(pairs))
        while not first.pending:
            first.send(bytes(100_000))
        for _ in range(20):
            first.send(bytes(100_000))
        while second.is_open and first.is_open:
            second.send(bytes(10_000))
        assert second.is_open and not first.is_open and not first.pending
        second.close()
        for _, other in pairs:
            other.close()
    assert not connections.SLOW


def _unnamed(pairs):
    """Yields pairs of local sockets that take the options of TCP without a word."""
    for sock, other in pairs:
        yield _Plain(sock.detach(), other), other


class _Plain(socket.socket):
    def __init__(self, number: int, _: socket.socket) -> None:
        super().__init__(fileno=number)

    def setsockopt(self, *_) -> None:
        pass


def test_who_is_killed_in_the_middle_of_a_tick_harms_nobody(server):
    with Wire(server.port) as good:
        for cut in (0, 3, 12):
            bad = socket.create_connection(("127.0.0.1", server.port), 10)
            bad.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # resets, as a killed process may
            bad.sendall(msgpack.packb([0, 1, "tick_cue", [[False]]]) * 3 + msgpack.packb([0, 2, "tick_cue", [[False]]])[:cut])
            bad.close()
            assert good.is_alive()


def test_subscription_to_missing_stream_leaves_nothing(server):
    with Wire(server.port) as good:
        for stream in range(50):
            with Wire(server.port + 1) as bad:
                bad.sock.sendall(struct.pack("<I", 10**6 + stream))
        for stream in ([], -1, 2**40, "a", None):
            assert "no number of a stream" in good.call("get_sensor_token", stream)[1][0][1][0]
        end = time.monotonic() + 5
        while len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) > 12 and time.monotonic() < end:
            assert good.is_alive()
        assert len(list(Path(f"/proc/{server.process.pid}/fd").iterdir())) <= 12


def test_failure_between_steps_is_reported_by_next_step():
    server = Server(Options(port=0, map="grid", traffic=3))
    serving = threading.Thread(target=server.run, daemon=True)
    serving.start()
    settings = [True, False, [True, 0.05], *list(vars(Settings()).values())[3:]]
    with Wire(server.port) as good:
        assert good.call("set_episode_settings", settings)[0] is None
        cars = server.host.world.cars
        cars.look, look = _broken, cars.look
        good.call("tick_cue")  # may have been looked for already
        for _ in range(2):
            assert "tick_cue failed: ZeroDivisionError" in good.call("tick_cue")[0]
        cars.look = look
        frame = good.call("tick_cue")[1][0][1]
        assert good.call("tick_cue") == [None, [[1, frame + 1]]]
        server.is_running = False
    serving.join(10)
    server.close()


def _broken(*_) -> None:
    raise ZeroDivisionError


def test_settings_and_maps_of_wrong_types_are_refused(server):
    with Wire(server.port) as good:
        for settings in (["a"] * 11, [True, False, ["x", "y"], *[1] * 8], [True, False, [True, "1"], *[1] * 8]):
            assert "Episode settings begin with two yes or no" in good.call("set_episode_settings", settings)[1][0][1][0]
        assert "no text" in good.call("load_new_episode", 5, True, 1)[1][0][1][0]
        assert "no text" in good.call("copy_opendrive_to_file", b"\xff", [])[1][0][1][0]


def test_damaged_map_is_an_error_or_a_map(server):
    chance, text = random.Random(0), town("ring").text
    answers = []
    with Wire(server.port) as good:
        for _ in range(60):
            at, other = chance.randrange(len(text)), chance.randrange(len(text))
            broken = chance.choice(
                [text[:at] + text[at + 40 :], text[:at] + "9" + text[at + 1 :], text[:at] + text[other : other + 40]]
            )
            error, (answer,) = good.call("copy_opendrive_to_file", broken, [])
            assert error is None, error
            answers.append(answer[0])
        assert good.is_alive()
    assert answers.count(True) > 30
