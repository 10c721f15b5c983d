"""Families of datasets: what is in them, what their cards say, and that a killed recording is completed."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from robo_app.recording import reference_scores as reference
from robo_app.recording.exploration_policies import WanderingPolicy
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.figures import content_hash
from robo_datasets.repair import verify
from robo_rl.environments.make import make_environment
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification

TASK = "robo/ArmReach-v0"
RECIPE = f"""
environment: {{name: {TASK}, arguments: {{max_steps: 15}}}}
algorithm: sac
learner: {{network: {{hidden: [8, 8]}}, batch_size: 16, replay: {{learning_starts: 10}}}}
steps: 80
log_every: 0
record_episodes: true
evaluation: {{episodes: 1, every: 20, episodes_during: 1, videos: 0}}
"""
ENDS = (15, 30, 45, 60, 75)  # steps at which training episodes end


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(RECIPE)
    assert dispatch(["train", str(folder / "tiny.yaml"), "--out", str(folder)]) == 0
    return find_run("latest", folder)


@pytest.fixture
def run(trained: Run, tmp_path: Path) -> Run:
    """A run whose evaluations at 20, 40, 60 and 80 say 0.2, 0.5, 0.1 and 0.9, where chance reaches 0.1 and the expert 1."""
    copy = Run(tmp_path / trained.path.name)
    shutil.copytree(trained.path, copy.path)
    for step, value in ((20, 0.2), (40, 0.5), (60, 0.1), (80, 0.9)):
        _say(copy, step, value)
    scores = {"random": 0.1, f"{copy.path.name}@80": 1.0}
    facts = {"success": 0.0, "episodes": 50, "seeds": [1_000_000, 1_000_049]}
    known = {actor: {"actor": actor, "return": value, **facts} for actor, value in scores.items()}
    (copy.path / "reference.json").write_text(json.dumps(known))
    return copy


def _say(run: Run, step: int, mean_return: float) -> None:
    file = run.path / "evaluations" / f"{step:010d}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"returns": [mean_return]}))


def record(family: str, run: Run, out: str, *more: str) -> Dataset:
    assert dispatch(["record", TASK, "--family", family, "--run", str(run.path), "--out", out, *more]) == 0
    return Dataset(Path(out))


def steps_of(dataset: Dataset) -> list[int]:
    return [episode.metadata["training_step"] for episode in dataset]


@pytest.mark.slow
def test_medium_is_the_first_policy_a_third_of_the_way(run):
    dataset = record("medium", run, "medium", "--episodes", "3")
    assert dataset.card["medium"] == {"step": 40, "evaluated": 0.5, "threshold": pytest.approx(0.4)}
    assert {entry.source for entry in dataset.entries()} == {f"{run.path.name}@40"}
    assert [entry.seed for entry in dataset.entries()] == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(("returns", "step"), [((0.4, 0.5, 0.1, 0.9), 20), ((0.39, 0.3, 0.1, 0.9), 80), ((0, 0, 0.6, 0.9), 60)])
def test_medium_replay_holds_no_episode_later_than_medium(run, returns, step):
    for at, value in zip((20, 40, 60, 80), returns, strict=True):
        _say(run, at, value)
    dataset = record("medium-replay", run, "replay")
    assert dataset.card["medium"]["step"] == step
    assert steps_of(dataset) == [end for end in ENDS if end <= step]
    originals = {entry.identity: entry.file for entry in Dataset(run.path / "episodes").entries()}
    assert all(originals[entry.identity] == entry.file for entry in dataset.entries()), "copies, byte for byte"


@pytest.mark.slow
def test_replay_is_all_of_it_or_a_draw(run):
    assert steps_of(record("replay", run, "all")) == [*ENDS]
    drawn = [steps_of(record("replay", run, f"some-{seed}", "--episodes", "2", "--seed", str(seed))) for seed in range(3)]
    assert all(len(set(steps)) == 2 and steps == sorted(steps) for steps in drawn)
    assert len({tuple(steps) for steps in drawn}) > 1
    with pytest.raises(InvalidSetting, match=r"too few episodes(.|\n)*got: +5(.|\n)*6 or more"):
        record("replay", run, "many", "--episodes", "6")


@pytest.mark.slow
@pytest.mark.parametrize(("percent", "episodes", "experts"), [(50, 4, 2), (34, 3, 1), (67, 3, 2)])
def test_shares_of_a_mixture_are_exact(run, percent, episodes, experts):
    dataset = record(f"mixed-{percent}", run, "mixed", "--episodes", str(episodes))
    sources = [entry.source for entry in dataset.entries()]
    assert sources.count(f"{run.path.name}@80") == experts == dataset.card["mixture"]["expert"]
    assert sources.count(run.path.name) == episodes - experts == dataset.card["mixture"]["rest"]
    replayed = [episode.metadata["training_step"] for episode in dataset if "training_step" in episode.metadata]
    assert len(set(replayed)) == len(replayed) and max(replayed) <= dataset.card["medium"]["step"]


def test_a_mixture_without_training_episodes_takes_random_ones(run):
    shutil.rmtree(run.path / "episodes")
    dataset = record("mixed-50", run, "mixed", "--episodes", "4")
    assert sorted(entry.source for entry in dataset.entries()) == [f"{run.path.name}@80"] * 2 + ["random"] * 2
    with pytest.raises(InvalidSetting, match=r"kept no episodes(.|\n)*--record-episodes"):
        record("medium-replay", run, "replay")


@pytest.mark.slow
def test_the_card_is_what_a_reader_computes(run, capsys):
    dataset = record("replay", run, "replay")
    episodes, card = [*dataset], dataset.card
    returns = [float(np.sum(episode.rewards, dtype=np.float64)) for episode in episodes]
    assert card["return"] == pytest.approx({"least": min(returns), "mean": fmean(returns), "most": max(returns)})
    assert (card["episodes"], card["steps"]) == (5, sum(map(len, episodes)))
    assert card["success"] == fmean(bool(episode.success) for episode in episodes)
    assert card["content"] == content_hash(dataset.entries())
    assert (card["family"], card["environment"], card["arguments"]) == ("replay", TASK, {"max_steps": 15})
    assert card["run"] == {"name": run.path.name, "commit": run.description["commit"], "seed": 0, "steps": 80}
    capsys.readouterr()
    assert dispatch(["data", "info", "replay", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    expected = {name: 100 * (value - 0.1) / 0.9 for name, value in facts["return"].items()}
    assert facts["score"] == pytest.approx(expected)
    assert dispatch(["data", "info", "replay"]) == 0
    page = capsys.readouterr().out
    assert "  family       replay\n" in page and "  reference    random 0.1, expert 1, success (" in page
    assert dispatch(["data", "split", "replay", "--into.a", "0.5", "--into.b", "0.5"]) == 0
    assert Dataset(Path("replay-a")).card["reference"] == card["reference"]


@pytest.mark.slow
def test_reference_scores_are_measured_once(run, monkeypatch):
    (run.path / "reference.json").unlink()
    monkeypatch.setattr(reference, "EPISODES", 2)
    dataset = record("random", run, "random", "--episodes", "1")
    environment = make_environment(TASK, max_steps=15)
    spec, seeds = specification(environment), (1_000_000, 1_000_001)
    chance = [evaluate(RandomPolicy(spec, seed), environment, seeds=[seed]).returns[0] for seed in seeds]
    assert dataset.card["reference"]["random"] == pytest.approx(fmean(chance))
    assert dataset.card["reference"]["actors"] == {"random": "random", "expert": f"{run.path.name}@80"}
    assert (dataset.card["reference"]["episodes"], dataset.card["reference"]["seeds"]) == (2, list(seeds))
    monkeypatch.setattr(reference, "rollout", None)  # nothing is played again
    assert record("replay", run, "replay").card["reference"] == dataset.card["reference"]


@pytest.mark.parametrize("family", ["expert", "play", "random", "mixed-50"])
def test_a_scripted_expert_needs_no_run(family, monkeypatch):
    monkeypatch.setattr(reference, "EPISODES", 1)
    assert dispatch(["record", TASK, "--family", family, "--episodes", "2", "--out", "d"]) == 0
    card = Dataset(Path("d")).card
    assert card["reference"]["actors"] == {"random": "random", "expert": "scripted"}
    assert card["reference"]["success"]["expert"] == 1.0 and card["run"] is None


@pytest.mark.slow
def test_a_killed_recording_is_completed_by_the_same_command(run):
    """Sampled actions too are the same: each episode follows from its seed."""
    arguments = ["record", TASK, "--family", "medium", "--run", str(run.path), "--episodes", "4"]
    script = Path(__file__).with_name("record_and_die.py")
    command = [sys.executable, script, "3", *arguments, "--out", "killed"]
    died = subprocess.run(command, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(Dataset(Path("killed"))) == 2 and "content" not in Dataset(Path("killed")).card
    with pytest.raises(DatasetError, match=r"was not begun by this command(.|\n)*seed 0, not 1"):
        dispatch([*arguments, "--out", "killed", "--append", "--seed", "1"])
    assert dispatch([*arguments, "--out", "killed", "--append"]) == 0
    dispatch([*arguments, "--out", "whole"])
    killed, whole = Dataset(Path("killed")), Dataset(Path("whole"))
    assert [entry.identity for entry in killed.entries()] == [entry.identity for entry in whole.entries()]
    assert all(a.actions.tobytes() == b.actions.tobytes() for a, b in zip(killed, whole, strict=True))
    assert verify(killed) == [] and killed.card["content"] == content_hash(killed.entries())
    with pytest.raises(DatasetError, match=r"is a family of datasets(.|\n)*--family medium, to complete it"):
        dispatch(
            ["record", TASK, "--environment.arguments.max_steps", "15", "--policy", "random", "--out", "killed", "--append"]
        )


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--family", "exprt"], UnknownName, "did you mean 'expert'"),
        (["--family", "mixed-100"], UnknownName, "from 1 to 99 %"),
        (["--family", "mixed-10", "--episodes", "3"], InvalidSetting, r"an episode of each kind(.|\n)*0 of 3"),
        (["--family", "medium"], InvalidSetting, "This family needs a run"),
        (["--family", "random", "--policy", "random"], InvalidSetting, "A family says itself who acts"),
        (["--policy", "random", "--expert", "scripted"], InvalidSetting, "are of a family"),
    ],
)
def test_bad_input(arguments, error, message, monkeypatch):
    monkeypatch.setattr(reference, "EPISODES", 1)
    with pytest.raises(error, match=message):
        dispatch(["record", TASK, "--out", "x", *arguments])
    assert not Path("x").exists()


def test_a_run_that_does_not_suffice(run):
    with pytest.raises(InvalidSetting, match=r"trained in another environment(.|\n)*'max_steps': 15"):
        record("medium", run, "x", "--environment.arguments.max_steps", "16")
    for step in (20, 40, 60, 80):
        _say(run, step, 0.39)
    with pytest.raises(InvalidSetting, match=r"No evaluation of the run(.|\n)*at most 0.39 in 4 evaluations(.|\n)*0.4 or more"):
        record("medium", run, "x")
    file = run.path / "reference.json"
    file.write_text(file.read_text().replace('"return": 1.0', '"return": 0.1'))
    with pytest.raises(InvalidSetting, match="The expert is no better than chance"):
        record("medium", run, "x")
    assert not Path("x").exists()


def test_a_policy_of_a_step(run):
    assert (
        dispatch(
            [
                "record",
                TASK,
                "--environment.arguments.max_steps",
                "15",
                "--policy",
                f"{run.path}@60",
                "--episodes",
                "1",
                "--out",
                "d",
            ]
        )
        == 0
    )
    assert Dataset(Path("d")).entries()[0].source == f"{run.path.name}@60"
    with pytest.raises(InvalidSetting, match=r"no policy of that step(.|\n)*20, 40, 60, 80"):
        dispatch(["record", TASK, "--environment.arguments.max_steps", "15", "--policy", f"{run.path}@61", "--out", "x"])


def test_wandering_is_slow_bounded_and_follows_from_its_seed():
    environment = make_environment(TASK)
    spec, observation = specification(environment), environment.reset(seed=0)[0]
    first, again, other = (WanderingPolicy(spec, seed).act(observation) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    policy = WanderingPolicy(spec, 0)
    walk = np.array([policy.act(observation) for _ in range(4000)])
    assert np.abs(walk).max() <= 1
    correlation = np.corrcoef(walk[:-1, 0], walk[1:, 0])[0, 1]
    assert correlation == pytest.approx(0.85, abs=0.03)
    assert walk.std() == pytest.approx(0.2 / np.sqrt(1 - 0.85**2), rel=0.1)


class Still:
    """An expert at doing nothing."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.environment_spec = spec

    def reset(self) -> None: ...

    def act(self, observation: Observation, *, deterministic: bool = False) -> np.ndarray:
        return np.zeros(self.environment_spec.action.shape, np.float32)


def test_wandering_takes_turns_with_the_expert():
    spec = specification(make_environment(TASK))
    policy = WanderingPolicy(spec, 0, Still(spec))
    turns = np.array([(policy.act({}) == 0.0).all() for _ in range(2000)])
    assert 0.3 < turns.mean() < 0.7
    assert 30 < np.count_nonzero(np.diff(turns)) < 150, "one change in 25 steps"


def test_wandering_among_discrete_actions_holds_them():
    spec = specification(make_environment("minigrid/MiniGrid-Empty-5x5-v0"))
    policy = WanderingPolicy(spec, 0)
    choices = np.array([policy.act({}) for _ in range(2000)])
    assert choices.dtype == np.int64 and set(choices) == {*range(spec.action.size)}
    assert 0.8 < np.mean(choices[1:] == choices[:-1]) < 0.95
