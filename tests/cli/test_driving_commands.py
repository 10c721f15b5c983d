"""The commands on environments that drive, in processes of their own: the client may end a process."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from robo_app.robots.leaderboard_agent import driver_of
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.evaluation.video import read_frames

pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
LITTLE = """--steps 64 --learner.num-envs 1 --learner.steps-per-env 32 --learner.batch-size 32 --evaluation.every 0
--evaluation.episodes 1 --evaluation.videos 0 --environment.arguments.max-steps 20"""
GOALS = """
reward: driving-clg
settings: {model: colours, camera: birdseye, undesired: red, desired: green, low: -1.0, high: 1.0}
"""
ONE_BY_ONE = """
import json, pkgutil, sys
from robo_cli.main import dispatch
module, _, name = sys.argv[2].rpartition(".")
if module:
    setattr(pkgutil.resolve_name(module), name, None)
sys.exit(max(map(dispatch, json.loads(sys.argv[1]))))
"""


def robo_rl(*commands, folder, without="", limit=90):
    """Runs commands in one process, one after the other, `without` an object; returns what they print."""
    words = json.dumps([shlex.split(command) if isinstance(command, str) else command for command in commands])
    command = [sys.executable, "-c", ONE_BY_ONE, words, without]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, cwd=folder)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_evaluate_routes_writes_measures_video_and_report(tmp_path):
    told = robo_rl(
        f"train drive-route {LITTLE}",
        "evaluate latest --routes town-test --episodes 2 --videos 1 --environment.arguments.traffic 3",
        folder=tmp_path,
    )
    for words in ("carla/TownTest-v0: 2 episodes", "route_completion", "driving_score", "collision_walker"):
        assert words in told, words
    (run,) = (tmp_path / "runs").iterdir()
    data = json.loads((run / "evaluations" / "town-test-traffic=3.json").read_text())
    assert len(data["measured"]["distance"]) == 2 and set(data["summary"]["measures"]) >= {"red_light", "blocked"}
    (film,) = data["videos"].values()
    last = read_frames(run / "videos" / film, [1.0])[0]
    assert last.shape == (368, 320, 3) and last[-20, -20, 0] > 100 > last[-20, -20, 1]  # red: it ended by the time limit
    assert "town-test-traffic=3" in (run / "report.html").read_text()


@pytest.mark.slow
def test_agent_of_a_run_drives_with_its_policy(tmp_path):
    told = robo_rl(f"train drive-route {LITTLE}", "drive agent latest --out agent.py", folder=tmp_path)
    assert "agent.py: leaderboard_evaluator.py --track MAP --agent agent.py" in told
    (run,) = (tmp_path / "runs").iterdir()
    assert f"RUN = {str(run.resolve())!r}" in (tmp_path / "agent.py").read_text()
    driver = driver_of(str(run))
    seen = {item.name: np.zeros(item.shape, item.dtype) for item in driver.environment.environment_spec.observation.arrays}
    assert driver.policy.act(seen, deterministic=True).shape == (2,) and driver.sensors() == []


@pytest.mark.slow
def test_named_server_replaces_stand_in_without_other_change(tmp_path):
    serve = [sys.executable, "-m", "robo_cli.main", "carla-server", "--port", "0", "--map", "grid"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    try:
        port = re.search(r"carla.Client\('127.0.0.1', (\d+)\)", server.stdout.readline())[1]
        there = f"--carla-host 127.0.0.1 --carla-port {port}"
        arguments = "--environment.arguments '{route_length: 40.0, birdseye: 0, traffic: 2}'"
        record = f"record carla/Town-v0 --episodes 1 {arguments} --out"
        robo_rl(
            f"train drive-route {LITTLE} {there} --evaluation.every 40 --evaluation.episodes-during 1",
            f"evaluate latest --episodes 2 --videos 1 {there}",
            f"{record} there {there}",
            folder=tmp_path,
            without="robo_sims.carla.local_session.World",
        )
    finally:
        server.kill()
        server.communicate()
    robo_rl("evaluate latest --episodes 2 --environment.arguments.host null", f"{record} here", folder=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    there, here = (json.loads((run / "evaluations" / f"{name}.json").read_text()) for name in ("at-127.0.0.1", "host=null"))
    assert there["returns"] == here["returns"] and there["measured"] == here["measured"] and there["videos"]
    here, there = (next(iter(Dataset(tmp_path / name))) for name in ("here", "there"))
    assert here.observations["velocity"].tobytes() == there.observations["velocity"].tobytes() and here.success


@pytest.mark.slow
def test_more_environments_at_once_than_servers_are_one_error(tmp_path):
    serve = [sys.executable, "-m", "robo_cli.main", "carla-server", "--port", "0", "--map", "ring"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    try:
        port = re.search(r"carla.Client\('127.0.0.1', (\d+)\)", server.stdout.readline())[1]
        words = f"train drive-route {LITTLE} --learner.num-envs 2 --carla-port {port}"
        with pytest.raises(AssertionError, match="More environments drive at once than there are servers"):
            robo_rl(words, folder=tmp_path)
    finally:
        server.kill()
        server.communicate()


SHORT = "--evaluation.every 0 --evaluation.episodes 1 --evaluation.videos 0 --environment.arguments.max-steps 30"


@pytest.mark.slow
def test_commands_that_a_fit_for_driving_prints_work(tmp_path):
    fit = "reward fit embedded --environment carla/Town-v0 --camera birdseye --image-size 32 --pictures 80 --out model"
    told = robo_rl(f"{fit} --settings.see-steps 1 --settings.read-steps 1 --settings.check-every 1", folder=tmp_path)
    printed = {title: shlex.split(line) for title, line in re.findall(r"^(record|label).*?: robo-rl (.*)$", told, re.MULTILINE)}
    fills = {"DATASET": "data", "NAME": "seen", "20": "1"}
    record, label = ([fills.get(word, word) for word in printed[title]] for title in ("record", "label"))
    told = robo_rl([*record, "--environment.arguments", "{max_steps: 4, route_length: 40.0}"], label, folder=tmp_path)
    assert "1 of 1 episodes labelled now" in told
    values = LabelSet.existing(dataset := Dataset(tmp_path / "data"), "seen").read(dataset.entries()[0].identity).values
    assert len(values) == 4 and np.isfinite(values).all()


@pytest.mark.slow
def test_driving_is_recorded_labelled_and_learned_offline(tmp_path):
    (tmp_path / "goals.yaml").write_text(GOALS)
    told = robo_rl(
        "record carla/Town-v0 --episodes 3 --noise 0.1 --out data "
        "--environment.arguments '{traffic: 3, birdseye: 0, birdseye_rgb: 32, route_length: 40.0, max_steps: 60}'",
        "label data --reward goals.yaml --name seen",
        "train offline-iql --dataset data --labels seen --steps 40 --evaluation.every 0 --evaluation.episodes 1 "
        "--evaluation.videos 0 --learner.batch-size 16",
        folder=tmp_path,
    )
    assert "3 episodes of data" in told and "label set seen" in told and "collision_vehicle" in told
    dataset = Dataset(tmp_path / "data")
    labels = LabelSet.existing(dataset, "seen")
    for entry in dataset.entries():
        values = labels.read(entry.identity).values
        assert np.isfinite(values).all() and 0 < values.max() <= 1 and np.ptp(values) > 0  # too fast costs: below 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("drive-rlpd", "--steps 200 --demonstrations.episodes 1 --learner.replay.learning-starts 100"),
        ("drive-sb3-ppo", "--steps 256 --learner.n-steps 128"),
        ("drive-sb3-sac", "--steps 200 --learner.learning-starts 100"),
    ],
)
def test_the_other_learners_drive_a_little(tmp_path, recipe, more):
    if recipe == "drive-rlpd":
        more += " --environment.arguments.route-length 40.0 --environment.arguments.max-steps 150"
        told = robo_rl(f"train {recipe} {SHORT.rpartition(' --environment')[0]} {more}", folder=tmp_path)
    else:
        told = robo_rl(f"train {recipe} {SHORT} {more}", folder=tmp_path)
    assert "route_completion" in told and "ended by" in told


@pytest.mark.slow
def test_a_policy_learns_online_from_what_looks_safe(tmp_path):
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "drive-clg.yaml").write_text(GOALS)
    robo_rl(
        f"train drive-clg {SHORT} --steps 128 --learner.num-envs 2 --learner.steps-per-env 32 --learner.batch-size 32",
        folder=tmp_path,
    )
    (run,) = (tmp_path / "runs").iterdir()
    newest = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    assert newest["reward/missing"] == 0.0 and newest["reward/model_return"] > 0.0
    assert [array["name"] for array in json.loads((run / "spec.json").read_text())["observation"]["arrays"]][
        -1
    ] != "camera_birdseye"
