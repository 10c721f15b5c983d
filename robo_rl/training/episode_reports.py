"""Reports of finished episodes to the observer of a training, and its counters, the same for every loop."""

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
    """Reports of a loop's own episodes, with a limit on those that diverge."""

    def __init__(self, episodes: int = 0) -> None:
        """episodes: those before the first one."""
        self.episodes = episodes
        """Reported episodes."""
        self.diverged = 0
        """Of these, those that diverged."""

    def report(self, observer: TrainingObserver, step: int, episode: Episode) -> None:
        """Report an episode that ended at environment step `step`; raises SimulationFailed if too many diverged."""
        report_episode(observer, step, episode)
        self._count(episode.stop_reason, step)

    def report_ended(self, observer: TrainingObserver, step: int, ended: EndedEpisode, environments: int) -> None:
        """Report an episode that ended in one of several environments; raises SimulationFailed if too many diverged."""
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
    """Counters of a training that reports its own episodes."""

    def __init__(self, *, steps: int = 0) -> None:
        """steps: environment steps of the whole training."""
        self.steps = steps
        self.step = 0
        """Environment steps so far, over all environments."""
        self.reports = EpisodeReports()
        self.resumed: str | None = None
        """"exact" or "warm" after `load_counters`."""
        self.stopwatch = Stopwatch()

    @property
    def episodes(self) -> int:
        """Finished episodes so far."""
        return self.reports.episodes

    def counters(self) -> StateDict:
        """Return the part of the state that every such training has."""
        return {"step": self.step, "reports": self.reports.state_dict(), "seconds": self.stopwatch.state_dict()}

    def load_counters(self, state: StateDict) -> None:
        """Restore the state returned by `counters`; the resume is warm unless its training knows better."""
        self.step = int(state["step"])
        self.reports.load_state_dict(state["reports"])
        self.stopwatch.load_state_dict(state["seconds"])
        self.resumed = "warm"
