"""Group-relative planner: which rewards of plans are hacked, and whether different plans that are as good stay.

python -m robo_papers.alphadrive.study toy --seeds 6                  sets of four actions, one state
python -m robo_papers.alphadrive.study drive --out planner --seeds 3  the driving stand-in, from a cloned planner, minutes each
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from robo_bench.trainings import Silent
from robo_papers.alphadrive.plans import PLANS, WAYS, is_blocked
from robo_policies.learners.episodic import ClippedLearner, EpisodeActor
from robo_rl.entry_points import load
from robo_rl.environments.levels import level_seed
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.system.durable_files import write_durably
from robo_rl.training.episodic import EpisodicTraining

Floats = npt.NDArray[np.float64]
ACTIONS = 4
SETS = [frozenset(action for action in range(ACTIONS) if number >> action & 1) for number in range(1, 2**ACTIONS)]
HIGHWAY: dict[str, Any] = {"scenario": "blocked-lane", "route_length": 80.0, "birdseye": 0}
IN_PLANS: list[dict[str, Any]] = [{"name": "planned"}]


def f1(found: frozenset[int], truth: frozenset[int]) -> float:
    """Return the F1 score of a found set, the harmonic mean of precision and recall against the true set."""
    return 2.0 * len(found & truth) / (len(found) + len(truth))


TOYS: dict[str, Callable[[frozenset[int]], float]] = {
    "contains the right action": lambda found: float(0 in found),
    "F1": lambda found: f1(found, frozenset({0})),
    "F1 of the nearer of two right plans": lambda found: max(f1(found, frozenset({right})) for right in (0, 1)),
}


class Sets(gymnasium.Env[Any, Any]):
    """Toy environment of one decision: the action is a set, and a function gives the set's reward."""

    def __init__(self, worth: Callable[[frozenset[int]], float]) -> None:
        names = tuple("_".join(map(str, sorted(each))) for each in SETS)
        entries = ObservationSpec((ArraySpec("one", (1,), low=1.0, high=1.0),))
        self.environment_spec = EnvironmentSpec("toy/Sets-v0", entries, ActionSpec(names, mode="discrete"), max_steps=1)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._worth = worth

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin the only step."""
        super().reset(seed=seed)
        return {"one": np.ones(1, np.float32)}, {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Return the reward of the chosen set, and end the episode."""
        return {"one": np.ones(1, np.float32)}, self._worth(SETS[int(action)]), True, False, {}


def chances(actor: EpisodeActor, observation: Observation) -> Floats:
    """Return the probabilities (K,) of a policy's K actions for one observation."""
    encoder = actor.parts.encoder
    seen = {name: observation[name][None] for name in encoder.reads}
    with torch.no_grad():
        features = encoder(encoder.tensors(encoder.stack(seen), seen, actor.parts.device))
        actions = torch.arange(actor.parts.spec.action.size)
        found = torch.exp(actor.log_densities(features.expand(len(actions), -1), actions))
    return found.numpy().astype(np.float64)


def group_ppo() -> Any:
    """Return the settings of the learner group-ppo that the study uses."""
    return load("learners", "group-ppo")()


def actor_of(training: EpisodicTraining) -> EpisodeActor:
    """Return the actor network of a training."""
    assert isinstance(training.learner, ClippedLearner)
    return training.learner.actor


def toy(name: str, variety: float, seed: int) -> tuple[Floats, float]:
    """Train on the toy; return the probabilities of the sets after 800 updates of one group, and their mean reward.

    Args:
        name: Name of the function that gives a set its reward.
        variety: Setting `variety` of the learner group-ppo.
        seed: Seed of the training.
    """
    settings: dict[str, Any] = {
        "episodes": 8,
        "group": 8,
        "network": {"hidden": (), "normalization_rows": 0},
        "lr": 0.01,
        "epochs": 2,
    }
    config = updated(group_ppo(), settings, variety=variety)
    training = EpisodicTraining(Sets(TOYS[name]), config, steps=6_400, seed=seed)
    training.run(Silent())
    found = chances(actor_of(training), {"one": np.ones(1, np.float32)})
    return found, float(sum(chance * TOYS[name](each) for chance, each in zip(found, SETS, strict=True)))


def toys(seeds: int) -> None:
    """Print how probable long lists and the right sets are after training: one right set, or two."""
    for name in TOYS:
        for variety in (0.0, 0.2):
            found = [toy(name, variety, seed)[0] for seed in range(seeds)]
            lists = [sum(chance for chance, each in zip(row, SETS, strict=True) if len(each) >= 3) for row in found]
            rights = [[row[SETS.index(frozenset({right}))] for right in (0, 1)] for row in found]
            lesser = [min(pair) for pair in rights]
            print(f"{name}, variety {variety}: lists of three or more {rounded(lists)}, the right plan", end=" ")
            greater = [max(pair) for pair in rights]
            print(f"{rounded(greater)}, a second right one {rounded(lesser)}", flush=True)


def rounded(values: list[float]) -> str:
    """Return values as text with two digits each."""
    return ", ".join(f"{value:.2f}" for value in values)


@dataclass(frozen=True)
class Method:
    """Method of the study: settings of a training that starts from the cloned policy."""

    advantages: Any = "group"
    variety: float = 0.0
    updates: int = 60


METHODS = {
    "clone": Method(updates=0),
    "group, variety": Method(variety=0.2),
    "group, variety 0.5": Method(variety=0.5),
    "group": Method(),
    "critic": Method("critic"),
}


def drive(method: Method, seed: int, demonstrations: int = 300) -> dict[str, float]:
    """Train from the cloned planner, and return the figures of the policy from snapshots and on whole unseen routes."""
    environment = make_environment("carla/Highway-v0", wrappers=IN_PLANS, **HIGHWAY)
    script = environment.get_wrapper_attr("scripted_policy")(seed, 0.2)
    levels = range(10_000 * (seed + 1), 10_000 * (seed + 1) + demonstrations)
    shown = [rollout(environment, script, seed=level_seed("train", level)) for level in levels]
    learnt = [each for each in shown if each.success]
    settings: dict[str, Any] = {
        "episodes": 32,
        "group": 8,
        "network": {"hidden": (64, 64)},
        "lr": 1e-3,
        "cloning": {"updates": 500},
    }
    config = updated(group_ppo(), settings, advantages={"kind": method.advantages}, variety=method.variety)
    training = EpisodicTraining(environment, config, steps=32 * max(method.updates, 1), seed=seed, demonstrations=learnt)
    if method.updates:
        training.run(Silent())
    else:
        training.learner.standardise(learnt)
        training.learner.prepare(learnt)
    environment.close()
    return {**judged(actor_of(training), training.policy)}


def judged(actor: EpisodeActor, policy: Policy, snapshots: int = 400) -> dict[str, float]:
    """Measure a policy at snapshots of the test: reward of plans, entropy of the way between two free lanes, routes driven."""
    environment = make_environment("carla/HighwayTest-v0", wrappers=IN_PLANS, **HIGHWAY)
    entropies, lesser = list[float](), list[float]()
    found = evaluate(policy, environment, snapshots, deterministic=False)
    for seed in found.seeds:
        observation, _ = environment.reset(seed=seed)
        if is_blocked(observation) and observation["lanes"].all() and abs(observation["route"][0][1]) < 0.5:
            plans = chances(actor, observation)
            ways = np.array([sum(plans[number] for number, each in enumerate(PLANS) if each.endswith(way)) for way in WAYS])
            entropies.append(float(-(ways * np.log(np.maximum(ways, 1e-12))).sum()))
            lesser.append(float(min(ways[1:])))
    environment.close()
    routes = make_environment("carla/HighwayTest-v0", wrappers=[{"name": "planned", "whole": True}], **HIGHWAY)
    driven = evaluate(policy, routes, 50)
    routes.close()
    assert found.success_rate is not None and driven.success_rate is not None
    return {
        "worth": found.mean_return.estimate,
        "success": found.success_rate.estimate,
        "entropy": float(np.mean(entropies)),
        "rarer side": float(np.mean(lesser)),
        "forks": len(entropies),
        "routes": driven.success_rate.estimate,
    }


def main() -> None:
    """Train what is missing in the folder, and print the table of all results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", choices=("toy", "drive"))
    parser.add_argument("--out", type=Path, default=Path("planner"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="methods")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.kind == "toy":
        toys(arguments.seeds)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for name in arguments.only or METHODS:
            file = arguments.out / f"{name}--{seed}.json"
            if not file.exists():
                write_durably(file, json.dumps(drive(METHODS[name], seed)).encode())
            print(file.stem, json.loads(file.read_text()), flush=True)


if __name__ == "__main__":
    main()
