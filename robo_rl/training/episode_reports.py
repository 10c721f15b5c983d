"""Reports of ended episodes to the observer of a training, and counters that all training loops share."""

from __future__ import annotations

from dataclasses import fields

from typing_extensions import override

from robo_rl.errors import SimulationFailed
from robo_rl.protocols.components import Stateful, TrainingObserver
from robo_rl.rollout.vector import EndedEpisode
from robo_rl.stopwatch import Stopwatch
from robo_rl.types import DIVERGED, Episode, StateDict

MOST_DIVERGED = 10  # episodes among the first hundred, later one in ten: beyond that the model or the policy is at fault


def report_episode(observer: TrainingObserver, step: int, episode: Episode) -> None:
    """Report an episode that ended at environment step `step`."""
    observer.on_episode(
        step,
        episode_return=episode.undiscounted_return,
        length=len(episode),
        success=episode.success,
        stop_reason=episode.stop_reason,
        episode=episode,
    )


class EpisodeReports(Stateful):
    """Reports and counts the episodes of a training loop, and stops the training if too many episodes diverge.

    The limit is 10 diverged episodes in the first hundred, later one in ten.
    """

    def __init__(self, episodes: int = 0) -> None:
        """Start with `episodes` episodes that were reported before."""
        self.episodes = episodes
        """Number of reported episodes."""
        self.diverged = 0
        """Number of these in which the simulation diverged."""

    def report(self, observer: TrainingObserver, step: int, episode: Episode) -> None:
        """Report an episode that ended at environment step `step`; raises SimulationFailed if too many episodes diverged."""
        report_episode(observer, step, episode)
        self._count(episode.stop_reason, step)

    def report_ended(self, observer: TrainingObserver, step: int, ended: EndedEpisode, environments: int) -> None:
        """Report an episode that ended in a vector environment; raises SimulationFailed if too many episodes diverged.

        Args:
            observer: Observer of the training.
            step: Environment steps so far.
            ended: Summary of the episode.
            environments: Number of environments, which is only passed on to the observer.
        """
        figures = {item.name: getattr(ended, item.name) for item in fields(ended) if item.name != "place"}
        observer.on_episode(step, **figures, place=(ended.place, environments))
        self._count(ended.stop_reason, step)

    def _count(self, stop_reason: str, step: int) -> None:
        self.episodes += 1
        self.diverged += stop_reason == DIVERGED
        if self.diverged > max(MOST_DIVERGED, self.episodes // 10):
            raise SimulationFailed(
                f"The simulation diverged in {self.diverged} of {self.episodes} episodes, the last at step {step}.",
                allowed=f"at most {MOST_DIVERGED}, or one in ten",
                fix="look at the model's time step and actuator limits, and at the actions of the policy",
            )

    @override
    def state_dict(self) -> StateDict:
        return {"episodes": self.episodes, "diverged": self.diverged}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.episodes, self.diverged = int(state["episodes"]), int(state["diverged"])


class Progress:
    """Base class of training loops that counts steps, episodes and time."""

    def __init__(self, *, steps: int = 0) -> None:
        """Start at step 0.

        steps: environment steps of the whole training.
        """
        self.steps = steps
        self.step = 0
        """Environment steps so far, over all environments."""
        self.reports = EpisodeReports()
        self.resumed: str | None = None
        """How the training was resumed, "exact" or "warm"; None if it was not."""
        self.stopwatch = Stopwatch()

    @property
    def episodes(self) -> int:
        """Number of episodes that have ended so far."""
        return self.reports.episodes

    def counters(self) -> StateDict:
        """Return the state of the counters: steps so far, reports and elapsed time."""
        return {"step": self.step, "reports": self.reports.state_dict(), "seconds": self.stopwatch.state_dict()}

    def load_counters(self, state: StateDict) -> None:
        """Restore the counters, and set `resumed` to "warm"; a training that resumes exactly changes this."""
        self.step = int(state["step"])
        self.reports.load_state_dict(state["reports"])
        self.stopwatch.load_state_dict(state["seconds"])
        self.resumed = "warm"
