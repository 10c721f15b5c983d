"""Sources of dataset families: environment, random actions, expert, and a run that kept its training episodes."""

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
"""Number of episodes that measure the mean return for a share of random actions."""


class Medium(NamedTuple):
    """The policy of the family medium: the first evaluated one of a run whose mean return reached the threshold."""

    step: int
    evaluated: float
    """Mean return in that evaluation, on the run's evaluation seeds."""
    threshold: float


class Disturbed(NamedTuple):
    """The policy of the family medium without a run: an expert with a share of random actions."""

    share: float
    """Probability of a random action in each step."""
    evaluated: float
    """Mean return over PROBES episodes."""
    threshold: float


@dataclass(frozen=True)
class Sources:
    """Sources of the episodes of a family, made when they are first used; `seed` determines all random choices."""

    environment: gymnasium.Env[Any, Any]
    environment_name: str
    arguments: Mapping[str, Any]
    run: Run | None
    expert_name: str
    """"scripted", RUN, RUN@STEP or zoo:PATH; "" for the newest policy of the run, or without a run the scripted expert."""
    runs: Path
    seed: int = 0
    noise: float = 0.0
    stochastic: bool = True
    """True if trained policies sample their actions, as in D4RL."""

    @cached_property
    def spec(self) -> EnvironmentSpec:
        """Spec of the environment."""
        return specification(self.environment)

    @cached_property
    def has_script(self) -> bool:
        """True if the environment has a scripted expert."""
        return bool(self.environment.has_wrapper_attr("scripted_policy"))

    @cached_property
    def random(self) -> Callable[[int], Actor]:
        """Function from a seed to the actor that acts uniformly at random."""
        return actor("random", self.environment, self)

    @cached_property
    def expert(self) -> Callable[[int], Actor]:
        """The expert, for each seed; a trained one has its step in its name. Raises InvalidSetting if there is none."""
        if self.expert_name == SCRIPTED or not (self.expert_name or self.run):
            return actor(SCRIPTED, self.environment, self)
        if self.expert_name.startswith(ZOO):
            return actor(self.expert_name, self.environment, self)
        run, step = run_at(self.expert_name, self.runs) if self.expert_name else (self.training, None)
        return actor(f"{run.path}{AT}{run.load().step if step is None else step}", self.environment, self)

    @cached_property
    def wanderer(self) -> Callable[[int], Actor]:
        """Actor with slow random motion, alternating with the scripted expert if there is one, for each seed."""
        expert_for = scripted_expert(self.environment, self.environment_name) if self.has_script else None

        def wander(seed: int) -> Actor:
            expert = None if expert_for is None else expert_for(seed, noise=self.noise)
            return Actor("play", WanderingPolicy(self.spec, seed, expert))

        return wander

    @property
    def is_disturbed(self) -> bool:
        """True if the family medium is an expert with random actions, because there is no run but an expert."""
        return self.run is None and bool(self.expert_name)

    @cached_property
    def medium_actor(self) -> Callable[[int], Actor]:
        """Function from a seed to the actor of the family "medium".

        The actor is the run's policy at the medium step, or the expert disturbed by random actions.
        """
        if self.is_disturbed:
            return self._disturbed(self.disturbed.share)
        return actor(f"{self.training.path}{AT}{self.medium.step}", self.environment, self)

    @cached_property
    def disturbed(self) -> Disturbed:
        """The expert with the share of random actions whose mean return is nearest to the threshold of medium.

        Raises InvalidSetting if the expert is not better than random actions.
        """
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
        """Return the mean return a third of the way from random to expert.

        Raises InvalidSetting if the expert is not better.
        """
        random, expert = (self.scores[role]["return"] for role in ("random", "expert"))
        if expert <= random:
            raise InvalidSetting("The expert is no better than chance.", got=f"{expert:.6g}", allowed=f"above {random:.6g}")
        return float(random + SHARE * (expert - random))

    @cached_property
    def medium(self) -> Medium:
        """The first evaluated policy of the run that reached the threshold of medium.

        Raises InvalidSetting if there is none, or if the expert is not better than random actions.
        """
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
        """Reference scores that normalise returns: "random" of random actions, and "expert" if there is an expert."""
        named = {"random": self.random} | ({"expert": self.expert} if self.run or self.expert_name or self.has_script else {})
        return {role: reference.score(choose, self.environment, self._remembered) for role, choose in named.items()}

    @property
    def _remembered(self) -> Path | None:
        """File that keeps reference scores: in the run, or for a published agent in the user's cache; None for neither."""
        if self.run is not None:
            return self.run.path / reference.FILE
        if not self.expert_name.startswith(ZOO):
            return None
        of = [self.environment_name, self.arguments, self.spec.fingerprint, self.expert(0).name, circumstances()["packages"]]
        digest = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        return user_cache() / "references" / f"{digest[:32]}.json"

    @property
    def training(self) -> Run:
        """The training run that plays in the family's datasets; raises InvalidSetting if the command names none."""
        if self.run is None:
            raise InvalidSetting(
                "This family needs a run.", got="no --run", fix="name one that was trained in this environment"
            )
        return self.run

    @property
    def has_training_episodes(self) -> bool:
        """True if there is a run and it kept its training episodes."""
        return self.run is not None and (self.run.path / FOLDER / DESCRIPTION).exists()

    @property
    def training_episodes(self) -> Dataset:
        """Dataset of the run's training episodes; raises InvalidSetting if it kept none."""
        if not self.has_training_episodes:
            raise InvalidSetting(
                f"The run {self.training.path.name} kept no episodes.",
                got=f"no {FOLDER}/{DESCRIPTION} in it",
                fix="train one with --record-episodes",
            )
        return Dataset(self.training.path / FOLDER)

    @property
    def card(self) -> dict[str, Any]:
        """Entries about the origin of the episodes, for the card of the dataset."""
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
