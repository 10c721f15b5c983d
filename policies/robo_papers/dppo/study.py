"""Cloned picks, refined by reward through the denoising steps, by steering the noise, and by cloning their own successes.

python -m robo_papers.dppo.study --seeds 5

Resumable: what the archive has is not trained again. All methods of a seed begin with one clone, and play as many episodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from typing_extensions import override

from robo_app.experiments.results import Results, add_archive_option
from robo_app.training.assembly import scripted_expert
from robo_bench.trainings import Successes
from robo_papers.dppo.actor import ChainActor
from robo_papers.dppo.learner import DiffusionDPPOConfig, DPPOSettings, FlowDPPOConfig
from robo_papers.dppo.noise import NoiseEnv
from robo_policies.learners.episodic import ClippedLearner, Figures, Rule
from robo_policies.learners.group_credit import Floats
from robo_policies.learners.sac import SACConfig
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import FIRST_SEED, evaluate
from robo_rl.evaluation.statistics import student_interval
from robo_rl.protocols.components import Policy, Training
from robo_rl.rollout.episode import rollout
from robo_rl.settings import updated
from robo_rl.spec.environment import specification
from robo_rl.training.off_policy import online_training
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Episode

ENVIRONMENT = "robo/ArmPick-v0"
ARGUMENTS: dict[str, Any] = {"action_repeat": 3, "max_steps": 50}
DEMONSTRATIONS, NOISE = 20, 0.1
EPISODES, ROUNDS = 640, 4
"""Episodes of a training; number of times that a policy is cloned again from its own successes."""
JUDGED = range(FIRST_SEED, FIRST_SEED + 100)
REACH = 2.0
"""Largest noise of steering, in standard deviations."""
KINDS: dict[str, DPPOSettings] = {"diffusion": DiffusionDPPOConfig(), "flow": FlowDPPOConfig()}
STEERING: dict[str, Any] = {"network": {"hidden": (128, 128)}, "batch_size": 128, "discount": 0.96, "lr": 1e-3}
"""SAC of noise steering; one of its steps is four of the environment."""

make = partial(make_environment, ENVIRONMENT, **ARGUMENTS)


class Enough(Successes):
    """Observer that ends a training after a number of episodes."""

    def __init__(self, episodes: int) -> None:
        super().__init__()
        self._episodes = episodes

    @override
    def on_step(self, step: int, training: Training) -> None:
        if len(self.found) >= self._episodes:
            training.steps = 0  # type: ignore[attr-defined]


class Dealt(Rule):
    """Control condition: the rewards of the episodes of an update are permuted between them."""

    def __init__(self, rule: Rule, actor: ChainActor) -> None:
        self._rule, self._actor = rule, actor

    @override
    def of(self, episodes: Sequence[Episode]) -> tuple[Floats, Figures]:
        returns = self._actor.random.permutation([each.undiscounted_return for each in episodes])
        dealt = [paid_at_the_end(each, value) for each, value in zip(episodes, returns, strict=True)]
        advantages, figures = self._rule.of(dealt)
        return np.asarray(advantages, np.float64), figures


def paid_at_the_end(episode: Episode, value: float) -> Episode:
    """Return an episode whose only reward is `value`, at its last step."""
    rewards = np.zeros_like(episode.rewards)
    rewards[-1] = value
    return replace(episode, rewards=rewards)


def demonstrations(seed: int, count: int) -> list[Episode]:
    """Return successful episodes of the scripted expert with noise."""
    environment, found, number = make(), list[Episode](), 10_000 * seed
    expert_for = scripted_expert(environment, ENVIRONMENT)
    while len(found) < count:
        episode = rollout(environment, expert_for(number, noise=NOISE), seed=number)
        found += [episode] if episode.success else []
        number += 1
    return found


def cloned(kind: str, seed: int, recorded: Sequence[Episode]) -> ClippedLearner:
    """Return a learner whose policy is cloned from demonstrations."""
    learner = KINDS[kind].build(specification(make()), seed)
    learner.standardise(recorded)
    learner.prepare(recorded)
    return learner


def judged(policy: Policy, environment: Any, trained: Sequence[bool] = ()) -> dict[str, Any]:
    """Evaluate a policy on the study's seeds; return success of each episode, and that of the training's quarters."""
    found = evaluate(policy, environment, seeds=JUDGED)
    quarters = {"quarters": [float(np.mean(part)) for part in np.array_split(trained, 4)]} if trained else {}
    return {"success": [float(bool(each)) for each in found.successes], **quarters}


def refined(kind: str, seed: int, recorded: Sequence[Episode], *, permuted: bool = False) -> dict[str, Any]:
    """Refine a clone by DPPO, and evaluate it."""
    config, heard = KINDS[kind], Enough(EPISODES)
    training: Any = config.training(make, steps=EPISODES * ARGUMENTS["max_steps"] + 10**6, seed=seed, demonstrations=recorded)
    if permuted:
        training.learner.rule = Dealt(training.learner.rule, training.learner.actor)
    training.run(heard)
    return judged(training.policy, make(), heard.found)


def imitating_itself(kind: str, seed: int, recorded: Sequence[Episode]) -> dict[str, Any]:
    """Clone a clone's own successes together with the demonstrations, round by round, and evaluate it."""
    learner, environment, kept, played = cloned(kind, seed, recorded), make(), [*recorded], list[bool]()
    for number in range(EPISODES):
        episode = rollout(environment, learner.policy, seed=episode_seed(seed, number))
        played.append(bool(episode.success))
        kept += [episode] if episode.success else []
        if (number + 1) % (EPISODES // ROUNDS) == 0:
            learner.actor.clone(kept, KINDS[kind].cloning)
    return judged(learner.policy, make(), played)


def steered(kind: str, seed: int, recorded: Sequence[Episode]) -> dict[str, Any]:
    """Steer a clone by the noise of its chunks, which SAC chooses, and evaluate it."""
    learner = cloned(kind, seed, recorded)
    assert isinstance(learner.actor, ChainActor)
    environment, judge = (NoiseEnv(make(), learner.actor, REACH, each) for each in (seed, seed + 1))
    config, heard = updated(SACConfig(), STEERING), Enough(EPISODES)
    sac = config.build(environment.environment_spec, seed)
    online_training(environment, sac, config.sampling, steps=10**6, seed=seed).run(heard)
    return judged(sac.policy, judge, heard.found)


def figures(method: str, kind: str, seed: int) -> dict[str, Any]:
    """Train by a method and evaluate the policy; return its figures."""
    recorded = demonstrations(seed, DEMONSTRATIONS)
    if method == "clone":
        return judged(cloned(kind, seed, recorded).policy, make())
    by: dict[str, Callable[..., dict[str, Any]]] = {
        "dppo": refined,
        "rewards permuted": partial(refined, permuted=True),
        "own successes": imitating_itself,
        "steered noise": steered,
    }
    return by[method](kind, seed, recorded)


METHODS = ("clone", "dppo", "own successes", "rewards permuted", "steered noise")


def main() -> None:
    """Train all methods and seeds that the archive lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--methods", nargs="*", default=METHODS)
    add_archive_option(parser, "dppo")
    given = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"episodes": EPISODES, "rounds": ROUNDS, "demonstrations": DEMONSTRATIONS, "noise": NOISE, "reach": REACH}
    results = Results("dppo", given.archive, settings)
    print("| policy | method | success of each seed | mean and 95 % interval |\n|---|---|---|---|")
    for kind in given.kinds:
        for method in given.methods:
            runs = [
                results.measured(method, seed, partial(figures, method, kind, seed), on=kind, learner=KINDS[kind])
                for seed in range(given.seeds)
            ]
            shares = [float(np.mean(run["success"])) for run in runs]
            found = student_interval(shares)
            shown = ", ".join(f"{share:.0%}" for share in shares)
            print(f"| {kind} | {method} | {shown} | {found.estimate:.0%} [{found.low:.0%}, {found.high:.0%}] |", flush=True)


if __name__ == "__main__":
    main()
