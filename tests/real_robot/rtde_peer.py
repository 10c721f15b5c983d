"""The other end of a Universal Robot's network interfaces, scripted: enough that the unmodified ur_rtde wheel works against it.

Real-Time Data Exchange, protocol 2 (port 30004): packages of a big-endian uint16 size, a uint8 type and a body. The control
interface uploads a program (port 30003) that reads commands from input registers and answers in output registers; the peer
plays that program by its numbers: 8 zero_ftsensor, 16 servoStop, 18 teach_mode, 19 end_teach_mode, 24 servoL, 35 watchdog, 255
end. If `watches` is set, the program ends once no word has come for as long as the watchdog was told, as the controller's does.

It runs in a process of its own, because the wheel keeps Python's lock while it connects:

rtde_peer.py ADDRESS    takes lines of JSON: {"set": {NAME: VALUE}}, {"call": NAME}, {"get": NAME}; answers each with a line
"""

import contextlib
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np

TYPES = {
    "timestamp": ("DOUBLE", "d"),
    "robot_mode": ("INT32", "i"),
    "safety_mode": ("INT32", "i"),
    "robot_status_bits": ("UINT32", "I"),
    "safety_status_bits": ("UINT32", "I"),
    "runtime_state": ("UINT32", "I"),
    **{
        name: ("VECTOR6D", "6d")
        for name in ("actual_q", "actual_qd", "actual_TCP_pose", "actual_TCP_speed", "actual_TCP_force", "target_TCP_pose")
    },
}
READY, DONE = 1, 2
"""In output register 0: the program waits for a command; it has done it."""
ZERO_FORCE, SERVO_STOP, TEACH, END_TEACH, SERVO_L, WATCHDOG, END = 8, 16, 18, 19, 24, 35, 255
NORMAL = 1 << 0
SPEED = np.array([0.001] * 3 + [0.01] * 3)
"""[m] and [rad] in 10 ms"""
POWER_ON, PROGRAM_RUNS = 1 << 0, 1 << 1


def kind_of(name):
    """Returns the type of a variable, as the protocol and as struct name it."""
    if name in TYPES:
        return TYPES[name]
    if "_int_register_" in name:
        return "INT32", "i"
    if "_double_register_" in name:
        return "DOUBLE", "d"
    return "NOT_FOUND", ""


class RTDEPeer:
    """Listens at an address of this machine alone, because the ports of the protocol are fixed."""

    def __init__(self, address):
        self.address = address
        self.state = {
            "robot_mode": 7,
            "safety_mode": 1,
            "safety_status_bits": NORMAL,
            "actual_q": np.array([0.1, -1.5, 1.4, -1.5, -1.57, 0.2]),
            "actual_qd": np.zeros(6),
            "actual_TCP_pose": np.array([0.4, 0.1, 0.3, np.pi, 0.0, 0.0]),
            "actual_TCP_speed": np.zeros(6),
            "actual_TCP_force": np.array([1.0, 2.0, 3.0, 0.1, 0.2, 0.3]),
        }
        self.commands = []
        """(number, doubles) of each command that the program took"""
        self.dashboard = []
        self.program = ""
        self.runs = self.frozen = self.watches = self.teaches = False
        self._heard, self._watchdog = time.monotonic(), 0.0
        self.registers = {"output_int_register_0": 0}
        self.words = 0
        """that came in the input registers"""
        self._target, self._began, self._done = None, time.monotonic(), threading.Event()
        self._sockets, self._threads = [], []
        for port, serves in ((30004, self._exchange), (30003, self._script), (29999, self._dashboard)):
            listener = socket.create_server((address, port))
            self._sockets.append(listener)
            self._start(self._accept, listener, serves)
        self._start(self._move)

    def close(self):
        self._done.set()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def cut(self):
        """Loses every connection, and takes no new one."""
        for found in [*self._sockets]:
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener, serves):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(connection)
                self._start(self._guarded, serves, connection)

    def _guarded(self, serves, connection):
        with contextlib.suppress(OSError, struct.error), connection, connection.makefile("rb") as lines:
            serves(connection, lines)

    # the real-time data exchange

    def _exchange(self, connection, lines):
        recipes, outputs, frequency = {}, [], 125.0
        while header := lines.read(3):
            size, kind = struct.unpack(">HB", header)
            body = lines.read(size - 3)
            if kind == ord("V"):
                answer = bytes([struct.unpack(">H", body)[0] == 2])
            elif kind == ord("v"):
                answer = struct.pack(">4I", 5, 11, 1, 108318)
            elif kind == ord("O"):
                frequency = struct.unpack(">d", body[:8])[0]
                outputs = [name for name in body[8:].decode().split(",") if name]
                answer = bytes([1]) + ",".join(kind_of(name)[0] for name in outputs).encode()
            elif kind == ord("I"):
                recipes[len(recipes) + 1] = names = [name for name in body.decode().split(",") if name]
                answer = bytes([len(recipes)]) + ",".join(kind_of(name)[0] for name in names).encode()
            elif kind == ord("U"):
                self._take(recipes[body[0]], body[1:])
                continue
            else:  # start and pause
                answer = b"\1"
            connection.sendall(struct.pack(">HB", 3 + len(answer), kind) + answer)
            if kind == ord("S"):
                self._start(self._stream, connection, outputs, frequency)

    def _stream(self, connection, outputs, frequency):
        with contextlib.suppress(OSError):
            while not self._done.wait(1 / min(frequency, 100.0)):
                if not self.frozen:
                    values = [np.ravel(self._value(name)) for name in outputs]
                    packed = [struct.pack(">" + kind_of(name)[1], *found) for name, found in zip(outputs, values, strict=True)]
                    body = b"\1" + b"".join(packed)
                    connection.sendall(struct.pack(">HB", 3 + len(body), ord("U")) + body)

    def _value(self, name):
        if name == "timestamp":
            return time.monotonic() - self._began
        if name == "robot_status_bits":
            return POWER_ON | (PROGRAM_RUNS if self.runs else 0)
        if name == "runtime_state":
            return 2 if self.runs else 1
        found = self.state.get(name, self.registers.get(name, 0))
        return np.zeros(6) if kind_of(name)[0] == "VECTOR6D" and np.ndim(found) == 0 else found

    # the program

    def _take(self, names, body):
        values = struct.unpack(">" + "".join(kind_of(name)[1] for name in names), body)
        number, doubles = values[0], [value for name, value in zip(names, values, strict=True) if "double" in name]
        self.words += 1
        self._heard = time.monotonic()
        if not self.runs:
            return
        if number == 0:
            self.registers["output_int_register_0"] = READY
            return
        self.commands.append((number, doubles))
        if number == SERVO_L:
            self._target = np.array(doubles[:6])
        elif number == SERVO_STOP:
            self._target = None
        elif number == ZERO_FORCE:
            self.state["actual_TCP_force"] = np.zeros(6)
        elif number in (TEACH, END_TEACH):
            self.teaches = number == TEACH
        elif number == WATCHDOG:
            self._watchdog = doubles[0]
        elif number == END:
            self.runs = False
        self.registers["output_int_register_0"] = READY if number == SERVO_L else DONE

    def _move(self):
        while not self._done.wait(0.01):
            target = self._target
            if self.watches and self._watchdog and time.monotonic() - self._heard > 1 / self._watchdog:
                self.runs = self.teaches = False
            if target is not None and self.runs and self.state["safety_status_bits"] == NORMAL:
                pose = self.state["actual_TCP_pose"]
                self.state["actual_TCP_pose"] = pose + np.clip(target - pose, -SPEED, SPEED)
                self.state["actual_q"] = self.state["actual_q"] + 1e-3

    # script and dashboard

    def _script(self, connection, lines):
        for line in lines:
            self.program += line.decode()
            if line.startswith(b"end"):
                self.runs = True
                self.registers["output_int_register_0"] = READY

    def _dashboard(self, connection, lines):
        connection.sendall(b"Connected: Universal Robots Dashboard Server\n")
        answers = {
            "PolyscopeVersion": "URSoftware 5.11.1.108318 (Dec 01 2021)",
            "is in remote control": "true",
            "get serial number": "20215500000",
            "get robot model": "UR5",
            "unlock protective stop": "Protective stop releasing",
        }
        for line in lines:
            asked = line.decode().strip()
            self.dashboard.append(asked)
            if asked == "stop":
                self.runs = False
            if asked == "unlock protective stop":
                self.state["safety_status_bits"] = NORMAL
            connection.sendall((answers.get(asked, "ok") + "\n").encode())


_numbers = itertools.count()


class Peer:
    """The peer's process, seen from a test, at an address that no other test of this machine uses at the same time."""

    def __init__(self):
        self.address = address = f"127.{os.getpid() >> 8 & 255}.{os.getpid() & 255}.{next(_numbers) % 250 + 2}"
        command = [sys.executable, __file__, address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert json.loads(self._process.stdout.readline()) == "listening"

    def ask(self, **what):
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def set(self, **facts):
        self.ask(set=facts)

    def get(self, name):
        return self.ask(get=name)

    def call(self, name):
        self.ask(call=name)

    def close(self):
        if self._process.stdin.closed:
            return
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def main():
    peer = RTDEPeer(sys.argv[1])
    print(json.dumps("listening"), flush=True)
    for line in sys.stdin:
        asked, answer = json.loads(line), None
        for name, value in asked.get("set", {}).items():
            if name in peer.state:
                peer.state[name] = np.array(value) if isinstance(value, list) else value
            else:
                setattr(peer, name, value)
        if "call" in asked:
            getattr(peer, asked["call"])()
        if "get" in asked:
            found = peer.state.get(asked["get"], getattr(peer, asked["get"], None))
            answer = found.tolist() if isinstance(found, np.ndarray) else found
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
