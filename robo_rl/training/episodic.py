"""Training from whole episodes: play some, learn from all of them, and forget them. A resume begins with new episodes."""

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
    """Learner that updates its policy with whole episodes that the policy has played."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    def standardise(self, episodes: Sequence[Episode]) -> None:
        """Update the mean and deviation that standardise the input with the observations of new episodes."""

    def prepare(self, demonstrations: Sequence[Episode]) -> Metrics:
        """Learn from recorded episodes, before the first episode of the training; returns metrics for the log."""

    def learn(self, episodes: Sequence[Episode]) -> Metrics:
        """Update the policy with the newest episodes; returns metrics for the log, with names under train/.

        episodes: all since the last update; those of a group, which begin in the same state, follow each other.
        """


class Player(Protocol):
    """Plays the episodes of a training."""

    def play(self, number: int) -> Episode:
        """Play and return one episode; number: that of the episode in the training, from 0."""


class EpisodicSettings(Protocol):
    """Settings of a learner, as this training loop needs them."""

    @property
    def episodes(self) -> int:
        """Episodes between two updates."""

    def build(self, spec: EnvironmentSpec, seed: int) -> EpisodeLearner:
        """Return a fresh learner."""

    def player(self, environment: Environment, learner: Any, seed: int) -> Player:
        """Return the player of the training episodes; learner: what `build` returned."""


class Plays:
    """Plays episodes with a policy. `group` episodes in a row have the same seed, and so begin in the same state."""

    def __init__(self, environment: Environment, policy: Policy, seed: int, group: int) -> None:
        self.environment, self.policy, self.seed, self.group = environment, policy, seed, group

    def play(self, number: int) -> Episode:
        """Play and return one episode; number: that of the episode, from 0."""
        return rollout(self.environment, self.policy, seed=episode_seed(self.seed, number // self.group))


class EpisodicTraining(Progress):
    """Training loop that plays `episodes` episodes, learns from them, and repeats this.

    It ends when the steps that are left may be too few for as many episodes of full length.
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
        """Train from the present step on."""
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
        """Return the learner and the counters."""
        counters = self.counters() | {"lasting": lasting_state(self.environment)}
        return {"learner": self.learner.state_dict(), "training": counters}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
        training = state["training"]
        self.learner.load_state_dict(state["learner"])
        self.load_counters(training)
        load_lasting_state(self.environment, training["lasting"])
