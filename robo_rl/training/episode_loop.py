"""Base class of training loops that act and learn in one environment, episode by episode; a learner implements the hooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import gymnasium

from robo_rl.protocols.components import Policy, TrainingObserver
from robo_rl.rollout.episode import Rollout
from robo_rl.spec.environment import Observation, specification
from robo_rl.training.episode_reports import Progress
from robo_rl.training.step_sources import episode_seed
from robo_rl.types import Episode, Metrics, StateDict, Transition


class EpisodeLoop(Progress, ABC):
    """Training loop that plays episodes until `steps` environment steps are taken; subclasses choose policies and learn.

    The last episode is cut and not reported. A resume begins a new episode.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], *, steps: int, seed: int) -> None:
        super().__init__(steps=steps)
        self.environment, self.seed = environment, seed
        self.environment_spec = specification(environment)

    @abstractmethod
    def choose(self) -> Policy:
        """Return the policy of the next episode."""

    @abstractmethod
    def begin(self, observation: Observation) -> None:
        """Receive the first observation of an episode."""

    @abstractmethod
    def see(self, transition: Transition) -> Metrics:
        """Receive an executed step and learn; return metrics for the log, empty if none are due."""

    def finish(self, episode: Episode) -> Metrics:
        """Receive an ended episode; return metrics for the log."""
        return {}

    def run(self, observer: TrainingObserver) -> None:
        """Train from the present step to the last step."""
        self.stopwatch.start()
        while self.step < self.steps:
            self._play(observer)

    def _play(self, observer: TrainingObserver) -> None:
        rollout = Rollout(self.environment, self.choose(), seed=episode_seed(self.seed, self.episodes))
        self.begin(rollout.observation)
        while not rollout.done and self.step < self.steps:
            transition = self.stopwatch.time("simulate", rollout.step)
            self.step += 1
            if metrics := self.see(transition):
                observer.on_metrics(self.step, metrics)
            if not rollout.done:
                observer.on_step(self.step, self)
        if rollout.done:
            episode = rollout.episode()
            self.reports.report(observer, self.step, episode)
            observer.on_metrics(self.step, self.finish(episode))
            observer.on_step(self.step, self)

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy being trained."""

    @abstractmethod
    def state_dict(self) -> StateDict:
        """Return everything that a resumed training needs, including `counters`."""

    @abstractmethod
    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state returned by `state_dict`."""
