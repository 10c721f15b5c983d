"""The commands on environments that drive, in processes of their own: the client may end a process."""

import json
import subprocess
import sys

import pytest

from robo_rl.video import read_frames

pytest.importorskip("carla", reason="the carla wheel exists for Linux x86-64 and Windows, Python 3.10 to 3.12")
LITTLE = """--steps 64 --learner.num-envs 1 --learner.steps-per-env 32 --learner.batch-size 32 --evaluation.every 0
--evaluation.episodes 1 --evaluation.films 0 --environment.arguments.max-steps 20"""
ONE_BY_ONE = "import json, sys; from robo_cli.main import dispatch; sys.exit(max(map(dispatch, json.loads(sys.argv[1]))))"


def robo_rl(*commands, folder, limit=90):
    """Runs commands in one process, one after the other; returns what they print."""
    words = json.dumps([command.split() for command in commands])
    command = [sys.executable, "-c", ONE_BY_ONE, words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, cwd=folder)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout


def test_a_policy_is_evaluated_on_a_set_of_routes_with_measures_a_film_and_a_report(tmp_path):
    told = robo_rl(
        f"train drive-route {LITTLE}",
        "evaluate latest --routes town-test --episodes 2 --films 1 --arguments traffic=3",
        folder=tmp_path,
    )
    for words in ("carla/TownTest-v0: 2 episodes", "route_completion", "driving_score", "collision_walker"):
        assert words in told, words
    (run,) = (tmp_path / "runs").iterdir()
    data = json.loads((run / "evaluations" / "town-test-traffic=3.json").read_text())
    assert len(data["measured"]["distance"]) == 2 and set(data["summary"]["measures"]) >= {"red_light", "blocked"}
    (film,) = data["videos"].values()
    last = read_frames(run / "videos" / film, [1.0])[0]
    assert last.shape == (344, 320, 3) and last[-20, -20, 0] > 100 > last[-20, -20, 1]  # red: it ended by the time limit
    assert "town-test-traffic=3" in (run / "report.html").read_text()
