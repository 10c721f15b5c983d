"""robo-rl refine: a policy of the simulation goes on learning on the twin, with a person, and what was lived there is kept."""

import json
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from robo_app.recipes.recipe import parse_recipe
from robo_app.robots.twin_process import twin_process
from robo_app.training.assembly import recipe_of
from robo_app.training.initialisation import before_and_after
from robo_app.training.refinement import Refine, refinement
from robo_app.training.supervision import operator_of
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_real.environment import RobotEnv
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.rollout.journal import records
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import ArraySpec, ObservationSpec
from robo_rl.types import ActionSource

SMALL = {"network": {"hidden": [16, 16]}, "critics": 2, "target_critics": 2, "updates_per_step": 1, "batch_size": 16}
RECIPE = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 2, "max_steps": 12}},
    "algorithm": "rlpd",
    "learner": {**SMALL, "replay": {"learning_starts": 10}},
    "demonstrations": {"episodes": 1},
    "steps": 30,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """Gives the address of a twin in real time: a faster one cuts episodes where the machine is busy."""
    with twin_process(tmp_path_factory.mktemp("twin") / "audit.jsonl", speed=1, cameras=[]) as url:
        yield url


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Gives a folder with a run of the simulation and a dataset of demonstrations."""
    folder = tmp_path_factory.mktemp("simulation")
    (folder / "reach.yaml").write_text(yaml.safe_dump(RECIPE))
    dispatch(["train", str(folder / "reach.yaml"), "--out", str(folder / "runs")])
    settings = ["--environment.arguments.action_repeat", "2", "--environment.arguments.max_steps", "12"]
    dispatch(["record", "robo/ArmReach-v0", "--episodes", "2", "--out", str(folder / "demos"), *settings])
    return folder


def source(trained: Path) -> Run:
    return find_run(next((trained / "runs").glob("*-reach-0")).name, trained / "runs")


def refine(trained, url, *more):
    run = str(source(trained).path)
    return ["refine", run, "--robot", url, "--dataset", str(trained / "demos"), "--runs", str(trained / "refined"), *more]


@pytest.mark.slow
def test_a_run_of_the_simulation_is_refined_on_the_twin(trained, twin, capsys, tmp_path):
    order = refine(trained, twin, "--human", "wrong", "--steps", "40", "--episodes", "2", "--runs", str(tmp_path))
    assert dispatch(order) == 0
    run, before = find_run("latest", tmp_path), source(trained)
    recipe = recipe_of(run)
    assert recipe.environment.name == f"robot:{twin}" and recipe.environment.arguments == {"action_repeat": 2, "max_steps": 12}
    assert (recipe.algorithm, recipe.learner.gripper, recipe.learner.network.hidden) == ("hil-serl", "", (16, 16))
    assert run.spec.differences(before.spec) == []

    first, trained_parts = run.load(), before.load().parts["learner"]
    assert first.step == 40 and first.parts["learner"]["updates"] > trained_parts["updates"]
    kept = Dataset(run.path / "episodes")
    sources = np.concatenate([episode.sources for episode in kept])
    assert len(sources) == 40 and ActionSource.HUMAN in sources
    rows = first.parts["offline"]["corrections"]["rows"]["starts"]
    assert int(np.sum(rows)) == int((sources == ActionSource.HUMAN).sum()) == first.parts["acting"]["supervisor"]["steps"]

    seeds = [
        json.loads(path.read_text())["seeds"]
        for path in (run.path / "evaluations" / "0000000000.json", run.path / "evaluation.json")
    ]
    assert seeds[0] == seeds[1] and len(seeds[0]) == 2
    said = capsys.readouterr().out
    shown = re.search(
        r"before +\d+\.\d% (?:.|\n)*after +\d+\.\d% (?:.|\n)*on (\d) shared seeds?(?:; (\d) more left out)?", said
    )
    assert shown and int(shown[1]) + int(shown[2] or 0) == 2  # a loaded machine may cut an episode of the twin in real time
    assert run.metrics()[0]["step"] == 0 and "eval/success_rate" in run.metrics()[0]
    assert same(run.load(0).parts["learner"], trained_parts), "the run begins with what was learnt before"


def same(a, b) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(np.array_equal(a, b))


FAKE = {
    "environment": {"name": "robot/Fake-v0", "arguments": {"max_steps": 12}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8, 8]}, "batch_size": 8, "replay": {"learning_starts": 5}},
    "steps": 60,
    "checkpoint_every": 10,
    "record_episodes": True,
    "threads": 1,
    "evaluation": {"episodes": 1, "videos": 0},
}


@pytest.mark.parametrize("kills", [[17, 31], [5]], ids=["twice", "before a checkpoint"])
@pytest.mark.slow
def test_killed_robot_training_replays_recorded_steps(kills, tmp_path, capsys, monkeypatch):
    path = tmp_path / "fake.yaml"
    path.write_text(yaml.safe_dump(FAKE))
    script = Path(__file__).with_name("train_and_die.py")
    for number, step in enumerate(kills):
        again = ["resume"] if number else []
        command = [sys.executable, str(script), str(path), str(tmp_path / "runs"), *again, "step", str(step)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
        run = find_run("latest", tmp_path / "runs")
        lived = lived_in(run)
        assert sum(map(len, lived)) == step
    moves = []
    original = RobotEnv.step
    monkeypatch.setattr(RobotEnv, "step", lambda self, action: (moves.append(action), original(self, action))[1])
    assert dispatch(["resume", str(run.path)]) == 0
    assert "warm" in capsys.readouterr().out
    after = [episode.actions for episode in Dataset(run.path / "episodes")]
    assert sum(map(len, after)) == 60, "a step that was lived counts"
    assert all(any(np.array_equal(one, other) for other in after) for one in lived)
    evaluated = json.loads((run.path / "evaluation.json").read_text())["lengths"]
    assert len(moves) == 60 - kills[-1] + sum(evaluated), "the robot repeats nothing"
    state = run.load().parts
    assert state["training"]["step"] == 60 and int(np.sum(state["replay"]["rows"]["starts"])) == 60
    assert state["training"]["episodes"] >= len(after) - 1


def lived_in(run: Run) -> list[np.ndarray]:
    """Returns the actions of each episode of a killed run, of the one under way too, in no order."""
    folder = run.path / "episodes"
    found = [episode.actions for episode in Dataset(folder)]
    for journal in (folder / "journal").glob("*.journal"):
        found.append(np.stack([record.arrays["action"] for record in records(journal) if "action" in record.arrays]))
    return found


@pytest.mark.slow
def test_killed_refinement_resumes_and_counts_interventions(trained, twin, tmp_path, capsys):
    capsys.readouterr()
    settings = ["--human", "wrong", "--steps", "45", "--episodes", "1", "--checkpoint-every", "0"]
    dispatch(refine(trained, twin, *settings, "--dry-run"))
    (tmp_path / "refine.yaml").write_text(capsys.readouterr().out)
    script = Path(__file__).with_name("train_and_die.py")
    command = [sys.executable, str(script), str(tmp_path / "refine.yaml"), str(tmp_path / "runs"), "step", "39"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
    run = find_run("latest", tmp_path / "runs")
    assert sum(map(len, lived_in(run))) == 39, "every step is kept as soon as it was taken"
    dispatch(["robot", "stop", twin])  # as the watchdog does before long where a client was killed
    dispatch(["robot", "rearm", twin])
    assert dispatch(["resume", str(run.path), "--robot", twin]) == 0
    kept = Dataset(run.path / "episodes")
    human = sum(int((episode.sources == ActionSource.HUMAN).sum()) for episode in kept)
    counted = run.load().parts["acting"]["supervisor"]
    assert sum(len(episode) for episode in kept) == 45 and human > 0
    assert counted["steps"] == human == int(np.sum(run.load().parts["offline"]["corrections"]["rows"]["starts"]))
    assert int(np.sum(run.load().parts["replay"]["rows"]["starts"])) == 45
    assert counted["interventions"] == sum(len(episode.interventions) for episode in kept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "changes", "kind", "said"),
    [
        (
            ["--robot", "URL?action_repeat=3"],
            {},
            SpecMismatch,
            r"trained for another robot(.|\n)*action.control_period: 0.1 here, 0.15",
        ),
        (
            [],
            {"algorithm": "bc", "learner": {}},
            InvalidSetting,
            r"bc cannot be trained with an initial run(.|\n)*rlpd, sac",
        ),
        (
            ["--dataset", ""],
            {},
            InvalidSetting,
            r"none are named(.|\n)*robo-rl record robo/ArmReach-v0 --environment.arguments.action_repeat 2",
        ),
        (["--human", "nobdy"], {}, UnknownName, r"Unknown kind of simulated human 'nobdy'"),
    ],
)
def test_what_cannot_be_refined_is_told_before_anything_moves(trained, twin, tmp_path, more, changes, kind, said, monkeypatch):
    monkeypatch.setattr(RobotEnv, "reset", lambda *_, **__: pytest.fail("the robot was moved"))
    before = source(trained)
    if changes:
        recipe = yaml.safe_load((before.path / "recipe.yaml").read_text()) | changes
        before = Run.create(tmp_path / "other", recipe_name="other", seed=0, recipe=yaml.safe_dump(recipe), spec=before.spec)
    order = ["refine", str(before.path), "--robot", twin, "--dataset", str(trained / "demos"), "--runs", str(tmp_path)]
    with pytest.raises(kind, match=said):
        dispatch([*order, *(word.replace("URL", twin) for word in more)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("goal_position", {"frame": "world"}, r"goal_position.frame: 'world' here, 'base' there"),
        ("joint_position", {"unit": "deg"}, r"joint_position.unit: 'deg' here, 'rad' there"),
    ],
)
def test_a_changed_unit_or_frame_is_refused_with_the_difference(trained, twin, tmp_path, name, changes, said):
    copied = Path(shutil.copytree(source(trained).path, tmp_path / "copied"))
    spec = Run(copied).spec
    arrays = tuple(replace(array, **changes) if array.name == name else array for array in spec.observation.arrays)
    changed = replace(spec, observation=replace(spec.observation, arrays=arrays))
    (copied / "spec.json").write_text(json.dumps(changed.to_json()))
    with pytest.raises(SpecMismatch, match=said):
        dispatch(["refine", str(copied), "--robot", twin, "--dataset", str(trained / "demos"), "--runs", str(tmp_path)])


def test_robot_without_success_rule_needs_labelling_operator(trained, twin, monkeypatch):
    original = RobotEnv.__init__

    def without_rule(self, *arguments, **settings):
        original(self, *arguments, **settings)
        self.environment_spec = replace(self.environment_spec, success_rule=None)

    monkeypatch.setattr(RobotEnv, "__init__", without_rule)
    order = {"run": "", "robot": twin, "dataset": str(trained / "demos")}
    with pytest.raises(InvalidSetting, match=r"nothing to learn from(.|\n)*--human console"):
        refinement(source(trained), Refine(**order))
    assert refinement(source(trained), Refine(**order, human="console")).human.kind == "console"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, r"Only a robot that is served has an operator(.|\n)*robot:URL, or a simulated person"),
        ({"environment": {"name": "robot/Fake-v0"}}, r"Only a robot that is served has an operator"),
        ({"environment": {"name": "robot:http://127.0.0.1:1"}}, r"demonstrations would move the robot(.|\n)*robo-rl record"),
        (
            {"environment": {"name": "robot:http://127.0.0.1:1"}, "demonstrations": {}, "evaluation": {"every": 10}},
            r"An evaluation would interrupt(.|\n)*--evaluation.every 0",
        ),
        (
            {"environment": {"name": "robot:http://127.0.0.1:1"}, "demonstrations": {}, "algorithm": "ppo", "learner": {}},
            r"The learner ppo cannot be trained with a person who corrects",
        ),
    ],
)
def test_a_person_at_the_console_is_for_robots_alone(changes, said):
    recipe = parse_recipe({"name": "reach", **RECIPE, "human": {"kind": "console"}, **changes}, source="a test")
    with pytest.raises(InvalidSetting, match=said), operator_of(recipe):
        pass


def test_a_training_begins_only_with_a_learner_that_fits(trained, tmp_path):
    recipe = {**RECIPE, "initial": {"run": str(source(trained).path)}, "learner": {**SMALL, "network": {"hidden": [8]}}}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(recipe))
    with pytest.raises(InvalidSetting, match=r"differs from that of the recipe(.|\n)*robo-rl refine makes"):
        dispatch(["train", str(tmp_path / "other.yaml"), "--out", str(tmp_path)])


@pytest.mark.slow
def test_before_and_after_is_of_a_run_that_was_evaluated_before(tmp_path, capsys):
    recipe = {**RECIPE, "steps": 12, "evaluation": {"episodes": 3, "episodes_during": 2, "before": True, "videos": 0}}
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(recipe))
    dispatch(["train", str(tmp_path / "both.yaml"), "--out", str(tmp_path / "runs")])
    run = find_run("latest", tmp_path / "runs")
    assert [path.name for path in (run.path / "evaluations").iterdir()] == ["0000000000.json"]
    assert "on 2 shared seeds\n" in capsys.readouterr().out
    after = Evaluation.from_json(json.loads((run.path / "evaluation.json").read_text()))
    cut = before_and_after(run, replace(after, successes=(None, *after.successes[1:])))
    assert cut.endswith("on 1 shared seed; 1 more left out, whose episode was cut before its outcome was known")


def test_a_run_that_was_evaluated_elsewhere_can_be_resumed(trained, tmp_path):
    copied = Run(Path(shutil.copytree(source(trained).path, tmp_path / "copied")))
    (copied.path / "evaluations").mkdir(exist_ok=True)
    for name in ("robot-http-127.0.0.1-5000.json", "0000000020.json", "0000000030.json"):
        (copied.path / "evaluations" / name).write_text("{}")
    copied.rewind(20)
    left = sorted(path.name for path in (copied.path / "evaluations").iterdir())
    assert left == ["0000000020.json", "robot-http-127.0.0.1-5000.json"]


@pytest.mark.slow
def test_cameras_that_a_policy_does_not_read_refuse_nothing(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "robo_real.remote_robot.MOST_AGE", 60.0
    )  # a busy machine draws late, which stops the arm with good reason
    run = source(trained).path
    with twin_process(tmp_path / "audit.jsonl", cameras=["front"], image_size=32) as url:
        there = ["--environment", f"robot:{url}?action_repeat=2&max_steps=12", "--episodes", "1", "--json"]
        assert dispatch(["evaluate", str(run), "--runs", str(trained / "runs"), *there]) == 0
        assert json.loads(capsys.readouterr().out)["environment"] == "robo/ArmReach-v0"
        record = ["record", f"robot:{url}?action_repeat=2&max_steps=12", "--out", str(tmp_path / "recorded"), "--episodes", "1"]
        assert dispatch([*record, "--policy", str(run)]) == 0
        assert "camera_front" in Dataset(tmp_path / "recorded").spec.observation
        order = refine(trained, url, "--steps", "15", "--episodes", "1", "--runs", str(tmp_path / "runs"))
        assert dispatch(order) == 0
        other = Path(shutil.copytree(run, tmp_path / "other"))
        (other / "spec.json").write_text((other / "spec.json").read_text().replace('"unit": "rad/s"', '"unit": "deg/s"'))
        with pytest.raises(SpecMismatch, match=r"1 field\(s\) differ(.|\n)*joint_velocity.unit: 'deg/s' here, 'rad/s' there"):
            dispatch(["refine", str(other), *order[2:]])
    refined = find_run("latest", tmp_path / "runs")
    rows = refined.load().parts["replay"]["rows"]
    assert int(np.sum(rows["starts"])) == 15 and not [name for name in rows if "camera" in name]
    kept = Dataset(refined.path / "episodes")
    assert kept.spec.observation["camera_front"].shape == (32, 32, 3) and sum(map(len, kept)) == 15


@pytest.mark.slow
def test_vectors_that_a_policy_does_not_read_refuse_nothing(trained, twin, tmp_path, monkeypatch):
    made, observe = RobotEnv.__init__, RobotEnv._observe

    def with_torque(self, *arguments, **settings):
        made(self, *arguments, **settings)
        arrays = (ArraySpec("wrist_torque", (3,), unit="N*m"), *self.environment_spec.observation.arrays)
        self.environment_spec = replace(self.environment_spec, observation=ObservationSpec(arrays))

    monkeypatch.setattr(RobotEnv, "__init__", with_torque)
    monkeypatch.setattr(RobotEnv, "_observe", lambda self: {"wrist_torque": np.full(3, 7, np.float32), **observe_of(self)})

    def observe_of(self):
        whole, self.environment_spec = self.environment_spec, source(trained).spec
        try:
            return observe(self)
        finally:
            self.environment_spec = whole

    there, run = f"robot:{twin}?action_repeat=2&max_steps=12", source(trained).path
    record = ["record", there, "--out", str(tmp_path / "recorded"), "--episodes", "1", "--policy", str(run)]
    assert dispatch(record) == 0
    order = ["refine", str(run), "--robot", twin, "--steps", "15", "--episodes", "1", "--runs", str(tmp_path / "runs")]
    assert dispatch([*order, "--dataset", str(tmp_path / "recorded")]) == 0
    refined = find_run("latest", tmp_path / "runs")
    parts = refined.load().parts
    assert parts["replay"]["rows"]["vectors"].shape[1] == source(trained).load().parts["replay"]["rows"]["vectors"].shape[1]
    assert not (parts["replay"]["rows"]["vectors"] == 7).any()
    assert recipe_of(refined).initial.reads == tuple(source(trained).spec.observation)
    for kept in (Dataset(refined.path / "episodes"), Dataset(tmp_path / "recorded")):
        assert all((episode.observations["wrist_torque"] == 7).all() for episode in kept)
    assert dispatch(["resume", str(refined.path), "--steps", "20"]) == 0
    assert refined.load().step == 20
    assert list(refined.policy().environment_spec.observation) == list(source(trained).spec.observation)
