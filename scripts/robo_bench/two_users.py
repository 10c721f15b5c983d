"""VPL on the arm: a policy that knows its user beside one for the average, for people who want it fast or gentle.

python -m robo_bench.two_users --out users --seeds 3

Resumable: what is recorded, fitted or trained already is not made again. The people are rules, eight of each kind.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import robo_rl
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import label_sets
from robo_datasets.preferences import PreferenceSet, preference_sets
from robo_rl.environments.make import make_environment
from robo_rl.protocols.components import Policy
from robo_rl.rewards.preferences.raters import MeasuresRater, Segment
from robo_rl.rewards.users.rewards import SavedUsers
from robo_rl.rollout.episode import rollout
from robo_rl.runs.run import Run
from robo_rl.types import Episode

ENVIRONMENT = "robo/ArmReach-v0"
SEGMENT, ANSWERS, EACH = 5, 100, 16
SCALE = 400.0
"""Of rewards, so that returns span about 1,000, as IQL's authors have it."""
WEIGHT = 0.05
"""Of a person's preference beside the task's own reward, in each step."""
EVALUATED = range(1_000_000, 1_000_050)


def people() -> dict[str, list[MeasuresRater]]:
    """Return raters of two kinds; those of one kind differ in the difference that they notice."""
    noticed = np.linspace(0.02, 0.2, EACH)
    fast = [MeasuresRater((f"mean joint_velocity~{each:.4f}", "-last goal_from_gripper")) for each in noticed]
    gentle = [MeasuresRater((f"-mean joint_velocity~{each:.4f}", "-last goal_from_gripper")) for each in noticed]
    return {"fast": fast, "gentle": gentle}


def trained(out: Path, name: str, seed: int, dataset: Path, labels: str, steps: int) -> Run:
    """Return a run of IQL, trained if it is not there."""
    for path in sorted((out / "runs").glob(f"????????-??????-{name}-{seed}")):
        if (path / "evaluation.json").exists():
            return robo_rl.open_run(path)
    learner = {"hidden": (128, 128), "lr": 1e-3, "actor_dropout": 0.1, "reward_scale": SCALE}
    settings: dict[str, Any] = {"name": name, "evaluation": {"every": 0, "episodes": 10, "videos": 0}, "learner": learner}
    return robo_rl.train("offline-iql", seed=seed, steps=steps, dataset=dataset, labels=labels, out=out / "runs", **settings)


def episodes_of(policy: Policy, **arguments: Any) -> list[Episode]:
    """Return episodes of a policy on the same seeds."""
    name = f"personal:{ENVIRONMENT}" if "users" in arguments else ENVIRONMENT
    with closing(make_environment(name, **arguments)) as environment:
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
    """Return success, median steps, and mean speed of the joints."""
    speed = np.mean([np.linalg.norm(each.observations["joint_velocity"], axis=1).mean() for each in episodes])
    success = np.mean([each.success is True for each in episodes])
    return f"{success:.0%} | {np.median([len(each) for each in episodes]):.0f} | {speed:.2f}"


def prepared(out: Path, pairs: int) -> None:
    """Record, have it compared by everybody, fit both rewards, label."""
    data, users, averaged = out / "reach", out / "users", out / "averaged"
    if not data.exists():
        arguments = ["--environment.arguments.reward", "dense"]
        dispatch(["record", ENVIRONMENT, "--family", "play", "--episodes", "200", "--out", str(data), *arguments])
    dataset = Dataset(data)
    if "everybody" not in preference_sets(dataset) or len([*PreferenceSet(dataset, "everybody")]) < 2 * EACH * pairs:
        for number, rater in enumerate(rater for kind in people().values() for rater in kind):
            words = ["--rater", "measures", "--rater.settings.measures", f"[{', '.join(rater.measures)}]"]
            how = ["--name", "everybody", "--pairs", str(pairs), "--length", str(SEGMENT), "--seed", str(number)]
            dispatch(["prefer", str(data), *how, *words])
    shared = ["--dataset", str(data), "--preferences", "everybody"]
    for kind, folder in (("vpl", users), ("preference", averaged)):
        if not folder.exists():
            dispatch(["reward", "fit", kind, *shared, "--out", str(folder)])
    if not (out / "personal").exists():
        dispatch(["data", "personal", str(data), "--users", str(users), "--out", str(out / "personal")])
    for path, reward, folder in ((out / "personal", "vpl", users), (data, "preference", averaged)):
        if reward not in label_sets(Dataset(path)):
            weight = WEIGHT if reward == "vpl" else WEIGHT / 4  # the other has deviation 1, shares have about a quarter
            source = {"reward": reward, "settings": {"folder": str(folder)}, "weight": weight}
            both = {"reward": "pipeline", "settings": {"sources": [{"environment": True}, source]}}
            (out / f"{reward}.yaml").write_text(yaml.safe_dump(both))
            dispatch(["label", str(path), "--reward", str(out / f"{reward}.yaml"), "--name", reward])


def main() -> None:
    """Prepare, train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    given = parser.parse_args()
    out: Path = given.out
    prepared(out, ANSWERS)
    saved = SavedUsers(str(out / "users"))
    print("| seed | kind | policy | success | steps | mean speed of the joints [rad/s] | preferred to the averaged |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(given.seeds):
        both = trained(out, "personal", seed, out / "personal", "vpl", given.steps).policy()
        one = trained(out, "averaged", seed, out / "reach", "preference", given.steps).policy()
        averaged = episodes_of(one)
        print(f"| {seed} | both | averaged | {described(averaged)} | |")
        for kind, raters in people().items():
            names = [name for name in saved.names if name.startswith(":".join(raters[EACH // 2].identity))]
            theirs = episodes_of(both, users=str(out / "users"), user=names[0])
            share = np.mean([preferred(rater, theirs, averaged) for rater in raters])
            print(f"| {seed} | {kind} | of this kind | {described(theirs)} | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
