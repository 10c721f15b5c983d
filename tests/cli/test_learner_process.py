"""A recipe whose learner has a process of its own: trained, killed, interrupted, resumed; refused where it cannot be."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml

from robo_app.recipes.loop_choice import loop_of
from robo_app.recipes.recipe import EnvironmentSettings, parse_recipe
from robo_app.training import assembly, learner_process
from robo_app.training.assembly import recipe_of
from robo_cli import main
from robo_rl.errors import InvalidSetting, RobotUnavailable
from robo_rl.protocols.contract import ACTOR_LEARNER
from robo_rl.rollout.step_log import StepReader
from robo_rl.runs.checkpoints import load_checkpoint
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import Run, find_run
from robo_rl.training.actor_learner.process import LearnerProcess
from robo_rl.training.actor_learner.server import Finished
from robo_rl.types import ActionSource

RECIPE: dict[str, Any] = {
    "name": "apart",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 3, "max_steps": 15}},
    "algorithm": "hil-serl",
    "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 10}, "gripper": "gripper_opening"},
    "demonstrations": {"episodes": 2},
    "human": {"kind": "perfect"},
    "learner_process": "on",
    "steps": 90,
    "log_every": 30,
    "checkpoint_every": 40,
    "evaluation": {"episodes": 1, "every": 60, "episodes_during": 1, "videos": 0},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "apart.yaml"
    path.write_text(yaml.safe_dump(RECIPE))
    return path


def assert_all_was_learnt_from(run: Run) -> None:
    parts = run.load().parts
    assert parts["training"]["step"] == 90
    assert int(np.sum(parts["replay"]["rows"]["starts"])) == 90
    assert parts["learner"]["updates"] == 90 - 10 + 1
    human = int(np.sum(parts["offline"]["corrections"]["rows"]["starts"]))
    assert human == int(np.sum(parts["replay"]["rows"]["source"] == ActionSource.HUMAN))
    assert (run.path / "evaluation.json").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_behind_its_last_step(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = Path(__file__).with_name("train_and_die.py")
    died = subprocess.run([sys.executable, script, recipe, tmp_path, "step", "57"], timeout=200, check=False)
    assert died.returncode == -signal.SIGKILL
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert "resumed at step 57, warm" in capsys.readouterr().out
    run = find_run("latest", tmp_path)
    assert_all_was_learnt_from(run)
    steps = [line["step"] for line in run.metrics()]
    assert steps == sorted(steps) and steps[-1] == 90
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert "is finished: 90 steps" in capsys.readouterr().out


@pytest.mark.slow
def test_an_interrupted_run_has_saved_everything_before_it_ends(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = RunRecord.on_step

    def interrupted(self: RunRecord, step: int, training: Any) -> None:
        if step == 47:
            signal.raise_signal(signal.SIGINT)
        original(self, step, training)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        main.dispatch(["train", str(recipe), "--record-episodes", "--out", str(tmp_path)])
    run = find_run("latest", tmp_path)
    checkpoint = run.load()
    assert checkpoint.step == 47 and checkpoint.parts["learner"]["updates"] == 47 - 10 + 1
    assert {"acting", "record"} <= set(checkpoint.parts)


@pytest.mark.slow
def test_robot_lost_before_first_step_stops_learner(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> None:
        raise RobotUnavailable("It gives no answer.")

    started: list[LearnerProcess] = []
    start = LearnerProcess._start
    monkeypatch.setattr(LearnerProcess, "_start", lambda self: (started.append(self), start(self)))
    died = [sys.executable, Path(__file__).with_name("train_and_die.py"), recipe, tmp_path, "step", "25"]
    assert subprocess.run(died, timeout=200, check=False).returncode == -signal.SIGKILL
    for place in ("robo_app.training.training_runs.Evaluator", "robo_app.training.training_runs.wait_for_robot"):
        with monkeypatch.context() as patched, pytest.raises(RobotUnavailable):
            patched.setattr(place, lost)
            main.dispatch(["resume", "latest", "--runs", str(tmp_path)])
    assert [process._process.status for process in started] == [-signal.SIGKILL] * 2
    assert main.dispatch(["resume", "latest", "--runs", str(tmp_path)]) == 0
    assert_all_was_learnt_from(find_run("latest", tmp_path))


@pytest.mark.slow
def test_scorers_are_closed_and_control_loop_comes_first(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    robot = {"environment": {"name": "robot/Fake-v0", "arguments": {"max_steps": 12}}, "algorithm": "sac", "human": {}}
    more = {
        "learner": {"network": {"hidden": [8]}, "batch_size": 8},
        "demonstrations": {},
        "steps": 20,
        "evaluation": {"before": True},
    }
    recipe.write_text(yaml.safe_dump({**RECIPE, **robot, **more}))
    is_first, seen, judging = False, [], []

    @contextmanager
    def first() -> Iterator[bool]:
        nonlocal is_first
        is_first = True
        yield True
        is_first = False

    def made(*arguments: Any, **settings: Any) -> gymnasium.Env[Any, Any]:
        judging.append(closing := Closing(environment(*arguments, **settings)))
        return closing

    class Closing(gymnasium.Wrapper[Any, Any, Any, Any]):
        closed = 0

        def close(self) -> None:
            self.closed += 1
            super().close()

    for name in ("__init__", "on_step", "finish"):
        original = getattr(RunRecord, name)
        noted = lambda self, *rest, name=name, original=original: (seen.append((name, is_first)), original(self, *rest))[1]  # noqa: E731
        monkeypatch.setattr(RunRecord, name, noted)
    environment = assembly.judged_environment_of
    monkeypatch.setattr(assembly, "judged_environment_of", made)
    monkeypatch.setattr(learner_process, "realtime_priority", first)
    assert main.dispatch(["train", str(recipe), "--evaluation.episodes", "1", "--out", str(tmp_path)]) == 0
    assert {*seen} == {("__init__", False), ("on_step", True), ("finish", False)}
    assert judging and all(each.closed == 1 for each in judging)


def leaves(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: leaves(value) for name, value in state.items()}
    return np.asarray(state).tobytes() if hasattr(state, "__array__") else state


def without_generator(learner: Any) -> Any:
    """Returns a learner's state without the generator of its actions, which is the acting half's."""
    state = leaves(learner)
    del state["policy"]
    return state


class Alone:
    """Stands for an acting process of which nothing more is to be expected than what the log has."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def serve(self, step: int, training: Any, timeout: float = 0.0) -> None:
        if timeout:  # it would wait
            raise Finished


@pytest.mark.slow
def test_warm_start_survives_deleted_run_and_moved_dataset(tmp_path: Path) -> None:
    short = {"steps": 30, "log_every": 0, "checkpoint_every": 0, "evaluation": {"episodes": 1, "videos": 0}}
    (tmp_path / "first.yaml").write_text(yaml.safe_dump({**RECIPE, **short, "learner_process": "off"}))
    assert main.dispatch(["train", str(tmp_path / "first.yaml"), "--out", str(tmp_path / "first")]) == 0
    first = find_run("latest", tmp_path / "first")
    command = ["record", "robo/ArmReach-v0", "--episodes", "2", "--out", str(tmp_path / "there")]
    main.dispatch([*command, "--environment.arguments.action_repeat", "3", "--environment.arguments.max_steps", "15"])
    begins = {"initial": {"run": str(first.path)}, "demonstrations": {"dataset": str(tmp_path / "there")}}
    (tmp_path / "next.yaml").write_text(yaml.safe_dump({**RECIPE, **short, **begins}))
    assert main.dispatch(["train", str(tmp_path / "next.yaml"), "--out", str(tmp_path / "next")]) == 0
    run = find_run("latest", tmp_path / "next")
    before, learnt = first.load().parts["learner"], run.load().parts
    assert leaves(load_checkpoint(run.path / "learner" / "initial").parts["learner"]) == leaves(before)
    assert learnt["learner"]["updates"] == before["updates"] + 30 - 10 + 1

    nowhere = EnvironmentSettings("robot:http://127.0.0.1:1")  # the learner asks the robot nothing
    alone = learner_process._learning(run, replace(recipe_of(run), environment=nowhere))
    reader = StepReader(run.path / "learner" / "steps")
    with pytest.raises(Finished):
        alone.learn_from(reader, Alone())  # type: ignore[arg-type]
    reader.close()
    for part, state in alone.state_dict().items():
        if part in ("replay", "offline"):
            assert leaves(learnt[part]) == leaves(state), part
    expected = without_generator(alone.learner.state_dict())
    assert without_generator(learnt["learner"]) == expected

    shutil.rmtree(first.path)
    (tmp_path / "there").rename(tmp_path / "elsewhere")
    shutil.rmtree(run.path / "checkpoints")  # as if it had been killed before there was one
    (run.path / "evaluation.json").unlink()
    assert main.dispatch(["resume", str(run.path), "--dataset", str(tmp_path / "elsewhere")]) == 0
    assert without_generator(run.load().parts["learner"]) == expected


ON_ROBOT = {"learner_process": "auto", "environment": {"name": "robot:http://127.0.0.1:5000"}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({**ON_ROBOT, "human": {"kind": "console"}, "initial": {"run": "latest"}}, True),
        ({"learner_process": "auto"}, False),
        (ON_ROBOT, True),
        ({**ON_ROBOT, "learner_process": "off"}, False),
        (
            {
                "learner_process": "auto",
                "environment": {"name": "robot:http://h:1"},
                "algorithm": "bc",
                "learner": {},
                "human": {},
            },
            False,
        ),
    ],
)
def test_robots_have_it_by_themselves(changes: dict[str, Any], expected: bool) -> None:
    loop = loop_of(parse_recipe({**RECIPE, **changes}, source="a test"))
    assert (loop is ACTOR_LEARNER) is expected


@pytest.mark.parametrize("algorithm", ["bc", "hg-dagger", "ppo", "sb3-sac"])
def test_a_learner_that_does_not_act_step_by_step_is_refused(algorithm: str) -> None:
    recipe = parse_recipe({**RECIPE, "algorithm": algorithm, "learner": {}}, source="a test")
    with pytest.raises(InvalidSetting, match=rf"The learner {algorithm} cannot be trained with a learner in its own process"):
        loop_of(recipe)
