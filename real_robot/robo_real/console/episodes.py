"""Episode statistics of the page, and the protocol of an episode store."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from robo_rl.rollout.episode import Rollout
from robo_rl.types import ActionSource, Transition

RECENT = 20
"""episodes of the success rate"""


class Store(Protocol):
    """Store of episodes."""

    def begin(self, rollout: Rollout) -> None:
        """Open a new episode."""

    def step(self, transition: Transition) -> None:
        """Append a step."""

    def end(self, rollout: Rollout | None) -> object:
        """Close the episode; None discards it."""


@dataclass
class Tally:
    """Episode statistics for the page."""

    state: str = "waiting"
    """waiting or running"""
    doing: str = ""
    """purpose of the episodes, "" without a training"""
    alone: str = "The policy acts"
    """headline while the person does not act"""
    message: str = ""
    """end of the last episode, or obstacle to the next"""
    device: str = ""
    """newest message about the devices beside the page"""
    steps: int = 0
    episode_return: float = 0.0
    human_steps: int = 0
    episodes: int = 0
    """number of kept episodes"""
    human: int = 0
    total: int = 0
    """steps of all episodes: by the person, and in all"""
    has_policy: bool = True
    """False if the arm holds still while the operator does not drive it"""
    time_left: float | None = None
    """[s] until the time limit of the episode, None without one"""
    acts: str = ""
    """source of the newest action"""
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON; rates are None before the first step or episode."""
        rate = self.human / self.total if self.total else None
        success = sum(self.recent) / len(self.recent) if self.recent else None
        return asdict(self) | {"recent": len(self.recent), "intervention_rate": rate, "success_rate": success}

    def begin(self) -> None:
        """Start the counts of an episode."""
        self.state, self.message, self.steps, self.episode_return, self.human_steps = "running", "", 0, 0.0, 0

    def count(self, source: ActionSource, reward: float) -> None:
        """Count a step."""
        is_human = source is ActionSource.HUMAN
        self.acts = source.name.lower()
        self.steps, self.total = self.steps + 1, self.total + 1
        self.human_steps, self.human = self.human_steps + is_human, self.human + is_human
        self.episode_return += reward
