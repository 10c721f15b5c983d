"""Count of the episodes that the page shows, and where they are kept."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from robo_rl.rollout.episode import Rollout
from robo_rl.types import ActionSource, Transition

RECENT = 20
"""episodes of the success rate"""


class Store(Protocol):
    """Folder of the episodes."""

    def begin(self, rollout: Rollout) -> None:
        """An episode began."""

    def step(self, transition: Transition) -> None:
        """It went on."""

    def end(self, rollout: Rollout | None) -> object:
        """It is over; None if it is not to be kept."""


@dataclass
class Tally:
    """Summary of the episodes for the page."""

    state: str = "waiting"
    """waiting or running"""
    doing: str = ""
    """what the episodes are for if they are of a training"""
    message: str = ""
    """how the last episode ended, or why none could begin"""
    steps: int = 0
    episode_return: float = 0.0
    human_steps: int = 0
    episodes: int = 0
    """that were kept"""
    human: int = 0
    total: int = 0
    """steps of all episodes: by the person, and in all"""
    acts: str = ""
    """who chose the newest action"""
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))

    def to_json(self) -> dict[str, Any]:
        """Returns what the page shows; rates are None before the first step or episode."""
        rate = self.human / self.total if self.total else None
        success = sum(self.recent) / len(self.recent) if self.recent else None
        return asdict(self) | {"recent": len(self.recent), "intervention_rate": rate, "success_rate": success}

    def begin(self) -> None:
        """An episode begins."""
        self.state, self.message, self.steps, self.episode_return, self.human_steps = "running", "", 0, 0.0, 0

    def count(self, source: ActionSource, reward: float) -> None:
        """One step more."""
        is_human = source is ActionSource.HUMAN
        self.acts = source.name.lower()
        self.steps, self.total = self.steps + 1, self.total + 1
        self.human_steps, self.human = self.human_steps + is_human, self.human + is_human
        self.episode_return += reward
