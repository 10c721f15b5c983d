"""Measures what a control loop has to keep, for `robo-rl bench robot`: deadlines, guard, link, watchdog, pictures.

The robot is a twin in a process of its own, the learner another process at a lower priority, the loop this one, or that of
`robo-rl train`: the three share the cores that the bench may use. Twin and loop ask for real-time priority, as they should
where a robot is steered.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from robo_bench.measurement import Cases, Effort, Measurement
from robo_real.arm import ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.control_loop import ControlLoop
from robo_real.drivers.fake import FakeArm
from robo_real.guard import Guard
from robo_real.limits import TWIN
from robo_real.priority import running_first
from robo_real.remote import RemoteRobot
from robo_rl.errors import ServerUnavailable

PERIOD = 0.05
"""[s]"""
JUDGED = 2000
"""commands in the bench of the guard"""
KILLS = 3
SHOWN = "console, pictures of a camera on a page"
WARM = 1.0
"""[s] before pictures are counted"""
NICE = 10
"""of the learner: a robot comes first"""
LEARNER = """
import os
os.nice({nice})
from dataclasses import replace
from robo_rl.discovery import load, make_environment
from robo_rl.training import online_training
environment = make_environment("robot/Fake-v0")
config = load("learners", "sac")()
class Silent:
    def on_episode(self, *_, **__): pass
    def on_metrics(self, *_): pass
    def on_step(self, step, training):
        if step == 600: print("learning", flush=True)
learner = config.build(environment.environment_spec, 0)
sampling = replace(config.sampling, learning_starts=500)
online_training(environment, learner, sampling, steps=10**9, seed=0, demonstrations=()).run(Silent())
"""
STREAM = """
import sys
from robo_real.control_loop import ControlLoop
from robo_real.remote import RemoteRobot
robot = RemoteRobot(sys.argv[1], owner="bench")
robot.connect(); robot.arm()
loop = ControlLoop(robot.clock, 0.05)
while True:
    robot.observe(); robot.apply([0, 0, 0, 0, 1])
    if len(loop.lateness) == 10: print("under way", flush=True)
    loop.wait()
"""


TRAINING = """
name: bench
environment: {{name: "robot:{url}"}}
algorithm: sac
learner: {{learning_starts: 100}}
learner_process: "on"
steps: {steps}
log_every: 100
checkpoint_every: 0
evaluation: {{episodes: 1, films: 0}}
"""


def cases(effort: Effort) -> Cases:
    """Returns the cases; the first four share one run of the loop of `seconds` times `repeats`, the next four a training."""
    cycles = max(round(effort.seconds * effort.repeats / PERIOD), 40)
    loop, training = cache(partial(_loop, cycles)), cache(partial(_training, cycles))
    names = {
        "20 Hz beside a learner: begun within a period": ("cycles", 0),
        "20 Hz beside a learner: late, 99 %": ("ms", 1),
        "20 Hz beside a learner: late, worst": ("ms", 2),
        "20 Hz beside a learner: observe and apply, 99 %": ("ms", 3),
    }
    found: Cases = {name: partial(_of_loop, name, unit, index, loop) for name, (unit, index) in names.items()}
    names = {
        "20 Hz in a training: begun within a period": ("cycles", 0),
        "20 Hz in a training: late, 99 %": ("ms", 1),
        "20 Hz in a training: late, worst": ("ms", 2),
        "20 Hz in a training: held for the learner": ("s", 3),
    }
    found |= {name: partial(_of_loop, name, unit, index, training) for name, (unit, index) in names.items()}
    found["guard, a command, median"] = partial(_guard, "guard, a command, median", 50)
    found["guard, a command, 99 %"] = partial(_guard, "guard, a command, 99 %", 99)
    found["killed client, until the arm holds"] = _killed
    if find_spec("websockets"):
        found[SHOWN] = partial(_shown, max(effort.seconds, 2.0))
    return found


def _of_loop(name: str, unit: str, index: int, loop: Callable[[], tuple[float, ...]]) -> Measurement:
    cycles, *figures = loop()
    return Measurement("robot", name, unit, figures[index], limit=cycles if unit == "cycles" else None)


def _loop(cycles: int) -> tuple[float, ...]:
    """Returns all cycles, those in time, 99th percentile and worst of the lateness [ms], and 99th of a cycle's calls [ms]."""
    took = []
    with _twin() as url, _running(LEARNER.format(nice=NICE), "learning"):
        robot = RemoteRobot(url)
        robot.connect()
        robot.arm()
        loop = ControlLoop(robot.clock, PERIOD)
        with running_first():
            for cycle in range(cycles):
                start = time.monotonic()
                robot.observe()
                robot.apply([0.2 if cycle % 40 < 20 else -0.2, 0, 0, 0, 1])
                took.append(time.monotonic() - start)
                loop.wait()
        robot.close()
    late = 1000 * np.asarray(loop.lateness)
    late_at_most = float(np.percentile(late, 99)), float(late.max())
    return (cycles, cycles - loop.overruns, *late_at_most, 1000 * float(np.percentile(took, 99)))


def _training(cycles: int) -> tuple[float, ...]:
    """Returns the cycles of `robo-rl train` on a twin, those in time, lateness as above, and how long it was held [s]."""
    command = [sys.executable, "-m", "robo_cli.main", "train", "bench.yaml"]
    with _twin() as url, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bench.yaml").write_text(TRAINING.format(url=url, steps=100 + cycles))
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        lines = next(Path(folder).glob("runs/*/metrics.jsonl")).read_text().splitlines()
    newest = {tag: value for line in lines for tag, value in json.loads(line).items()}
    seen = newest["robot/cycles"]
    late = newest["robot/late_p99_ms"], newest["robot/late_worst_ms"]
    return seen, seen - newest["robot/overruns"], *late, newest.get("learner/held_s", 0.0)


def _guard(name: str, percent: float) -> Measurement:
    guard, arm = Guard(TWIN, PERIOD, AuditLog()), FakeArm()
    took: list[float] = []
    arm.connect()
    guard.connected()
    guard.arm()
    jacobian = np.random.default_rng(0).normal(0, 0.4, (6, 7))
    for _ in range(JUDGED):
        state = replace(arm.read(), jacobian=jacobian)  # that of the fake is zero, which would spare the guard some work
        target = ArmTarget(state.position + np.array([0.001, 0.0, 0.0]) * (len(took) % 2), state.quaternion, 0.04)
        with running_first():
            start = time.perf_counter()
            guard.judge(target, state, observed=state.stamp, now=arm.clock.now())
            took.append(time.perf_counter() - start)
    return Measurement("robot", name, "us", 1e6 * float(np.percentile(took, percent)))


def _killed() -> Measurement:
    """Returns the time from the last command of a client that is killed until the arm was told to hold."""
    silent = []
    for _ in range(KILLS):
        with tempfile.TemporaryDirectory() as folder, _twin(Path(folder)) as url:
            with _running(STREAM, "under way", url):
                pass
            silent.append(_silence(Path(folder) / "audit.jsonl"))
    spread = (1000 * min(silent), 1000 * max(silent))
    name = "killed client, until the arm holds"
    return Measurement("robot", name, "ms", 1000 * float(np.median(silent)), limit=1000 * TWIN.hold_after, spread=spread)


def _shown(seconds: float) -> Measurement:
    """Returns how many pictures of a twin's camera a page of the console is sent in a second, which draws them at once."""
    from robo_real.console.assembly import RobotConsole

    with _twin(None, "--options", "cameras=[front]") as url:
        console = RobotConsole(url)
        thread = console.start()
        try:
            return Measurement("robot", SHOWN, "1/s", _pictures_a_second(console.server.port, console.server.token, seconds))
        finally:
            console.close()
            thread.join()


def _pictures_a_second(port: int, token: str, seconds: float) -> float:
    from websockets.sync.client import connect
    from websockets.typing import Origin

    count, start = 0, time.monotonic() + WARM
    address, origin = f"ws://127.0.0.1:{port}/socket", Origin(f"http://127.0.0.1:{port}")
    with connect(address, origin=origin, compression=None, proxy=None) as socket:
        socket.send(json.dumps({"kind": "hello", "token": token}))
        while time.monotonic() < start + seconds:
            message = socket.recv(timeout=20)
            if isinstance(message, bytes):
                count += time.monotonic() >= start
                seen = {"kind": "seen", "camera": "camera_front", "number": int.from_bytes(message[1:5], "big")}
                socket.send(json.dumps(seen))
            elif (told := json.loads(message))["kind"] == "status":
                socket.send(json.dumps({"kind": "seen", "camera": "report", "number": told["number"]}))
    return count / seconds


def _silence(log: Path) -> float:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        held = [line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == "held"]
        if held:
            return float(held[-1]["silent"])
        time.sleep(0.05)
    raise ServerUnavailable("The twin did not hold its arm.", got="no event in 10 s")


@contextmanager
def _twin(folder: Path | None = None, *arguments: str) -> Iterator[str]:
    """Serves a twin in a process of its own; gives its address."""
    log = [] if folder is None else ["--log", str(folder / "audit.jsonl")]
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, "-m", "robo_cli.main", "robot", "serve", "--port", "0", *log, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=elsewhere)
        try:
            yield _told(process, "http").split(" at ")[1].split(",")[0]
        finally:
            _end(process)


@contextmanager
def _running(program: str, ready: str, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        _told(process, ready)
        yield
    finally:
        _end(process)


def _told(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line.strip()
    raise ServerUnavailable("A process of the bench ended.", got=f"exit status {process.wait()}")


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
