"""Training from whole episodes: play several, learn from all of them, and discard them (as GRPO does).

A resume begins with new episodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import gymnasium

from robo_rl.environments.lasting import lasting_state, load_lasting_state
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy, Stateful, TrainingObserver
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.training.episode_reports import Progress
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import DIVERGED, Episode, Metrics, StateDict

Environment = gymnasium.Env[Any, Any]


class EpisodeLearner(Stateful, Protocol):
    """Interface of a learner that updates its policy from whole episodes played with that policy."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Add the observations of new episodes to the mean and deviation by which the input is standardised."""

    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        """Learn from recorded episodes before the training plays its first episode; return metrics for the log."""

    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        """Update the policy from all episodes since the last update; return metrics for the log, with names under train/.

        episodes: those of a group, which begin in the same state, are adjacent.
        """


class Player(Protocol):
    """Interface of what plays the episodes of a training."""

    def play(self, number: int) -> Episode:
        """Play episode `number` of the training, counted from 0, and return it."""


class EpisodicSettings(Protocol):
    """Interface of settings of a learner that EpisodicTraining can train."""

    @property
    def episodes(self) -> int:
        """Episodes that are played between two updates."""

    def build(self, spec: EnvironmentSpec, seed: int) -> EpisodeLearner:
        """Build an untrained learner for the spec of an environment; its networks are initialised from `seed`."""

    def player(self, environment: Environment, learner: Any, seed: int) -> Player:
        """Return an object that plays the training episodes with `learner`, which `build` returned."""


class Plays:
    """Plays training episodes with a policy; each `group` of consecutive ones has one seed, so begins in the same state."""

    def __init__(self, environment: Environment, policy: Policy, seed: int, group: int) -> None:
        self.environment, self.policy, self.seed, self.group = environment, policy, seed, group

    def play(self, number: int) -> Episode:
        """Play episode `number` of the training, counted from 0, and return it."""
        return rollout(self.environment, self.policy, seed=episode_seed(self.seed, number // self.group))


class EpisodicTraining(Progress):
    """Training loop that plays `config.episodes` episodes, updates the learner from them, and repeats this.

    The loop ends once fewer steps remain than `config.episodes` episodes of full length may take; the remaining steps are not
    used.
    """

    def __init__(
        self,
        environment: Environment,
        config: EpisodicSettings,
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
    ) -> None:
        """Prepare the training; raises InvalidSetting for an environment without a time limit."""
        super().__init__(steps=steps)
        self.environment, self.config, self.seed = environment, config, seed
        spec = specification(environment)
        if spec.max_steps is None:
            raise InvalidSetting(
                f"Episodes of {spec.name} may never end, and are learned from as a whole.",
                got="no time limit",
                fix="set environment.arguments.max_steps",
            )
        self._longest = config.episodes * spec.max_steps
        self.learner = config.build(spec, seed)
        self.player = config.player(environment, self.learner, seed)
        self._demonstrations = demonstrations

    @property
    def policy(self) -> Policy:
        """The policy being trained."""
        return self.learner.policy

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the end."""
        time = self.stopwatch.time
        self.stopwatch.start()
        if not self.episodes and self._demonstrations:
            self.learner.standardise(self._demonstrations)
            observer.on_metrics(self.step, time("update", partial(self.learner.prepare, self._demonstrations)))
        while self.step + self._longest <= self.steps:
            numbers = range(self.episodes, self.episodes + self.config.episodes)
            played = [time("simulate", partial(self.player.play, number)) for number in numbers]
            for each in played:
                self.step += len(each)
                self.reports.report(observer, self.step, each)
            if not any(each.stop_reason == DIVERGED for each in played):  # a group is learned from as a whole
                self.learner.standardise(played)
                observer.on_metrics(self.step, time("update", partial(self.learner.learn, played)))
            observer.on_step(self.step, self)

    def state_dict(self) -> StateDict:
        """Return the state of the learner and the counters."""
        counters = self.counters() | {"lasting": lasting_state(self.environment)}
        return {"learner": self.learner.state_dict(), "training": counters}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        training = state["training"]
        self.learner.load_state_dict(state["learner"])
        self.load_counters(training)
        load_lasting_state(self.environment, training["lasting"])
