"""LeRobot's plugin drives a served robot through its guard, and reads it as LeRobot's own tools do."""

import importlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from lerobot_bench import DEVICES, LEROBOT, STAND_IN

from robo_datasets.conversion import import_dataset
from robo_datasets.dataset import Dataset
from robo_real.cameras import Frame
from robo_real.drivers.fake import FakeArm
from robo_real.guarded_arm import GuardedArm
from robo_real.limits import TWIN
from robo_real.server.application import Application, RobotServer
from robo_rl.entry_points import load
from robo_rl.spec.environment import ArraySpec, ObservationSpec

PLUGIN = Path(__file__).parents[2] / "real_robot" / "lerobot_robot_robo_rl"
SHADE = np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)


class Still:
    """A camera whose picture is always new, or as old as a test wants."""

    age = 0.0

    def newest(self):
        return Frame(SHADE, time.monotonic() - self.age, 1)

    def close(self): ...


@pytest.fixture
def served():
    """A served fake arm with a camera."""
    arm = FakeArm()
    robot = GuardedArm(arm, replace(TWIN, stop_after=1.0))
    front = ArraySpec("camera_front", SHADE.shape, "uint8", 0, 255, role="image")
    hidden = ArraySpec("cube", (3,), role="object")
    robot.spec = replace(robot.spec, observation=ObservationSpec((*robot.spec.observation.arrays, hidden, front)))
    robot.connect()
    server = RobotServer(Application(robot, {"camera_front": Still()}), port=0)
    server.start()
    yield server
    server.close()


@pytest.fixture
def make(served, monkeypatch):
    """Returns a function that makes the plugin's robot on the stand-in of LeRobot."""
    before = set(sys.modules)
    for folder in (STAND_IN, PLUGIN):
        monkeypatch.syspath_prepend(str(folder))
    plugin = importlib.import_module("lerobot_robot_robo_rl")
    robots = importlib.import_module("lerobot.robots")
    draccus = importlib.import_module("draccus")
    made = []

    def make(**settings):
        config = draccus.decode(robots.RobotConfig, {"type": "robo_rl", "url": served.url, "id": "test", **settings})
        made.append(robots.make_robot_from_config(config))
        assert isinstance(made[-1], plugin.RoboRL)
        return made[-1]

    yield make
    for robot in made:
        if robot.is_connected:
            robot.disconnect()
        robot._server.close()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("lerobot", "draccus", "lerobot_robot_robo_rl"):
            del sys.modules[name]


def action(**moved):
    return {"dx": 0.0, "dy": 0.0, "dz": 0.0, "turn": 0.0, "gripper_opening": 1.0} | moved


def test_features_are_those_of_an_export(make):
    robot = make()
    features = robot.observation_features
    assert list(features)[:2] == ["joint_position.0", "joint_position.1"] and features["camera_front"] == (64, 64, 3)
    assert not any(name.startswith("cube") for name in features)  # a policy must not read it
    assert list(robot.action_features) == ["dx", "dy", "dz", "turn", "gripper_opening"]


def test_actions_pass_the_guard(make, served):
    robot = make()
    robot.connect()
    start = robot.get_observation()
    assert np.array_equal(start["camera_front"], SHADE) and set(start) == set(robot.observation_features)
    for _ in range(8):
        robot.get_observation()
        assert robot.send_action(action(dx=0.8))["dx"] == pytest.approx(0.8)
        time.sleep(0.05)
    moved = robot.get_observation()["end_effector_position.0"] - start["end_effector_position.0"]
    assert 0.04 < moved < 0.1
    robot.get_observation()
    assert robot.send_action(action(dx=3.0))["dx"] <= 1.0  # the executed action, not the wanted one
    robot.disconnect()
    assert served.application.robo_routes.lease.owner == ""


@pytest.mark.parametrize("acted", [False, True])
def test_lease_outlasts_an_encoding_that_takes_longer(make, served, monkeypatch, acted):
    """LeRobot encodes a film after an episode, and waits before the first one."""
    monkeypatch.setattr("robo_real.server.lease.LASTS", 0.9)
    robot = make()
    monkeypatch.setattr(sys.modules["lerobot_robot_robo_rl"], "RENEW", 0.2)
    robot.connect()
    if acted:
        robot.get_observation()
        robot.send_action(action(dx=0.2))
    time.sleep(2.0)
    assert served.application.robo_routes.lease.owner.startswith("lerobot")
    robot.get_observation()
    assert robot.send_action(action(dx=0.2))["dx"] == pytest.approx(0.2)


def test_a_pause_between_episodes_stops_nothing(make, served):
    robot = make()
    robot.connect()
    robot.get_observation()
    robot.send_action(action(dx=0.2))
    time.sleep(1.6)  # beyond stop_after: the watchdog would have stopped it until re-armed
    assert served.application.robot.guard.mode == "armed"
    moves = []
    for _ in range(5):
        robot.get_observation()
        moves.append(robot.send_action(action(dx=0.2))["dx"])
    assert max(moves) == pytest.approx(0.2)  # a busy machine may be late, and the guard then holds


def test_deltas_of_a_gamepad_drive(make, served):
    robot = make(actions="delta")
    assert list(robot.action_features) == ["delta_x", "delta_y", "delta_z", "gripper"]
    robot.connect()
    for grip, opening in ((0, 0.0), (1, 0.0), (2, 0.08), (1, 0.08)):
        moves = []
        for _ in range(5):
            robot.get_observation()
            moves.append(robot.send_action({"delta_x": 0.0, "delta_y": 0.5, "delta_z": 0.0, "gripper": grip})["delta_y"])
            time.sleep(0.05)
        assert max(moves) == pytest.approx(0.5)  # a busy machine may be late, and the guard then holds
        assert served.application.robot.driver.sent[-1].opening == pytest.approx(opening, abs=0.002)


def test_refusals_are_clear(make, served, tmp_path):
    robot = make()
    with pytest.raises(ConnectionError, match="not connected; call connect"):
        robot.get_observation()
    robot.connect()
    other = make()
    with pytest.raises(ConnectionError, match=r"refuses: (.|\n)*lerobot "):
        other.connect()
    with pytest.raises(ValueError, match="lacks turn"):
        robot.send_action({"dx": 0.0, "dy": 0.0, "dz": 0.0, "gripper_opening": 1.0})
    served.application.cameras["camera_front"].age = 2.0
    with pytest.raises(ConnectionError, match=r"camera_front is [12]\.\d+ s old"):
        robot.get_observation()
    served.application.cameras["camera_front"].age = 0.0
    served.application.robot.stop("the table shakes")
    robot.get_observation()
    with pytest.raises(ConnectionError, match=r"stopped: the table shakes; look at the robot, then robo-rl robot rearm http"):
        robot.send_action(action())
    robot.disconnect()
    with pytest.raises(ConnectionError, match=r"stopped(.|\n)*rearm"):
        make().connect()
    with pytest.raises(ValueError, match="allowed: normalized, delta"):
        make(actions="joints")
    with pytest.raises(ConnectionError, match="does `robo-rl robot serve` run there"):
        make(url="http://127.0.0.1:9").observation_features  # noqa: B018


@pytest.mark.slow
def test_lerobot_record_makes_a_dataset(served, tmp_path):
    if LEROBOT is None:
        pytest.skip("ROBO_RL_PEERS_PYTHON names no interpreter with lerobot: docs/data/dataset-formats.md makes one")
    out = tmp_path / "recorded"
    path = os.pathsep.join([str(DEVICES), str(PLUGIN)])
    words = [
        *(LEROBOT, "-c", "import lerobot_robot_robo_rl; from lerobot.scripts.lerobot_record import main; main()"),
        *("--robot.type=robo_rl", f"--robot.url={served.url}", "--robot.id=test"),
        *("--teleop.type=sway", "--teleop.discover_packages_path=sway", "--dataset.repo_id=test/arm", f"--dataset.root={out}"),
        *("--dataset.fps=20", "--dataset.num_episodes=2", "--dataset.episode_time_s=1.5", "--dataset.reset_time_s=0.5"),
        *("--dataset.single_task=sway", "--dataset.push_to_hub=false", "--play_sounds=false", "--dataset.vcodec=h264"),
    ]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment = plain | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "HF_LEROBOT_HOME": str(tmp_path / "home")}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    info = json.loads((out / "meta" / "info.json").read_text())
    assert (info["robot_type"], info["fps"], info["total_episodes"]) == ("robo_rl", 20, 2)
    import_dataset(load("formats", "lerobot"), out, tmp_path / "ours")
    dataset = Dataset(tmp_path / "ours")
    assert dataset.spec.observation["joint_position"].shape == (7,)
    assert dataset.spec.observation["camera_front"].shape == (64, 64, 3)
    episodes = [*dataset]
    assert len(episodes) == 2 and all(np.abs(episode.actions).max() <= 1 for episode in episodes)
    assert np.hypot(*episodes[0].actions[:, :2].T) == pytest.approx(0.3, abs=1e-3)  # as the teleoperator sent them
