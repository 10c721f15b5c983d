"""A run keeps each of its training episodes once, however often it is killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robo_app.recipes.environments import RecipeEnvironments
from robo_app.training.assembly import plan_of, policy_of, recipe_of
from robo_app.training.episode_recording import RunEpisodes
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.repair import verify
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import Run, find_run

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 15}}
algorithm: sac
learner: {network: {hidden: [8, 8]}, batch_size: 16, replay: {learning_starts: 10}}
steps: 70
log_every: 0
checkpoint_every: 25
record_episodes: true
evaluation: {episodes: 1, every: 20, episodes_during: 1, videos: 0}
"""
# Episodes end at steps 15, 30, 45 and 60; the fifth is under way at the end and is not kept.


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recipe") / "tiny.yaml"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="module")
def uninterrupted(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("uninterrupted")
    assert dispatch(["train", str(recipe), "--out", str(folder)]) == 0
    return find_run("latest", folder)


@pytest.mark.slow
def test_every_episode_with_the_step_at_which_it_ended(uninterrupted):
    dataset = Dataset(uninterrupted.path / "episodes")
    facts = [(episode.metadata["training_episode"], episode.metadata["training_step"], len(episode)) for episode in dataset]
    assert facts == [(0, 15, 15), (1, 30, 15), (2, 45, 15), (3, 60, 15)]
    assert {entry.source for entry in dataset.entries()} == {uninterrupted.path.name}
    assert dataset.card["environment"] == "robo/ArmReach-v0" and dataset.card["arguments"] == {"max_steps": 15}
    assert dataset.card["run"]["name"] == uninterrupted.path.name
    assert verify(dataset) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",  # two episodes after a checkpoint; before any of either; at the end
    ["47", "10", "70"],
)
def test_a_killed_run_keeps_the_same_episodes(recipe, uninterrupted, tmp_path, step):
    script = Path(__file__).with_name("train_and_die.py")
    died = subprocess.run([sys.executable, script, recipe, tmp_path, "step", step], capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    run = find_run("latest", tmp_path)
    stored = {entry.file for entry in Dataset(run.path / "episodes").entries()}
    assert len(stored) == int(step) // 15
    assert dispatch(["resume", str(run.path)]) == 0
    dataset, expected = Dataset(run.path / "episodes"), Dataset(uninterrupted.path / "episodes")
    assert stored <= {entry.file for entry in dataset.entries()}, "what was stored is not stored again"
    assert len(dataset) == len(expected) == 4
    for episode, other in zip(dataset, expected, strict=True):
        assert episode.metadata["training_step"] == other.metadata["training_step"]
        assert episode.actions.tobytes() == other.actions.tobytes() and episode.rewards.tobytes() == other.rewards.tobytes()


@pytest.mark.slow
def test_a_dataset_that_was_being_made_is_made_again(recipe, tmp_path, monkeypatch):
    with monkeypatch.context() as patched, pytest.raises(OSError, match="killed"):
        patched.setattr(Path, "rename", _renames_no_dataset)
        dispatch(["train", str(recipe), "--out", str(tmp_path)])
    run = find_run("latest", tmp_path)
    assert not (run.path / "episodes").exists()
    assert dispatch(["resume", str(run.path)]) == 0
    assert len(Dataset(run.path / "episodes")) == 4


RENAME = Path.rename


def _renames_no_dataset(self: Path, target: Path) -> Path:
    if self.name == "episodes.new":
        raise OSError("killed")
    return RENAME(self, target)


def test_another_history_keeps_its_own_episodes(uninterrupted, tmp_path):
    """After a warm resume, the same number names another episode."""
    run, recipe = uninterrupted, recipe_of(uninterrupted)
    before = run.description
    dataset = Dataset(run.path / "episodes")
    episode, count = dataset.read(dataset.entries()[0]), len(dataset)
    copy = tmp_path / run.path.name
    shutil.copytree(run.path, copy)
    run = Run(copy)
    training = plan_of(recipe, RecipeEnvironments(recipe), None).training()
    for kind, expected in (("exact", count), ("warm", count + 1)):
        run.describe(resumes=[*before["resumes"], {"time": "now", "step": 25, "kind": kind}])
        recorder = RunEpisodes()
        with recorder.open(run, recipe, training):
            recorder.keep(episode)
        assert len(Dataset(copy / "episodes")) == expected


def test_the_policy_of_every_evaluation_can_act(uninterrupted):
    recipe, spec = recipe_of(uninterrupted), uninterrupted.spec
    observation = {name: array[0] for name, array in next(iter(Dataset(uninterrupted.path / "episodes"))).observations.items()}
    actions = [policy_of(uninterrupted, recipe, step).act(observation, deterministic=True) for step in (20, 40, 60, 70)]
    assert all(action.shape == spec.action.shape for action in actions)
    assert len({action.tobytes() for action in actions}) == 4, "learning changed it"
    newest = policy_of(uninterrupted, recipe).act(observation, deterministic=True)
    assert newest.tobytes() == actions[-1].tobytes()
    names = [path.name for path in (uninterrupted.path / "policies").rglob("*")]
    assert "learner.safetensors" in names and not any("replay" in name for name in names)
    with pytest.raises(InvalidSetting, match=r"kept no policy of that step(.|\n)*got: +30(.|\n)*20, 40, 50, 60, 70"):
        policy_of(uninterrupted, recipe, 30)


def test_rewinding_takes_later_policies_along(uninterrupted, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(uninterrupted.path, copy)
    Run(copy).rewind(45)
    assert sorted(path.name for path in (copy / "policies").iterdir()) == ["0000000020", "0000000040"]


@pytest.mark.slow
def test_without_the_setting_nothing_is_kept(recipe, tmp_path):
    assert dispatch(["train", str(recipe), "--out", str(tmp_path), "--no-record-episodes", "--steps", "20"]) == 0
    run = find_run("latest", tmp_path)
    assert not (run.path / "episodes").exists() and not (run.path / "policies").exists()


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [("ppo", []), ("bc", ["--demonstrations.episodes", "1"])],
)
def test_learners_that_make_no_episodes_refuse(algorithm, changes, tmp_path):
    Path("other.yaml").write_text(
        f"environment: {{name: robo/ArmReach-v0}}\nalgorithm: {algorithm}\nsteps: 32\nrecord_episodes: true\n"
    )
    with pytest.raises(InvalidSetting, match=rf"{algorithm} cannot be trained with recorded training episodes(.|\n)*rlpd, sac"):
        dispatch(["train", "other.yaml", "--out", str(tmp_path), *changes])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_episode_cut_by_the_end_of_the_steps_is_no_crash(recipe, tmp_path):
    """On a robot, whose episodes are kept step by step."""
    path = tmp_path / "robot.yaml"
    text = RECIPE.replace("{name: robo/ArmReach-v0, arguments: {max_steps: 15}}", "{name: robot/Fake-v0}")
    path.write_text(text.replace("steps: 70", "steps: 13").replace("every: 20", "every: 0") + "learner_process: 'off'\n")
    assert dispatch(["train", str(path), "--out", str(tmp_path / "runs")]) == 0
    dataset = Dataset(find_run("latest", tmp_path / "runs").path / "episodes")
    last = [*dataset][-1]
    assert (last.stop_reason, last.truncated, last.terminated) == ("steps_done", True, False)
    assert sum(len(episode) for episode in dataset) == 13
    assert verify(dataset) == []
