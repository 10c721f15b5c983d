"""Sources of dataset families: an environment, random actions, an expert, and a run that kept its episodes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import gymnasium

from robo_app.recording import reference_scores as reference
from robo_app.recording.actors import AT, Actor, actor, run_at
from robo_app.recording.exploration_policies import DisturbedPolicy, WanderingPolicy, share_for
from robo_app.training.assembly import recipe_of, scripted_expert
from robo_app.training.episode_recording import FOLDER
from robo_app.training.foreign_agents import ZOO
from robo_datasets.dataset import DESCRIPTION, Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.rollout.episode import rollout
from robo_rl.runs.run import Run, circumstances
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.system.user_cache import user_cache

SHARE = 1 / 3  # of the way from random to expert, as in D4RL
SCRIPTED = "scripted"
PROBES = 5
"""Episodes by which a share of random actions is judged."""


class Medium(NamedTuple):
    """The first evaluated policy of a run that was good enough."""

    step: int
    evaluated: float
    """mean return in that evaluation, on the run's own seeds"""
    threshold: float


class Disturbed(NamedTuple):
    """An expert of whose actions a share is replaced by random ones."""

    share: float
    """Probability in each step of a random action."""
    evaluated: float
    """mean return over PROBES episodes"""
    threshold: float


@dataclass(frozen=True)
class Sources:
    """Sources of families, made on demand; `seed` determines all random choices."""

    environment: gymnasium.Env[Any, Any]
    environment_name: str
    arguments: Mapping[str, Any]
    run: Run | None
    expert_name: str
    """"scripted", RUN, RUN@STEP or zoo:PATH; empty for the newest policy of the run, or without one the scripted expert"""
    runs: Path
    seed: int = 0
    noise: float = 0.0
    stochastic: bool = True
    """Actions of trained policies are sampled, as in D4RL."""

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """That of the environment."""
        return specification(self.environment)

    @cached_property
    def has_script(self) -> bool:
        """True if the environment has a scripted expert."""
        return bool(self.environment.has_wrapper_attr("scripted_policy"))

    @cached_property
    def random(self) -> Callable[[int], Actor]:
        """Chance."""
        return actor("random", self.environment, self)

    @cached_property
    def expert(self) -> Callable[[int], Actor]:
        """The expert, a trained one with the step in its name; raises InvalidSetting if there is none."""
        if self.expert_name == SCRIPTED or not (self.expert_name or self.run):
            return actor(SCRIPTED, self.environment, self)
        if self.expert_name.startswith(ZOO):
            return actor(self.expert_name, self.environment, self)
        run, step = run_at(self.expert_name, self.runs) if self.expert_name else (self.training, None)
        return actor(f"{run.path}{AT}{run.load().step if step is None else step}", self.environment, self)

    @cached_property
    def wanderer(self) -> Callable[[int], Actor]:
        """Random actions that ignore the task."""
        expert_for = scripted_expert(self.environment, self.environment_name) if self.has_script else None

        def wander(seed: int) -> Actor:
            expert = None if expert_for is None else expert_for(seed, noise=self.noise)
            return Actor("play", WanderingPolicy(self.spec, seed, expert))

        return wander

    @property
    def is_disturbed(self) -> bool:
        """True if the family medium is a disturbed expert, as there is no run whose training passed through it."""
        return self.run is None and bool(self.expert_name)

    @cached_property
    def medium_actor(self) -> Callable[[int], Actor]:
        """The run's policy at the medium step, or the disturbed expert."""
        if self.is_disturbed:
            return self._disturbed(self.disturbed.share)
        return actor(f"{self.training.path}{AT}{self.medium.step}", self.environment, self)

    @cached_property
    def disturbed(self) -> Disturbed:
        """The expert with the share of random actions that makes it medium; raises InvalidSetting if it is no expert."""
        threshold = self._threshold()

        def mean_return(share: float) -> float:
            choose = self._disturbed(share)
            return fmean(
                rollout(self.environment, choose(seed).policy, seed=seed).undiscounted_return for seed in range(PROBES)
            )

        return Disturbed(*share_for(mean_return, threshold), threshold)

    def _disturbed(self, share: float) -> Callable[[int], Actor]:
        def choose(seed: int) -> Actor:
            expert = self.expert(seed)
            return Actor(f"{expert.name}+random={share:g}", DisturbedPolicy(expert.policy, share, seed))

        return choose

    def _threshold(self) -> float:
        """Return the mean return a third of the way from random to expert; raises InvalidSetting if there is no way."""
        random, expert = (self.scores[role]["return"] for role in ("random", "expert"))
        if expert <= random:
            raise InvalidSetting("The expert is no better than chance.", got=f"{expert:.6g}", allowed=f"above {random:.6g}")
        return float(random + SHARE * (expert - random))

    @cached_property
    def medium(self) -> Medium:
        """First step at which the run was good enough; raises InvalidSetting if there is none, or the expert is no expert."""
        threshold = self._threshold()
        means = {step: fmean(Evaluation.read(file).returns) for step, file in self.training.evaluation_files.items()}
        for step, mean in means.items():
            if mean >= threshold:
                return Medium(step, mean, threshold)
        raise InvalidSetting(
            f"No evaluation of the run {self.training.path.name} reached a third of the way from random to expert.",
            got=f"at most {max(means.values()):.6g} in {len(means)} evaluations" if means else "no evaluation",
            allowed=f"{threshold:.6g} or more",
            fix="train longer, with evaluation.every",
        )

    @cached_property
    def scores(self) -> dict[str, reference.Score]:
        """Scores of "random", and of "expert" if there is one."""
        named = {"random": self.random} | ({"expert": self.expert} if self.run or self.expert_name or self.has_script else {})
        return {role: reference.score(choose, self.environment, self._remembered) for role, choose in named.items()}

    @property
    def _remembered(self) -> Path | None:
        """File that remembers scores: of the run, or in the user's cache for weights, environment and packages like these."""
        if self.run is not None:
            return self.run.path / reference.FILE
        if not self.expert_name.startswith(ZOO):
            return None
        of = [self.environment_name, self.arguments, self.spec.fingerprint, self.expert(0).name, circumstances()["packages"]]
        digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        return user_cache() / "references" / f"{digest[:32]}.json"

    @property
    def training(self) -> Run:
        """The run; raises InvalidSetting if none is given."""
        if self.run is None:
            raise InvalidSetting(
                "This family needs a run.", got="no --run", fix="name one that was trained in this environment"
            )
        return self.run

    @property
    def has_training_episodes(self) -> bool:
        """True if a run kept its episodes."""
        return self.run is not None and (self.run.path / FOLDER / DESCRIPTION).exists()

    @property
    def training_episodes(self) -> Dataset:
        """The episodes of the run; raises InvalidSetting if it kept none."""
        if not self.has_training_episodes:
            raise InvalidSetting(
                f"The run {self.training.path.name} kept no episodes.",
                got=f"no {FOLDER}/{DESCRIPTION} in it",
                fix="train one with --record-episodes",
            )
        return Dataset(self.training.path / FOLDER)

    @property
    def card(self) -> dict[str, Any]:
        """Origin of the episodes, for the card."""
        origin = None
        if self.run is not None:
            facts = self.run.description
            recipe = recipe_of(self.run)
            origin = {"name": self.run.path.name, "commit": facts["commit"], "seed": recipe.seed, "steps": recipe.steps}
        return {
            "environment": self.environment_name,
            "arguments": dict(self.arguments),
            "run": origin,
            "seed": self.seed,
            "noise": self.noise,
            "reference": reference.summary(self.scores),
        }
