"""`import robo_rl`: what a person does from Python is what the command line does, checked as strictly, and quiet."""

from __future__ import annotations

import inspect
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file

import robo_rl
from robo_app.recipes.recipe import read_recipe
from robo_cli.main import dispatch
from robo_rl import entry_points, workbench
from robo_rl.errors import CheckpointCorrupt, InvalidSetting, MissingOperation, RoboRLError, RunError, RunNotFound, UnknownName

REACH = {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}}
EVALUATION = {"episodes": 2, "every": 30, "episodes_during": 1, "videos": 0}
COMMON = {"log_every": 10, "checkpoint_every": 20, "evaluation": EVALUATION}
RLPD: dict[str, Any] = COMMON | {
    "environment": REACH,
    "algorithm": "rlpd",
    "learner": {
        "network": {"hidden": [8, 8]},
        "batch_size": 16,
        "critics": 2,
        "updates_per_step": 2,
        "replay": {"learning_starts": 10},
    },
    "demonstrations": {"episodes": 2},
}
PENDULUM = {"name": "gymnasium/InvertedPendulum-v5"}
LOOPS: dict[str, dict[str, Any]] = {
    "online": RLPD,
    "offline": COMMON
    | {
        "environment": REACH,
        "algorithm": "bc",
        "learner": {"network": {"hidden": [8]}, "batch_size": 4},
        "demonstrations": {"episodes": 2},
    },
    "offline then online": COMMON
    | {
        "environment": REACH,
        "algorithm": "iql",
        "learner": {"network": {"hidden": [8]}, "batch_size": 4},
        "demonstrations": {"episodes": 2},
        "online": {"steps": 20},
    },
    "ppo": COMMON
    | {
        "environment": PENDULUM,
        "algorithm": "ppo",
        "learner": {"num_envs": 2, "steps_per_env": 5, "batch_size": 5, "epochs": 2, "network": {"hidden": [8]}},
    },
    "sb3": COMMON
    | {"environment": PENDULUM, "algorithm": "sb3-ppo", "learner": {"n_steps": 10, "batch_size": 5, "n_epochs": 2}},
}


def parameters(run: robo_rl.Run, step: int) -> dict[str, np.ndarray]:
    return dict(load_file(run.path / "checkpoints" / f"{step:010d}" / "learner.safetensors"))


def require_equal(a: robo_rl.Run, b: robo_rl.Run, step: int) -> None:
    first, second = parameters(a, step), parameters(b, step)
    assert first.keys() == second.keys() and first
    assert all(first[name].tobytes() == second[name].tobytes() for name in first)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> robo_rl.Run:
    return robo_rl.train(RLPD, steps=40, seed=5, out=tmp_path_factory.mktemp("finished"))


@pytest.fixture
def copied(finished: robo_rl.Run, tmp_path: Path) -> robo_rl.Run:
    shutil.copytree(finished.path, tmp_path / "run")
    return robo_rl.open_run(tmp_path / "run")


def test_import_loads_nothing_that_computes() -> None:
    code = "import robo_rl, sys; print([name for name in ('numpy', 'torch', 'gymnasium', 'yaml') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_every_public_name_is_there_and_documented() -> None:
    for name in robo_rl.__all__:
        assert inspect.getdoc(getattr(robo_rl, name)), name
    assert set(robo_rl.__all__) <= set(dir(robo_rl))
    with pytest.raises(AttributeError, match="no attribute 'tain'"):
        robo_rl.tain  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train", "resume"])
def test_implementations_get_what_the_door_takes(name: str, finished: robo_rl.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    door, behind = (inspect.signature(each).parameters for each in (getattr(workbench, name), entry_points.operation(name)))
    own = {"train": {"seed", "steps"}, "resume": {"runs"}}[name]  # parameters that the door itself uses up
    assert set(behind) == set(door) - own
    marks = {each: each for each in door if each not in ("recipe", "run", "runs", "overrides")}
    given: dict[str, object] = {}

    def implementation(*arguments: object) -> None:
        given.update(zip(behind, arguments, strict=True))

    monkeypatch.setattr(workbench, "operation", lambda name: implementation)
    getattr(workbench, name)(finished.recipe if name == "train" else finished, **marks)
    overrides = given.pop("overrides", {})
    found = {each: str(value) for each, value in {**given, **overrides}.items() if each not in ("recipe", "run")}
    assert found == marks, "every parameter arrives under its own name"


def test_evaluation_takes_what_the_run_takes() -> None:
    door, behind = (inspect.signature(each).parameters for each in (robo_rl.Run.evaluate, entry_points.operation("evaluate")))
    assert list(door)[1:] == list(behind)[1:]


def test_missing_implementation_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_points, "known", lambda group: {})
    with pytest.raises(MissingOperation, match=r"robo_rl\.train is not installed(.|\n)*pip install robo-rl"):
        robo_rl.train("arm-pick-rlpd")


@pytest.mark.slow
def test_door_and_command_line_train_the_same(finished: robo_rl.Run, tmp_path: Path) -> None:
    (tmp_path / "rlpd.yaml").write_text(yaml.safe_dump(RLPD | {"steps": 40}))
    assert dispatch(["train", str(tmp_path / "rlpd.yaml"), "--seed", "5", "--out", str(tmp_path)]) == 0
    require_equal(finished, robo_rl.open_run("latest", runs=tmp_path), 40)


@pytest.mark.slow
def test_training_is_quiet_unless_asked(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = robo_rl.train(LOOPS["offline"] | {"steps": 20}, out=tmp_path)
    assert robo_rl.resume(run) is run
    assert capfd.readouterr() == ("", "")
    robo_rl.resume(run, progress=True)
    assert "is finished: 20 steps" in capfd.readouterr().out


@pytest.mark.slow
def test_recipe_is_a_name_a_path_a_mapping_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(LOOPS["offline"] | {"steps": 3}))
    runs = [
        robo_rl.train(source, out=tmp_path)
        for source in (path, str(path), LOOPS["offline"] | {"steps": 3}, read_recipe(str(path)))
    ]
    again = robo_rl.train(runs[0].recipe, out=tmp_path, seed=np.int64(0))  # type: ignore[arg-type]
    for run in (*runs[1:], again):
        require_equal(runs[0], run, 3)
    assert [run.recipe["name"] for run in runs] == ["tiny", "tiny", "bc", "tiny"]
    with pytest.raises(UnknownName, match="did you mean 'arm-pick-rlpd'"):
        robo_rl.train("arm-pick-rldp", out=tmp_path)
    with pytest.raises(InvalidSetting, match="This is not a recipe"):
        robo_rl.train(3, out=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"stepss": 3}, "Unknown key in the recipe rlpd with overrides: 'stepss'"),
        ({"learner": {"replay": {"learning_strats": 3}}}, "did you mean 'learning_starts'"),
        ({"learner": 3}, "must be a mapping"),
        ({"learner": {"batch_size": "many"}}, "batch_size has the wrong type"),
        ({"learner": {"batch_size": None}}, "batch_size has no value"),
        ({"steps": True}, "steps has the wrong type"),
        ({"steps": 2.5}, "steps has the wrong type"),
        ({"steps": 0}, "'steps' is out of range"),
        ({"seed": -1}, "'seed' is out of range"),
        ({"evaluation": {"episodes": "two"}}, "episodes has the wrong type"),
        ({"algorithm": "sac"}, "'algorithm' comes with the recipe"),
        ({"environment": {"arguments": {"reward": print}}}, "'reward' cannot be written into a recipe"),
        ({"environment": {"arguments": {"rewards": "dense"}}}, "rewards"),
        ({"collectors": True}, "collectors: count has the wrong type"),
        ({"collectors": -1}, "needs a collector"),
        ({"collectors": {"cuont": 2}}, "did you mean 'count'"),
        ({"dataset": "nowhere"}, "nowhere is not a dataset"),
        ({"progress": "yes"}, "Progress cannot be shown there"),
        ({"learner": {"lr": np.ones(2)}}, "'lr' cannot be written into a recipe"),
        ({"learner": {"lr": float("nan")}}, "lr"),
    ],
)
def test_wrong_overrides_are_refused_before_a_run_is_made(overrides: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises((RoboRLError, TypeError), match=words):
        robo_rl.train(RLPD | {"steps": 5}, out=tmp_path / "runs", **overrides)
    assert not (tmp_path / "runs").exists()


def test_run_shows_its_curves_checkpoints_and_evaluation(finished: robo_rl.Run, capfd: pytest.CaptureFixture[str]) -> None:
    curve = finished.curve("eval/mean_reward")
    assert curve.steps.tolist() == [30] and curve.values.dtype == np.float64 and len(finished.curve("time/fps").steps) >= 4
    with pytest.raises(UnknownName, match="did you mean 'eval/mean_reward'"):
        finished.curve("eval/mean_rewrad")
    assert finished.checkpoints == (20, 30, 40) and finished.report.exists() and finished.recipe["seed"] == 5
    evaluation = finished.evaluate(episodes=2)
    assert finished.evaluation is not None and evaluation.returns == finished.evaluation.returns
    with pytest.raises(InvalidSetting, match="'episodes' is out of range"):
        finished.evaluate(0)
    with pytest.raises(InvalidSetting, match=r"kept no policy of that step(.|\n)*20, 30, 40"):
        finished.policy(7)
    assert capfd.readouterr().out == ""


def test_loaded_policy_acts_as_it_was_evaluated(finished: robo_rl.Run) -> None:
    environment = robo_rl.make_environment("robo/ArmReach-v0", max_steps=20)
    policy = robo_rl.load_policy(finished.path)
    evaluation = robo_rl.evaluate(policy, environment, episodes=2)
    assert finished.evaluation is not None and evaluation.returns == finished.evaluation.returns
    episode = robo_rl.run_episode(environment, policy, seed=evaluation.seeds[0], deterministic=True)
    assert len(episode) == evaluation.lengths[0]
    early = robo_rl.load_policy(finished, step=20)
    observation = {name: value[0] for name, value in episode.observations.items()}
    assert not np.array_equal(early.act(observation, deterministic=True), policy.act(observation, deterministic=True))
    environment.close()


@pytest.mark.slow
def test_recorded_episodes_open_as_a_dataset(tmp_path: Path) -> None:
    run = robo_rl.train(RLPD, steps=40, out=tmp_path, record_episodes=True, evaluation={"every": 0})
    dataset = robo_rl.open_dataset(run.path / "episodes")
    assert len(dataset) == 2 and sum(len(episode) for episode in dataset) == 40
    assert dataset.spec == run.spec
    with pytest.raises(RoboRLError, match="is not a dataset"):
        robo_rl.open_dataset(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_is_trained_longer(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = LOOPS[name]
    run = robo_rl.train(recipe, steps=20, out=tmp_path)
    first = run.load().step
    assert robo_rl.resume(run, steps=first + 20) is run
    assert run.load().step == first + 20 and run.evaluation is not None
    assert run.description["resumes"][0]["step"] == first
    robo_rl.resume(run, progress=True)
    assert f"--steps {2 * (first + 20)}" in capsys.readouterr().out
    if name == "offline then online":
        whole = robo_rl.train(recipe, steps=20, online={"steps": 40}, out=tmp_path)
        require_equal(whole, run, 60)
        with pytest.raises(InvalidSetting, match="61 or more"):
            robo_rl.resume(run, steps=60)


@pytest.mark.slow
def test_online_phase_is_added_to_a_finished_run(tmp_path: Path) -> None:
    offline = {key: value for key, value in LOOPS["offline then online"].items() if key != "online"}
    run = robo_rl.train(offline, steps=20, out=tmp_path)
    robo_rl.resume(run, online_steps=20)
    require_equal(robo_rl.train(LOOPS["offline then online"], steps=20, out=tmp_path), run, 40)


def test_interrupted_training_is_resumed_exactly(finished: robo_rl.Run, tmp_path: Path, interrupted_at: Any) -> None:
    with interrupted_at(33):
        robo_rl.train(RLPD, steps=40, seed=5, out=tmp_path)
    run = robo_rl.resume("latest", runs=tmp_path)
    assert run.description["resumes"] == [run.description["resumes"][0] | {"step": 33, "kind": "exact"}]
    require_equal(finished, run, 40)


@pytest.mark.slow
def test_interruption_by_a_callback_leaves_a_resumable_run(finished: robo_rl.Run, tmp_path: Path) -> None:
    class Impatient(robo_rl.Callback):
        def on_metrics(self, step: int, metrics: dict[str, float]) -> None:
            if step > 25:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        robo_rl.train(RLPD, steps=40, seed=5, out=tmp_path, callbacks=[Impatient()])
    require_equal(finished, robo_rl.resume(runs=tmp_path), 40)


@pytest.mark.slow
def test_trainings_at_once_in_threads_equal_one_alone(finished: robo_rl.Run, tmp_path: Path) -> None:
    usual, threads = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)), torch.get_num_threads()
    runs: dict[int, robo_rl.Run] = {}

    def train(number: int) -> None:
        runs[number] = robo_rl.train(RLPD, steps=40, seed=5, out=tmp_path)

    workers = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert len({run.path for run in runs.values()}) == 2
    for run in runs.values():
        require_equal(finished, run, 40)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == usual
    assert torch.get_num_threads() == threads


def test_two_trainings_of_one_run_are_refused(copied: robo_rl.Run) -> None:
    with copied, pytest.raises(RunError, match="Another process is writing the run"):
        robo_rl.resume(copied.path, steps=60)


@pytest.mark.slow
def test_torch_keeps_its_threads(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        robo_rl.train(LOOPS["offline"], steps=2, out=tmp_path).evaluate(1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_run_of_another_version_is_one_error(copied: robo_rl.Run) -> None:
    path = copied.path / "recipe.yaml"
    path.write_text(yaml.safe_dump(copied.recipe | {"warmup": 3}))
    for use in (copied.policy, copied.evaluate, lambda: robo_rl.resume(copied)):
        with pytest.raises(UnknownName, match="'warmup'"):
            use()


@pytest.mark.parametrize(("file", "kind"), [("recipe.yaml", RunError), ("spec.json", RunError), ("run.json", RunError)])
def test_damaged_run_is_one_error(file: str, kind: type[Exception], copied: robo_rl.Run) -> None:
    (copied.path / file).write_text("[]")
    with pytest.raises(kind, match=rf"{file} is damaged"):
        robo_rl.resume(copied, steps=50)


def test_damaged_checkpoints_are_one_error(copied: robo_rl.Run) -> None:
    for file in copied.path.glob("checkpoints/*/learner.safetensors"):
        file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(CheckpointCorrupt):
        copied.policy()


def test_folder_that_is_no_run_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="is not a run folder"):
        robo_rl.open_run(tmp_path)
    with pytest.raises(UnknownName, match="Unknown run 'latest'"):
        robo_rl.resume(runs=tmp_path)
