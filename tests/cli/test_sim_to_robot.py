"""From the simulation to the twin: the quickstart's recipe, cut short; refused where it does not fit, refined where it does."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from robo_app.robots.twin_process import twin_process
from robo_app.training.assembly import policy_of, recipe_of
from robo_cli.main import dispatch
from robo_rl.environments.make import make_environment
from robo_rl.errors import SpecMismatch
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.runs.run import Run, find_run

SPEED = 2
"""of the twin, times real time"""
SEEDS = "0", "1"
STEPS = {"simulation": 4000, "twin": 1500}
EPISODES = {"simulation": 150, "twin": 5}


def changed(run, to, **changes):
    """Returns a copy of a run that says to have seen the hand's position otherwise."""
    copied = Path(shutil.copytree(run.path, to))
    spec = run.spec
    arrays = tuple(
        replace(each, **changes) if each.name == "end_effector_position" else each for each in spec.observation.arrays
    )
    (copied / "spec.json").write_text(json.dumps(replace(spec, observation=replace(spec.observation, arrays=arrays)).to_json()))
    return str(Run(copied).path)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_quickstart_policy_is_refined_only_if_specs_match(tmp_path):
    """Success in simulation before and after 1500 steps on the twin, over two trainings: episodes on the twin itself are few.

    Measured, five seeds: 28.0, 18.0, 30.7, 4.0, 30.0 % before and 42.7, 20.0, 47.3, 37.3, 60.0 % after, of 150 episodes.
    """
    runs, demos = tmp_path / "runs", tmp_path / "demos"
    steps, cut = str(STEPS["simulation"]), ["--evaluation.every", "0", "--evaluation.episodes", "5", "--evaluation.videos", "0"]
    settings = ["--episodes", "20", "--noise", "0.1", "--environment.arguments.action_repeat", "3"]
    dispatch(["record", "robo/ArmPick-v0", "--out", str(demos), *settings])
    order = ["--dataset", str(demos), "--human", "perfect", "--runs", str(runs), "--episodes", str(EPISODES["twin"])]
    rates = []
    for seed in SEEDS:
        dispatch(["train", "arm-pick-rlpd", "--steps", steps, "--seed", seed, *cut, "--out", str(runs)])
        trained = find_run("latest", runs)
        with twin_process(tmp_path / "audit.jsonl", task="robo/ArmPick-v0", speed=SPEED) as url:
            refused = {
                "end_effector_position.unit: 'mm' here, 'm' there": [
                    changed(trained, tmp_path / f"unit{seed}", unit="mm"),
                    url,
                ],
                "end_effector_position.frame: 'world' here, 'base' there": [
                    changed(trained, tmp_path / f"frame{seed}", frame="world"),
                    url,
                ],
                "action.control_period: 0.15 here, 0.1 there": [str(trained.path), f"{url}?action_repeat=2"],
            }
            for difference, (run, robot) in refused.items():
                with pytest.raises(SpecMismatch, match=difference):
                    dispatch(["refine", run, "--robot", robot, *order])
            refine = ["refine", str(trained.path), "--robot", url, *order, "--steps", str(STEPS["twin"]), "--seed", seed]
            assert dispatch(refine) == 0
            refined = find_run("latest", runs)
            policies = [policy_of(each, recipe_of(each)) for each in (trained, refined)]  # the robot is asked for its spec
        before, after = (
            Evaluation.from_json(json.loads((refined.path / name).read_text()))
            for name in ("evaluations/0000000000.json", "evaluation.json")
        )
        assert before.seeds == after.seeds and len(after) == EPISODES["twin"]
        simulated = make_environment("robo/ArmPick-v0", action_repeat=3)
        judged = range(1_000_000, 1_000_000 + EPISODES["simulation"])
        rates.append([evaluate(policy, simulated, seeds=judged).success_rate.estimate for policy in policies])
        print(f"on the twin: before {before.success_rate}, after {after.success_rate}")
    print(f"in the simulation: before and after {rates}")
    assert sum(after for _, after in rates) > sum(before for before, _ in rates)
