"""The audit log: every command, in files of bounded size, whatever disk and kills do; and the arm's process waits for none."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from robo_real.audit_log import ATOMIC, AuditLog
from robo_real.http_client import RobotClient
from robo_real.remote_robot import RemoteRobot
from robo_rl.errors import InvalidSetting, RobotStopped, RobotUnavailable

KILLED = """
import os, signal, sys
from pathlib import Path
from robo_real.audit_log import AuditLog
log = AuditLog(Path(sys.argv[1]), largest=20_000, files=9)
for number in range(500):
    log.add_command("/robo/apply", "somebody", {"action": [0.0] * 5}, {})
os.kill(os.getpid(), signal.SIGKILL)
"""


def until(holds, seconds=60.0):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.01)


def has_no_writer(path):
    """Returns if the process that writes a log has ended, which alone makes its files stand still: rotation renames them."""
    with open(f"{path}.lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def files(path):
    """Returns the parts of a log that are there, oldest first."""
    older = sorted(path.parent.glob(f"{path.name}.[0-9]*"), key=lambda part: -int(part.suffix[1:]))
    return [*older, path]


def lines(path):
    return [json.loads(line) for part in files(path) for line in part.read_text().splitlines()]


def numbers(path):
    return [line["number"] for line in lines(path)]


def commands(log, path):
    log.close()
    return [line for line in lines(path) if line["event"] == "command"]


def test_every_command_that_is_followed_leaves_a_line(serve, tmp_path):
    path = tmp_path / "audit.jsonl"
    server = serve(log=AuditLog(path))
    client, link = RemoteRobot(server.url), RobotClient(server.url)
    client.connect()
    client.arm()
    client.observe()
    client.apply([0.2, 0, 0, 0, 1])
    client.pause()
    client.close()
    pose = link.json("/getpos")["pose"]
    orders = {
        "/pose": {"arr": pose},
        "/close_gripper": {},
        "/move_gripper": {"gripper_pos": 200},
        "/update_param": {"translational_stiffness": 500},
        "/jointreset": {},
    }
    for order, body in orders.items():
        link.post(order, body)
    link.post("/robo/stop", {"by": "Ada at the fence: smoke"})
    other = RemoteRobot(server.url)
    other.connect()
    with pytest.raises(RobotStopped):
        other.arm()
    other.close()
    with pytest.raises(RobotUnavailable, match="status 500"):
        link.post("/pose", {"arr": pose})
    link.close()
    found = commands(server.application.robot.log, path)
    said = [line["path"].removeprefix("/robo") for line in found]
    assert said == ["/lease", "/arm", "/apply", "/pause", "/release", *orders, "/stop", "/lease", "/release"]
    by, owner = {line["path"]: line["by"] for line in found}, found[0]["asked"]["owner"]
    assert by["/robo/apply"] == by["/robo/arm"] == by["/robo/release"] == owner and by["/pose"] == "a client without a lease"
    applied = next(line for line in found if line["path"] == "/robo/apply")
    assert applied["asked"]["action"] == pytest.approx([0.2, 0, 0, 0, 1]) and set(applied["asked"]) == {"action", "answers"}
    assert set(applied["answer"]) == {"executed", "reasons", "mode"}
    changed = next(line for line in found if line["path"] == "/update_param")
    assert changed["asked"] == {"translational_stiffness": 500}
    assert not any({"key", "lease"} & set(line["asked"]) for line in found)
    stopped = [line["reason"] for line in lines(path) if line["event"] == "mode" and line["mode"] == "stopped"]
    assert stopped == ["stop: Ada at the fence: smoke"]


def test_log_is_rotated_by_size_and_loses_the_oldest_alone(tmp_path):
    path = tmp_path / "audit.jsonl"
    for begun in (False, True):  # a second process goes on where the first one ended
        with closing(AuditLog(path, largest=10_000, files=4)) as log:
            for _ in range(400):
                log.add_command("/robo/apply", "somebody", {"action": [0.0] * 5}, {"mode": "running"})
        assert len(files(path)) == 4 and all(part.stat().st_size <= 10_000 for part in files(path))
        kept = numbers(path)
        assert kept == list(range(kept[0], 401)) or begun
        assert len(kept) > 100
    assert sorted(part.name for part in tmp_path.iterdir()) == sorted(
        [*(part.name for part in files(path)), "audit.jsonl.lock"]
    )


def test_killed_process_loses_no_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    assert subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False).returncode == -signal.SIGKILL
    until(lambda: has_no_writer(path))
    assert numbers(path) == list(range(1, 501)) and len(files(path)) > 2


@pytest.mark.slow
def test_disk_that_hangs_delays_nobody_and_gets_every_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    writer = log.writer_pid
    os.kill(writer, signal.SIGSTOP)  # as a write that does not return
    try:
        for _ in range(20_000):  # far more than the pipe holds
            log.add_command("/robo/apply", "somebody", {"action": [0.0] * 5}, {"mode": "running"})
        log.add("mode", mode="stopped")
    finally:
        os.kill(writer, signal.SIGCONT)
    until(lambda: not log._is_late)
    log.close()
    assert numbers(path) == list(range(1, 20_002))


def test_writer_that_is_killed_is_replaced(tmp_path):
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.add("mode", mode="armed")
    until(lambda: path.stat().st_size)
    os.kill(log._writer.pid, signal.SIGKILL)
    log._writer.wait()
    log.add("mode", mode="stopped")
    until(lambda: any(event["event"] == "log_writer" for event in log.recent))
    until(lambda: not log._is_late)
    log.close()
    assert [line.get("mode") for line in lines(path)] == ["armed", "stopped", None]
    assert lines(path)[2]["why"] == "the one before ended with status -9: its numbers may be missing"


@pytest.mark.slow
def test_log_that_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "audit.jsonl"
    with (
        closing(AuditLog(path)),
        pytest.raises(InvalidSetting, match=r"audit log .* cannot be written(.|\n)*another process writes it(.|\n)*--log"),
    ):
        AuditLog(path)
    with pytest.raises(InvalidSetting, match=r"cannot be written(.|\n)*Errno"):
        AuditLog(path / "below" / "a file")
    with pytest.raises(InvalidSetting, match="too small"):
        AuditLog(path, files=1)


def test_line_that_is_cut_or_long_breaks_no_other(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_text('{"number": 7, "ev')  # by a power failure
    with closing(AuditLog(path)) as log:
        log.add_command("/pose", "somebody", {"arr": ["x" * ATOMIC]}, "Moved")
        log.add("mode", mode="idle")
    cut, long, last = path.read_text().splitlines()
    assert cut == '{"number": 7, "ev' and json.loads(last)["mode"] == "idle"
    assert json.loads(long)["number"] == 1 and '"path": "/pose"' in json.loads(long)["cut"]


@pytest.mark.slow
def test_full_disk_is_told_and_stops_nothing():
    log = AuditLog(Path("/dev/full"))

    def is_told():
        log.add("mode", mode="armed")
        return any(event["event"] == "log_failed" for event in log.recent)

    until(is_told)
    log.close()
