"""VPL on the arm: a policy that knows its user beside one for the average, for people who want it fast or gentle.

python -m robo_papers.vpl.study --out users --seeds 3

Resumable: finished parts are not made again. The people are rules, sixteen of each kind.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import robo_rl
from robo_app.experiments.results import Results, add_archive_option
from robo_bench.finished import finished
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_papers.vpl.reward import AVERAGE, SavedUsers
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Policy
from robo_rl.rewards.preferences.raters import MeasuresRater, Segment
from robo_rl.rollout.episode import rollout
from robo_rl.runs.run import Run
from robo_rl.types import Episode

ENVIRONMENT, ARGUMENTS = "robo/ArmReach-v0", {"action_repeat": 3, "reward": "dense"}
SEGMENT, ANSWERS, EACH = 5, 100, 16
WEIGHT, GOOD = 1.0, 0.6
"""Weight of a person's preference beside the task's own reward, in each step; and share of wins of a step that costs
nothing."""
EVALUATED = range(1_000_000, 1_000_050)


def people() -> dict[str, list[MeasuresRater]]:
    """Return the simulated users of each kind, "fast" and "gentle".

    Users of a kind differ in the smallest difference they notice.
    """
    noticed = np.linspace(0.02, 0.2, EACH)
    fast = [MeasuresRater((f"mean joint_velocity~{each:.4f}", "-last goal_from_gripper")) for each in noticed]
    gentle = [MeasuresRater((f"-mean joint_velocity~{each:.4f}", "-last goal_from_gripper")) for each in noticed]
    return {"fast": fast, "gentle": gentle}


def trained(out: Path, name: str, seed: int, steps: int) -> Run:
    """Return a run of SAC with the reward of all users (observed) or of the average user; train it if it is not there."""
    if (run := finished(out / "runs", name, seed)) is not None:
        return run
    users = str(out / "users")
    user = {} if name == "personal" else {"user": AVERAGE}
    environment = {"name": ENVIRONMENT, "arguments": ARGUMENTS, "wrappers": [{"name": "personal", "users": users, **user}]}
    less = {"stage": "clip", "settings": {"at": GOOD}}  # else it would pay to stay away from the goal
    source = {"reward": "vpl", "settings": {"folder": users, **user}, "weight": WEIGHT, "stages": [less]}
    reward = {"name": "pipeline", "settings": {"sources": [{"environment": True}, source]}}
    settings: dict[str, Any] = {"name": name, "environment": environment, "reward": reward}
    evaluation = {"every": 0, "episodes": 10, "videos": 0}
    return robo_rl.train("arm-reach-short", seed=seed, steps=steps, out=out / "runs", evaluation=evaluation, **settings)


def episodes_of(policy: Policy, out: Path, user: str) -> list[Episode]:
    """Return episodes of a deterministic policy in the environment of a user, with the same seeds at every call."""
    with closing(
        make_environment(ENVIRONMENT, wrappers=[{"name": "personal", "users": str(out / "users"), "user": user}], **ARGUMENTS)
    ) as environment:
        return [rollout(environment, policy, seed=seed, deterministic=True) for seed in EVALUATED]


def preferred(rater: MeasuresRater, ours: list[Episode], theirs: list[Episode]) -> float:
    """Return the share of seeds whose episode a rater prefers, ties half; compared over the steps that both have."""
    shares = []
    for one, other in zip(ours, theirs, strict=True):
        steps = min(len(one), len(other))
        found = rater.compare(Segment(one, 0, steps), Segment(other, 0, steps))
        shares.append(0.5 if found == "skip" else 1.0 - float(found))
    return float(np.mean(shares))


def described(episodes: list[Episode]) -> str:
    """Describe episodes as text: success, median number of steps, and mean speed of the joints."""
    speed = np.mean([np.linalg.norm(each.observations["joint_velocity"], axis=1).mean() for each in episodes])
    success = np.mean([each.success is True for each in episodes])
    return f"{success:.0%} | {np.median([len(each) for each in episodes]):.0f} | {speed:.2f}"


def figures(episodes: list[Episode], preferred: float | None = None) -> dict[str, Any]:
    """Return success and steps of each episode, and the share of seeds that were preferred to the averaged policy's."""
    success = [float(each.success is True) for each in episodes]
    return {"success": success, "steps": [len(each) for each in episodes], "preferred": preferred}


def prepared(out: Path, pairs: int) -> None:
    """Record a dataset, let every simulated user compare its segments, and fit the reward; finished parts are kept."""
    data = out / "reach"
    if not data.exists():
        words = [word for name, value in ARGUMENTS.items() for word in (f"--environment.arguments.{name}", str(value))]
        dispatch(["record", ENVIRONMENT, "--family", "play", "--episodes", "200", "--out", str(data), *words])
    dataset = Dataset(data)
    if "everybody" not in preference_sets(dataset) or len([*PreferenceSet(dataset, "everybody")]) < 2 * EACH * pairs:
        for number, rater in enumerate(rater for kind in people().values() for rater in kind):
            words = ["--rater", "measures", "--rater.settings.measures", f"[{', '.join(rater.measures)}]"]
            how = ["--name", "everybody", "--pairs", str(pairs), "--length", str(SEGMENT), "--seed", str(number)]
            dispatch(["prefer", str(data), *how, *words])
    if not (out / "users").exists():
        words = ["--dataset", str(data), "--preferences", "everybody", "--out", str(out / "users")]
        dispatch(["reward", "fit", "vpl", *words])


def main() -> None:
    """Prepare data and reward, train and compare the policies, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20_000)
    add_archive_option(parser, "vpl")
    given = parser.parse_args()
    results = Results("vpl", given.archive, {"steps": given.steps})
    out: Path = given.out
    prepared(out, ANSWERS)
    saved = SavedUsers(str(out / "users"))
    print("| seed | policy | success | steps | mean speed of the joints [rad/s] | preferred to the averaged, by this kind |")
    print("|---|---|---|---|---|---|")
    for seed in range(given.seeds):
        both, one = (trained(out, name, seed, given.steps).policy() for name in ("personal", "averaged"))
        averaged = episodes_of(one, out, AVERAGE)
        print(f"| {seed} | averaged | {described(averaged)} | |")
        results.measured("averaged", seed, partial(figures, averaged))
        for kind, raters in people().items():
            user = next(name for name in saved.names if name.startswith(":".join(raters[EACH // 2].identity)))
            theirs = episodes_of(both, out, user)
            share = np.mean([preferred(rater, theirs, averaged) for rater in raters])
            print(f"| {seed} | for the {kind} | {described(theirs)} | {share:.0%} |", flush=True)
            results.measured(f"for the {kind}", seed, partial(figures, theirs, float(share)))


if __name__ == "__main__":
    main()
