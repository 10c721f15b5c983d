"""Sweeps: what is refused, trials that are stopped, failures, that nothing is trained twice, and one real training."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("optuna")

from robo_app.jobs import jobs
from robo_app.jobs.exit_status import DIVERGED
from robo_app.recipes.recipe import read_recipe
from robo_app.sweeps.space import read_space
from robo_cli import main
from robo_rl.errors import MissingExtra, RoboRLError, RunError

SPACE = {"learner.lr": {"low": 1.0e-5, "high": 1.0e-1, "log": True}, "learner.network.hidden": {"choices": [[16], [32, 32]]}}
SMALL = ["arm-reach-sac", "--steps", "100", "--evaluation.every", "20", "--jobs", "2"]
REAL = [
    *("arm-reach-sac", "--steps", "60", "--learner.replay.learning-starts", "30", "--evaluation.every", "20"),
    *("--evaluation.episodes", "2", "--evaluation.episodes-during", "2", "--evaluation.videos", "0", "--name", "real"),
]


def stub_module():
    found = importlib.util.spec_from_file_location("stub_training", Path(__file__).with_name("stub_training.py"))
    module = importlib.util.module_from_spec(found)
    sys.modules["stub_training"] = module
    found.loader.exec_module(module)
    return module


@pytest.fixture
def stub(monkeypatch):
    """Has trainings be formulas."""
    training = stub_module().StubTraining
    monkeypatch.setattr(jobs, "Running", training)
    monkeypatch.setattr(jobs, "PERIOD", 0.0)
    return training


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump(SPACE))
    return path


def sweep(space, *words, trials=12, recipe=SMALL):
    return main.dispatch(["sweep", *recipe, "--space", str(space), "--trials", str(trials), *words])


def facts(name="arm-reach-sac"):
    return json.loads(Path(f"runs/{name}-sweep/sweep.json").read_text())


# spaces


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"learner.rl": {"low": 1, "high": 2}}, r"Unknown setting of the recipe arm-reach-sac 'learner.rl'(.|\n)*'learner.lr'"),
        ({"learner.lr": {"low": 1.0, "high": 0.1}}, "low below high"),
        ({"learner.lr": {"low": 0.0, "high": 0.1, "log": True}}, "log only where low is above 0"),
        ({"learner.lr": {"low": 0.1, "high": 0.2, "setp": 0.1}}, "setp"),
        ({"learner.lr": 0.1}, "no range and no choices"),
        ({"learner.lr": {"low": "little", "high": 0.1}}, "low"),
        ({"learner.batch_size": {"low": 1.5, "high": 8}}, "whole numbers"),
        ({"learner.batch_size": {"low": 16, "high": 64, "step": 32}}, "a step above 0"),
        ({"learner.batch_size": {"choices": [16, "many"]}}, "refuses a value of learner.batch_size: 'many'"),
        ({"learner.batch_size": {"choices": [16, 16]}}, "all different"),
        ({"learner.network.hidden": {"low": 16, "high": 64}}, "it is not a number"),
        ({"learner.discount": {"low": 0.9, "high": 1.5}}, "refuses a value of learner.discount: 1.5"),
        ({"learner": {"choices": [1, 2]}}, "Unknown setting"),
        ({"evaluation.episodes": {"low": 1, "high": 5}}, "cannot search"),
        ({"steps": {"low": 10, "high": 50}}, "cannot search"),
        ({"learner.lr": {"low": 0.1, "high": 0.2}, "learner-lr": {"low": 1, "high": 2}}, "Unknown setting"),
        ({}, "names no settings"),
        ([1], "names no settings"),
    ],
)
def test_what_cannot_be_searched_is_one_error(tmp_path, told, words):
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump(told))
    with pytest.raises(RoboRLError, match=words):
        read_space(file, read_recipe("arm-reach-sac"))


def test_a_space_has_the_types_of_the_recipe(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "learner.lr: {low: 1e-5, high: 1}\nlearner.batch-size: {low: 16, high: 64.0, step: 16}\n"
        "environment.arguments.action_repeat: {low: 1, high: 4}\n"
    )
    space = read_space(file, read_recipe("arm-reach-sac"))
    assert [dimension.is_whole for dimension in space.dimensions.values()] == [False, True, True]
    recipe = space.at({"learner.batch_size": 32, "environment.arguments.action_repeat": 2}, "other")
    assert (recipe.learner.batch_size, recipe.environment.arguments["action_repeat"], recipe.name) == (32, 2, "other")
    assert recipe.environment.arguments["reward"] == "dense", "what is not searched stays"


def test_nothing_runs_before_the_space_is_sound(stub, tmp_path, space):
    space.write_text("learner.rl: {low: 1, high: 2}")
    with pytest.raises(RoboRLError, match=r"learner\.lr"):
        sweep(space)
    assert not Path("runs").exists()


def test_without_optuna_it_says_what_to_install(monkeypatch, space):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra, match=r"robo-rl\[sweep\]"):
        sweep(space)


# sweeps


@pytest.mark.slow
def test_a_sweep_finds_the_best_stops_what_is_behind_and_reports(stub, space, capsys):
    assert sweep(space) == 0
    told = facts()
    best = told["trials"][told["best"]]
    assert 10**-3.4 < best["values"]["learner.lr"] < 10**-2.6 and best["interval"][1] < best["value"] < best["interval"][2]
    states = {each["number"]: each["state"] for each in told["trials"]}
    stopped = [number for number, state in states.items() if state == "stopped"]
    assert len(states) == 12 and stopped, states
    for number in stopped:
        assert abs(told["trials"][number]["values"]["learner.lr"] - 1e-3) > 5e-4
        assert re.match(r"step [468]0: .* is below trial \d+, ", told["trials"][number]["why"])
    shown = capsys.readouterr().out
    folder = Path("runs/arm-reach-sac-sweep")
    assert f"Trial {told['best']} is the best" in shown and "biased upwards" in shown
    assert f"robo-rl train {folder}/best.yaml --seeds 0-2" in shown
    assert read_recipe(str(folder / "best.yaml")).learner.lr == best["values"]["learner.lr"]
    page = (folder / "report.html").read_text()
    assert page.count("<polyline") > 12 and "Importance of the settings" in page and "PED-ANOVA" in page
    assert max(told["importance"], key=told["importance"].get) == "learner.lr"
    trained = (folder / "ledger").read_text().splitlines()
    assert len(trained) == len({*trained}) < 12 * 3 * 5, "what is stopped is not trained to its end"


@pytest.mark.slow
def test_more_trials_go_on_and_other_settings_are_refused(stub, space, capsys):
    sweep(space, trials=2)
    before = facts()["trials"]
    sweep(space, trials=3)
    assert facts()["trials"][:2] == before and len(facts()["trials"]) == 3
    ledger = Path("runs/arm-reach-sac-sweep/ledger").read_text()
    sweep(space, trials=3)
    assert Path("runs/arm-reach-sac-sweep/ledger").read_text() == ledger
    with pytest.raises(RunError, match=r"seeds: \[0, 1, 2\], now \[0, 1\]; risk: 0\.05, now 0\.1"):
        sweep(space, "--seeds", "0-1", "--risk", "0.1")
    with pytest.raises(RunError, match=r"recipe\.learner\.discount: .*, now 0\.9"):
        sweep(space, "--learner.discount", "0.9")


@pytest.mark.slow
def test_without_risk_all_are_trained_to_the_end(stub, space, capsys):
    sweep(space, "--risk", "0", trials=8)
    assert "No trial is stopped early" in capsys.readouterr().out
    assert {each["state"] for each in facts()["trials"]} == {"complete"}


@pytest.mark.slow
def test_a_trial_that_diverges_has_failed_and_the_search_goes_on(stub, space, monkeypatch):
    monkeypatch.setattr(
        stub, "status_of", staticmethod(lambda recipe, seed, step: DIVERGED * (recipe["learner"]["lr"] > 1e-2 and step == 20))
    )
    assert sweep(space) == 0
    for each in facts()["trials"]:
        assert (each["state"] == "failed") == (each["values"]["learner.lr"] > 1e-2)
    assert any("diverged" in each["why"] for each in facts()["trials"])


@pytest.mark.slow
def test_failed_training_ends_sweep_and_is_retried(stub, space, monkeypatch):
    monkeypatch.setattr(stub, "status_of", staticmethod(lambda recipe, seed, step: int(step == 60 and seed == 1)))
    with pytest.raises(RunError, match=r"t000-seed-1\.log"):
        sweep(space, trials=2)
    assert facts()["trials"][0]["state"] == "running"
    monkeypatch.setattr(stub, "status_of", staticmethod(lambda recipe, seed, step: 0))
    assert sweep(space, trials=2) == 0 and {each["state"] for each in facts()["trials"]} <= {"complete", "stopped"}
    trained = Path("runs/arm-reach-sac-sweep/ledger").read_text().splitlines()
    assert len(trained) == len({*trained})


@pytest.mark.slow
def test_a_trial_that_fails_again_counts_as_failed(stub, space, monkeypatch):
    monkeypatch.setattr(stub, "status_of", staticmethod(lambda recipe, seed, step: int(recipe["name"].endswith("t000"))))
    with pytest.raises(RunError, match="t000"):
        sweep(space, trials=2)
    assert sweep(space, trials=2) == 0
    assert [each["state"] for each in facts()["trials"]] == ["failed", "complete"]


@pytest.mark.slow
def test_two_sweeps_do_not_share_a_folder(stub, space, monkeypatch):
    def meanwhile(recipe, seed, step):
        with pytest.raises(RunError, match="Another process runs the sweep"):
            sweep(space, trials=1)
        return 0

    monkeypatch.setattr(stub, "status_of", staticmethod(meanwhile))
    sweep(space, "--seeds", "0", trials=1)


@pytest.mark.slow
def test_interrupted_sweep_stops_trainings_and_resumes(stub, space, monkeypatch):
    stopped = []

    def interrupt(recipe, seed, step):
        if step == 60:
            raise KeyboardInterrupt
        return 0

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stub, "status_of", staticmethod(interrupt))
        patched.setattr(stub, "stop", lambda self: (stopped.append(self.job.name), setattr(self, "is_stopped", True)))
        sweep(space, trials=1)
    assert stopped == ["t000-seed-0", "t000-seed-1"]
    assert sweep(space, trials=1) == 0
    trained = Path("runs/arm-reach-sac-sweep/ledger").read_text().splitlines()
    assert len(trained) == len({*trained}) == 15


@pytest.mark.slow
def test_sweep_killed_anywhere_equals_uninterrupted(stub, space, tmp_path):
    one_by_one = [*SMALL, "--jobs", "1", "--seed", "2"]
    sweep(space, trials=5, recipe=one_by_one)
    words = [*one_by_one, "--space", str(space), "--trials", "5"]
    program = Path(__file__).with_name("sweep_and_die.py")
    command = [sys.executable, str(program), str(tmp_path / "killed"), str(program.parent), *words]
    lives = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(lives.stdout) > 4
    folder = tmp_path / "killed" / "arm-reach-sac-sweep"
    found, whole = json.loads((folder / "sweep.json").read_text()), facts()
    assert [(e["values"], e["state"], e["seeds"]) for e in found["trials"]] == [
        (e["values"], e["state"], e["seeds"]) for e in whole["trials"]
    ]
    assert {e["state"] for e in found["trials"]} == {"complete", "stopped"}
    trained = (folder / "ledger").read_text().splitlines()
    assert len(trained) == len({*trained}), "nothing is trained twice"


@pytest.mark.slow
def test_a_torn_journal_goes_on(stub, space):
    sweep(space, trials=2)
    before, journal = facts()["trials"], Path("runs/arm-reach-sac-sweep/journal.log")
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 4, "tri')
    sweep(space, trials=3)
    assert facts()["trials"][:2] == before


@pytest.mark.slow
def test_real_trainings_and_their_confirmation(in_this_process, space, capsys):
    assert sweep(space, "--seeds", "0-1", "--confirm", "2", trials=2, recipe=REAL) == 0
    told = facts("real")
    assert [job.name for job in in_this_process] == [f"t00{t}-seed-{s}" for t in (0, 1) for s in (0, 1)] + ["seed-2", "seed-3"]
    finals = [json.loads(path.read_text()) for path in sorted(Path("runs/real-sweep").glob("**/evaluation.json"))]
    assert sorted(each["seeds"][0] for each in finals) == [1_000_000] * 4 + [1_500_000] * 2
    assert [*told["confirmed"]["seeds"]] == ["2", "3"]
    assert "2 fresh seeds, judged on episodes that had no part in the choice" in capsys.readouterr().out
    assert {each["state"] for each in told["trials"]} == {"complete"}
    assert sweep(space, "--seeds", "0-1", "--confirm", "2", trials=2, recipe=REAL) == 0
    assert len(in_this_process) == 6, "nothing is trained twice"


SPACES = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs/training/sweeps.md").read_text(), re.DOTALL)


@pytest.mark.parametrize(("told", "recipe"), [*zip(SPACES, ["arm-reach-sac", "halfcheetah-ppo"], strict=True)])
def test_what_the_page_shows_can_be_searched(told, recipe, tmp_path):
    (tmp_path / "space.yaml").write_text(told)
    assert read_space(tmp_path / "space.yaml", read_recipe(recipe)).dimensions
