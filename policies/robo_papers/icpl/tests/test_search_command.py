"""robo-rl reward search, on trainings of a few steps: what it leaves, and that nothing is done twice."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from robo_app.training.finalisation import judge
from robo_cli.main import dispatch
from robo_papers.icpl.trainer import term_traces
from robo_rl.errors import InvalidSetting, RunError, UnknownName
from robo_rl.rewards.chat.log import read_log
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.runs.observer import RunRecord

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 8, action_repeat: 3}}
algorithm: sac
learner: {network: {hidden: [8]}, batch_size: 8, replay: {learning_starts: 4}}
steps: 30
log_every: 8
checkpoint_every: 15
evaluation: {every: 15, episodes: 2, episodes_during: 1, videos: 0}
"""
SMALL = ["--eureka.rounds", "1", "--eureka.programs", "2", "--eureka.budget", "1"]


@pytest.fixture(autouse=True)
def few_steps_to_try_on(monkeypatch):
    Path("tiny.yaml").write_text(RECIPE)
    monkeypatch.setattr("robo_app.training.program_validation.ROWS", 20)
    for name in ("SINGLE_ROWS", "EVERY_SIZE"):
        monkeypatch.setattr(f"robo_rl.rewards.programs.validation.{name}", 2)


@pytest.fixture
def luck(monkeypatch):
    """The first of the episodes that choose candidates ends in success, which few steps of training hardly lead to."""

    def lucky(*arguments, **more):
        found = judge(*arguments, **more)
        return replace(found, successes=(True, *found.successes[1:]))

    monkeypatch.setattr("robo_papers.icpl.trainer.judge", lucky)


@pytest.mark.slow
def test_who_never_succeeds_does_not_win(capsys):
    assert dispatch(["reward", "search", "tiny.yaml", *SMALL, "--llm", "rule:reach", "--confirm", "1", "--out", "search"]) == 1
    told = capsys.readouterr().out
    assert "no candidate succeeded: the best score is 0.0%, of candidate 1-0" in told and "winner  " not in told
    result = json.loads(Path("search/result.json").read_text())
    assert (result["winner"], result["best"], result["score"], result["confirmed"]) == (None, "1-0", 0.0, [])
    assert not Path("search/winner.py").exists() and not Path("search/confirmations").exists()
    page = Path("search/search.html").read_text()
    assert "No candidate succeeded: there is no winner" in page and "Candidate 1-0 won" not in page


def parameters(folder: Path) -> dict[str, np.ndarray]:
    (found,) = folder.glob("trainings/*/*/checkpoints/0000000030/learner.safetensors")
    return load_file(found)


@pytest.mark.slow
@pytest.mark.usefixtures("luck")
def test_killed_search_resumes_and_replays_identically(monkeypatch, capsys):
    search = ["reward", "search", "tiny.yaml", *SMALL]
    rule = ["--llm", "rule:reach", "--llm.settings.seed", "3", "--out", "search"]
    original = RunRecord.on_step

    def interrupted(self, step, training):
        if step == 20:
            self.request_stop()
        original(self, step, training)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunRecord, "on_step", interrupted)
        dispatch([*search, *rule])
    assert dispatch([*search, *rule]) == 0
    told = capsys.readouterr().out
    assert "ended: the budget of trainings is spent" in told and "made by rule, not by a model" in told
    assert "resumed at step 20, exact" in next(Path("search").glob("trainings/*/log.txt")).read_text()
    assert len(read_log(Path("search/calls.jsonl"))[0]) == 2
    assert dispatch([*search, "--replay", "search/calls.jsonl", "--out", "again"]) == 0
    first, second = parameters(Path("search")), parameters(Path("again"))
    assert first.keys() == second.keys() and all(np.array_equal(value, second[name]) for name, value in first.items())

    winner = RewardProgram.read(Path("search/winner.py"))
    assert winner.provenance["model"] == "made by rule" and winner.provenance["candidate"] == "1-0"
    outcome = json.loads(next(Path("search").glob("trainings/*/outcome.json")).read_text())
    assert outcome["steps"] == [15, 30] and {"gain", "place", "total"} <= outcome["terms"].keys()
    result = json.loads(Path("search/result.json").read_text())
    assert (
        result["winner"] == "1-0" and result["score"] == 0.5 and result["chosen by chance"]["first round"] == outcome["score"]
    )
    page = Path("search/search.html").read_text()
    assert "Candidate 1-0 won" in page and "The budget of trainings was spent." in page and "gain = closer" in page
    with pytest.raises(RunError, match="holds a search with other settings"):
        dispatch([*search, *rule, "--recipe.steps", "40"])


def test_terms_are_told_per_step():
    lines = [
        {"reward/near": 4.0, "reward/model_return": 6.0, "reward/missing": 0.0, "rollout/ep_len_mean": 8.0},
        {"rollout/ep_len_mean": 8.0},
        {"reward/near": 1.0},
    ]
    assert term_traces(lines) == {"near": (0.5,), "total": (0.75,)}


@pytest.mark.slow
def test_what_cannot_be_searched_is_said_before_anything_is_asked():
    with pytest.raises(InvalidSetting, match="HalfCheetah-v5 does not declare success"):
        dispatch(["reward", "search", "halfcheetah-sac", "--llm", "rule:reach", "--out", "search"])
    assert not list(Path().glob("*/calls.jsonl"))
    with pytest.raises(UnknownName, match="Unknown rater 'nobody'") as told:
        dispatch(["reward", "search", "tiny.yaml", "--llm=rule:reach", "--method=icpl", "--rater=nobody", "--out=search"])
    assert "chance" in str(told.value)
