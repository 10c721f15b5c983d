"""Measure deadlines, guard, link, watchdog and pictures of a control loop, for `robo-rl bench robot`.

The robot is a twin in its own process, the learner another process at a lower priority, the loop this one, or that of
`robo-rl train`: the three share the cores that the bench may use. Twin and loop ask for real-time priority, as they should
if a robot is steered.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from robo_bench.measurement import Case, Effort, Figures
from robo_real.arm import ArmTarget
from robo_real.audit_log import AuditLog
from robo_real.clock import ControlLoop
from robo_real.drivers.fake import FakeArm
from robo_real.guard import Guard
from robo_real.limits import TWIN
from robo_real.priority import realtime_priority
from robo_real.remote_robot import RemoteRobot
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import ServerUnavailable
from robo_rl.system.threads import tensor_threads

PERIOD = 0.05
"""Period [s] of the robot's control loop."""
SEEING = {"task": "robo/ArmPick-v0", "sees": "both", "image_size": 84}
"""Options of the twin (simulated robot) for a policy that acts from pictures: task, cameras, picture size [pixel]."""
CONVOLUTIONS = (32, 32, 32, 32)
"""Convolutions of that policy; its speed does not depend on what it has learnt."""
JUDGED = 2000
"""commands in the bench of the guard"""
KILLS = 3
LINES, PAUSE = 2000, 2e-4
"""Number of lines that are written to the audit log, and pause [s] between two of them."""
COMMAND = {"action": [0.1, -0.2, 0.3, 0.0, 1.0], "answers": 1234.567}
DONE = {"executed": [0.1, -0.2, 0.3, 0.0, 1.0], "reasons": ["speed"], "mode": "running"}
GUARD_RANKS = {"median": 50.0, "99 %": 99.0}
RANDOM_STEPS, LOG_EVERY = 100, 100
"""Random first steps of the training, and steps between two lines of its log."""
WARM = 1.0
"""Time [s] to warm up before pictures are counted."""
TRAINING = """
name: bench
environment: {{name: "robot:{url}"}}
algorithm: sac
learner: {{replay: {{learning_starts: {random_steps}}}}}
learner_process: "on"
steps: {steps}
log_every: {log_every}
checkpoint_every: 0
evaluation: {{episodes: 1, videos: 0}}
"""


def cases(effort: Effort) -> list[Case]:
    """Return the cases; those of one place share a run of the loop, of `seconds` times `repeats`."""
    cycles = max(round(effort.seconds * effort.repeats / PERIOD), 40)
    loop, training, seeing = (cache(partial(run, cycles)) for run in (_loop, _training, _seeing))
    units = {"started within a period": "cycles", "late, 99 %": "ms", "late, worst": "ms"}
    found = [
        Case(f"20 Hz {place}: {row}", unit, partial(_of_run, run, row))
        for place, run, more in (
            ("with a learner", loop, {"observe and apply, 99 %": "ms"}),
            ("in a training", training, {"time not held for the learner": "%"}),
            ("from pictures", seeing, {"command at the arm late, 99 %": "ms", "age of the pictures, 99 %": "ms"}),
        )
        for row, unit in (units | more).items()
    ]
    found += [Case(f"guard, a command, {words}", "us", partial(_guard, rank)) for words, rank in GUARD_RANKS.items()]
    found.append(Case("killed client, until the arm holds", "ms", _killed))
    found.append(Case("console, pictures of a camera on a page", "1/s", _shown))
    lines = {"a line": False, "a line while the disk hangs": True}
    return found + [Case(f"audit log, {words}, 99 %", "us", partial(_audit, hangs)) for words, hangs in lines.items()]


def _of_run(run: Callable[[], dict[str, Figures]], row: str, *_: object) -> Figures:
    return run()[row]


def _loop(cycles: int) -> dict[str, Figures]:
    """Run the loop with a learner in another process."""
    took = []
    with _twin() as url, _process(["robo_bench.robot_clients", "learner"], "learning"):
        robot = RemoteRobot(url)
        robot.connect()
        robot.arm()
        loop = ControlLoop(robot.clock, PERIOD)
        with realtime_priority():
            for cycle in range(cycles):
                start = time.monotonic()
                robot.observe()
                robot.apply([0.2 if cycle % 40 < 20 else -0.2, 0, 0, 0, 1])
                took.append(1000 * (time.monotonic() - start))
                loop.wait()
        robot.close()
    late = 1000 * np.asarray(loop.lateness)
    rows = _lateness(cycles, loop.overruns, float(np.percentile(late, 99)), float(late.max()))
    return rows | {"observe and apply, 99 %": Figures(float(np.percentile(took, 99)))}


def _training(cycles: int) -> dict[str, Figures]:
    """Run `robo-rl train` on a twin, long enough for the learner to report how long it was waited for."""
    steps = RANDOM_STEPS + max(cycles, 2 * LOG_EVERY)
    command = [sys.executable, "-m", "robo_cli.main", "train", "bench.yaml"]
    with _twin() as url, tempfile.TemporaryDirectory() as folder:
        text = TRAINING.format(url=url, random_steps=RANDOM_STEPS, steps=steps, log_every=LOG_EVERY)
        (Path(folder) / "bench.yaml").write_text(text)
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        lines = next(Path(folder).glob("runs/*/metrics.jsonl")).read_text().splitlines()
    newest = {tag: value for line in lines for tag, value in json.loads(line).items()}
    acted, held = PERIOD * newest["robot/cycles"], newest["learner/held_s"]
    late = newest["robot/late_p99_ms"], newest["robot/late_worst_ms"]
    rows = _lateness(newest["robot/cycles"], newest["robot/overruns"], *late)
    return rows | {"time not held for the learner": Figures(100 * acted / (acted + held), limit=100)}


def _seeing(cycles: int) -> dict[str, Figures]:
    """Drive by a policy from the pictures of two cameras, with a learner in another process; commands are timed at the arm."""
    options = [word for name, value in SEEING.items() for word in (f"--driver.settings.{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder, _twin(Path(folder), *options) as url, tensor_threads(1):
        environment: Any = make_environment(f"robot:{url}", max_steps=cycles)
        policy = load("learners", "rlpd")(convolutions=CONVOLUTIONS).build(environment.environment_spec, 0).policy
        observation, _ = environment.reset(seed=0)
        policy.act(observation, deterministic=True)  # the first one is slow
        with _process(["robo_bench.robot_clients", "learner"], "learning"), realtime_priority():
            observation, _ = environment.reset(seed=0)
            is_over = False
            while not is_over:
                observation, _, terminated, truncated, info = environment.step(policy.act(observation, deterministic=True))
                is_over = terminated or truncated
        found = environment.metrics
        environment.close()
        if info["stop_reason"] != "time_limit":
            raise ServerUnavailable("The robot stopped within the measurement.", got=info["stop_reason"])
        lines = map(json.loads, (Path(folder) / "audit.jsonl").read_text().splitlines())
        came = [line["monotonic"] for line in lines if line["event"] == "command" and line["path"] == "/robo/apply"]
    at_arm = 1000 * (np.diff(came) - PERIOD)
    rows = _lateness(found["robot/cycles"], found["robot/overruns"], found["robot/late_p99_ms"], found["robot/late_worst_ms"])
    ages = {"age of the pictures, 99 %": Figures(found["robot/picture_age_p99_ms"])}
    return rows | ages | {"command at the arm late, 99 %": Figures(float(np.percentile(at_arm, 99)))}


def _lateness(cycles: float, overruns: float, usual: float, worst: float) -> dict[str, Figures]:
    """Return the figures of lateness. usual, worst: 99th percentile and largest lateness of a cycle [ms]."""
    in_time = Figures(cycles - overruns, limit=cycles)
    return {"started within a period": in_time, "late, 99 %": Figures(usual), "late, worst": Figures(worst)}


def _guard(percent: float, *_: object) -> Figures:
    guard, arm = Guard(TWIN, PERIOD, AuditLog()), FakeArm()
    took: list[float] = []
    arm.connect()
    guard.connected()
    guard.arm()
    jacobian = np.random.default_rng(0).normal(0, 0.4, (6, 7))
    for _number in range(JUDGED):
        state = replace(arm.read(), jacobian=jacobian)  # that of the fake is zero, which would spare the guard some work
        target = ArmTarget(state.position + np.array([0.001, 0.0, 0.0]) * (len(took) % 2), state.quaternion, 0.04)
        with realtime_priority():
            start = time.perf_counter()
            guard.judge(target, state, observed=state.stamp, now=arm.clock.now())
            took.append(time.perf_counter() - start)
    return Figures(1e6 * float(np.percentile(took, percent)))


def _audit(hangs: bool, _: Effort, stack: ExitStack) -> Figures:
    """Measure lines of the audit log. hangs: its writer is stopped meanwhile, as in a blocked write."""
    log, took = AuditLog(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "audit.jsonl"), []
    writer = log.writer_pid
    assert writer is not None
    if hangs:
        os.kill(writer, signal.SIGSTOP)
    for _number in range(LINES):
        start = time.perf_counter()
        log.add_command("/robo/apply", "measurement", COMMAND, DONE)
        took.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    os.kill(writer, signal.SIGCONT)
    log.close()
    return Figures(1e6 * float(np.percentile(took, 99)))


def _killed(*_: object) -> Figures:
    """Measure the time from the last command of a killed client to the hold of the arm."""
    silent = []
    for _number in range(KILLS):
        with tempfile.TemporaryDirectory() as folder, _twin(Path(folder)) as url:
            with _process(["robo_bench.robot_clients", "stream", url], "under way"):
                pass
            silent.append(1000 * _silence(Path(folder) / "audit.jsonl"))
    return Figures(float(np.median(silent)), limit=1000 * TWIN.hold_after, spread=(min(silent), max(silent)))


def _shown(effort: Effort, _: ExitStack) -> Figures:
    """Count the camera pictures per second that the console sends to a page that draws them at once."""
    from robo_real.console.robot_console import RobotConsole

    with _twin(None, "--driver.settings.cameras", "[front]") as url:
        console = RobotConsole(url)
        thread = console.start()
        try:
            return Figures(_pictures_a_second(console.server.port, console.server.token, max(effort.seconds, 2.0)))
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
            elif (received := json.loads(message))["kind"] == "status":
                socket.send(json.dumps({"kind": "seen", "camera": "report", "number": received["number"]}))
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
    """Serve a twin in its own process; give its address."""
    log = [] if folder is None else ["--log", str(folder / "audit.jsonl")]
    command = ["robo_cli.main", "robot", "serve", "--port", "0", *log, *arguments]
    with tempfile.TemporaryDirectory() as elsewhere, _process(command, "http", Path(elsewhere)) as line:
        yield line.split(" at ")[1].split(",")[0]


@contextmanager
def _process(module: list[str], ready: str, folder: Path | None = None) -> Iterator[str]:
    """Run a module in a process for the block, which begins after its first line that contains `ready`."""
    with subprocess.Popen([sys.executable, "-m", *module], stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if ready in line:
                    yield line.strip()
                    return
            raise ServerUnavailable("A process of the bench ended.", got=f"exit status {process.wait()}")
        finally:
            process.kill()
