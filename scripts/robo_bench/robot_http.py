"""Measure a robot's server under hostile clients: python -m robo_bench.robot_http [--rounds 3] [--crowd 10000].

A twin is served in its own process by the limits of simulated arms, and each attack comes from another one:

- **none**: nobody else.
- **length**: bodies of 50 MB. **chunked**: 300 MB in chunks of 1 MB. **crumbs**: chunks of one byte. **many**: 60 kB of deep
  JSON again and again.
- **drip**: 200 connections, each of which sends a byte of a header, or of a body, twice a second.
- **asks**: 50 connections that ask for an address that is none, again and again, without waiting for answers.
- **half-open**: 400 connections with half a header.
- **crowd**: connections that say nothing, half a header, a whole request, and stay.

Rows: a pose (POST /getpos) over a kept connection, median and 99 % [ms],
and the processor time of the HTTP process meanwhile, for each [ms]; a stop over a new connection, worst [ms]; the
silence after which the arm holds when its client falls silent amid the attack, worst [ms]; the largest memory of the HTTP
process [MiB] and the files that it has open.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from robo_real.http_client import RobotClient
from robo_real.remote_robot import RemoteRobot
from robo_rl.errors import RobotError

POSES, STOPS = 300, 5
PATIENCE = 30.0
"""Longest wait [s] for an answer of the server."""
ATTACK = """
import resource, socket, sys, time
from contextlib import suppress
port, kind, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(count + 100, hard) if hard > 0 else count + 100, hard))
head = b"POST /robo/stop HTTP/1.1\\r\\nHost: localhost\\r\\nContent-Type: application/json\\r\\n"
chunked = head + b"Transfer-Encoding: chunked\\r\\n\\r\\n"
part = b"[" + b"0," * 500_000
deep = b'{"by": ' + b"[" * 30000 + b"0" * 30000 + b"}"
health = b"GET /robo/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
said = {
    "length": (head + b"Content-Length: 50000000\\r\\n\\r\\n", part, 50),
    "chunked": (chunked, b"%x\\r\\n" % len(part) + part + b"\\r\\n", 300),
    "crumbs": (chunked, b"1\\r\\n0\\r\\n" * 100_000, 100),
    "many": (b"", head + b"Content-Length: %d\\r\\n\\r\\n" % len(deep) + deep, 200),
}
def connected():
    return socket.create_connection(("127.0.0.1", port), 60)
if kind in said:
    print("under way", flush=True)
    first, then, times = said[kind]
    while True:
        with suppress(OSError), connected() as link:
            link.sendall(first)
            for _ in range(times):
                link.sendall(then)
elif kind == "asks":
    links = []
    print("under way", flush=True)
    while True:
        while len(links) < 50:
            links.append(connected())
            links[-1].setblocking(False)
        for link in [*links]:
            try:
                link.send(health.replace(b"/robo/health", b"/nowhere") * 100)
                link.recv(1 << 20)
            except BlockingIOError:
                pass
            except OSError:
                links.remove(link)
        time.sleep(0.001)
elif kind == "drip":
    links, number = [], 0
    print("under way", flush=True)
    while True:
        while len(links) < 200:
            links.append(connected())
            if len(links) % 2:
                links[-1].sendall(head.replace(b"/robo/stop", b"/getpos") + b"Content-Length: 60000\\r\\n\\r\\n{")
        for link in [*links]:
            try:
                link.send(b"X")
            except OSError:
                links.remove(link)
        time.sleep(0.5)
else:
    words = {"half-open": [head[:40]], "crowd": [b"", head[:40], health]}[kind]
    links = []
    for number in range(count):
        with suppress(OSError):
            links.append(connected())
            links[-1].sendall(words[number % len(words)])
    print("under way", flush=True)
    time.sleep(600)
"""
COUNTS = {"half-open": 400, "drip": 400}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crowd", type=int, default=10_000, help="connections of the crowd")
    parser.add_argument(
        "--attacks", nargs="*", default=["none", "length", "chunked", "crumbs", "many", "asks", "drip", "half-open", "crowd"]
    )
    arguments = parser.parse_args()
    with _served() as server:
        print("first answer after", f"{1000 * server.began:.0f} ms", flush=True)
        print("| attack | pose, median | 99 % | processor | stop, worst | hold, worst | memory | files |")
        for attack in arguments.attacks:
            count = arguments.crowd if attack == "crowd" else COUNTS.get(attack, 0)
            rounds = 1 if attack == "crowd" else arguments.rounds
            poses, stops, holds, files, cost = [], [], [], 0, 0.0
            for _ in range(rounds):
                with _attacked(server.port, attack, count):
                    holds.append(server.hold())
                    before = server.processor_time()
                    poses += server.poses(POSES)
                    cost += server.processor_time() - before
                    stops += [server.stop() for _ in range(STOPS)]
                    files = max(files, server.files())
            row = np.median(poses), np.percentile(poses, 99), cost / len(poses), max(stops), max(holds)
            cells = " | ".join(f"{1000 * value:.2f}" for value in row)
            print(f"| {attack} | {cells} | {server.memory():.0f} | {files} |", flush=True)


class Served:
    """A twin (simulated robot) served over HTTP, with methods that measure its answers."""

    def __init__(self, url: str, pid: int, log: Path, began: float) -> None:
        self.url, self.port, self._log, self.began = url, int(url.rpartition(":")[2]), log, began
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._http = next(each for each in children if b"http_process" in Path(f"/proc/{each}/cmdline").read_bytes())

    def poses(self, count: int) -> list[float]:
        """Return how long answers to /getpos take [s]."""
        client, took = RobotClient(self.url, PATIENCE), []
        for _ in range(count):
            begun = time.perf_counter()
            with suppress(RobotError):
                client.post("/getpos")
            took.append(time.perf_counter() - begun)
        client.close()
        return took

    def stop(self) -> float:
        """Return how long a stop over a new connection takes [s], tries included."""
        begun = time.perf_counter()
        while time.perf_counter() - begun < PATIENCE:
            client = RobotClient(self.url, PATIENCE)
            try:
                client.json("/robo/stop", {"by": "bench"})
                return time.perf_counter() - begun
            except RobotError:
                continue
            finally:
                client.close()
        return float("inf")

    def hold(self) -> float:
        """Return after how many seconds without a command from its client the server holds the arm.

        Infinite if the arm never moved.
        """
        robot, before = RemoteRobot(self.url, owner="bench", timeout=PATIENCE), len(self._held())
        robot.rearm("bench")
        robot.connect()
        robot.arm()
        for _ in range(6):
            with suppress(RobotError):
                robot.observe()
                robot.apply([0.2, 0, 0, 0, 1])
            time.sleep(0.05)
        end = time.monotonic() + 5
        while len(self._held()) == before and time.monotonic() < end:
            time.sleep(0.02)
        robot.close()
        return max(self._held()[before:], default=float("inf"))

    def processor_time(self) -> float:
        """Return the processor time of the HTTP process so far [s]."""
        fields = Path(f"/proc/{self._http}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return the largest memory of the HTTP process so far [MiB]."""
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self._http}/status").read_text())
        assert found
        return int(found[1]) / 1024

    def files(self) -> int:
        """Return how many files the HTTP process has open."""
        return len(os.listdir(f"/proc/{self._http}/fd"))

    def _held(self) -> list[float]:
        lines = map(json.loads, self._log.read_text().splitlines())
        return [line["silent"] for line in lines if line["event"] == "held"]


@contextmanager
def _served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "audit.jsonl"
        command = [sys.executable, "-m", "robo_cli.main", "robot", "serve", "--port", "0", "--log", str(log)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
            assert process.stdout
            try:
                line = process.stdout.readline()
                url, begun = line.split(" at ")[1].split(",")[0], time.perf_counter()
                RobotClient(url).json("/robo/health", method="GET", timeout=PATIENCE)
                yield Served(url, process.pid, log, time.perf_counter() - begun)
            finally:
                process.kill()


@contextmanager
def _attacked(port: int, attack: str, count: int) -> Iterator[None]:
    if attack == "none":
        yield
        return
    command = [sys.executable, "-I", "-c", ATTACK, str(port), attack, str(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        try:
            process.stdout.readline()
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
