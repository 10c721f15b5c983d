"""Episode statistics of the page, and the protocol of an episode store."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from robo_rl.rollout.episode import Rollout
from robo_rl.types import ActionSource, Transition

RECENT = 20
"""number of newest episodes in the success rate"""


class Store(Protocol):
    """Store to which the console writes each step of an episode at once."""

    def begin(self, rollout: Rollout) -> None:
        """Open a new episode."""

    def step(self, transition: Transition) -> None:
        """Append a step to the open episode."""

    def end(self, rollout: Rollout | None) -> object:
        """Close the open episode and keep it; None discards the episode."""


@dataclass
class Tally:
    """State and statistics of the episodes, which the page shows."""

    state: str = "waiting"
    """State of the page: "waiting" for an episode, or "running" one."""
    doing: str = ""
    """purpose of the episodes, such as "training"; "" without a training"""
    alone: str = "The policy acts"
    """headline of the page while the operator does not act"""
    message: str = ""
    """how the last episode ended, or why the next one cannot start"""
    device: str = ""
    """newest message about the operator's devices"""
    steps: int = 0
    """number of steps of the present episode"""
    episode_return: float = 0.0
    """sum of the rewards of the present episode"""
    human_steps: int = 0
    """number of steps of the present episode in which the operator acted"""
    episodes: int = 0
    """number of kept episodes"""
    human: int = 0
    """number of steps of all episodes in which the operator acted"""
    total: int = 0
    """number of steps of all episodes"""
    has_policy: bool = True
    """False if the arm holds still while the operator does not drive it"""
    time_left: float | None = None
    """[s] until the time limit of the episode; None without a time limit"""
    acts: str = ""
    """source of the newest action: policy, human, script or guard; "" between episodes"""
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    """success of the newest kept episodes"""

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as JSON values, with intervention rate and success rate, None before any step or episode."""
        rate = self.human / self.total if self.total else None
        success = sum(self.recent) / len(self.recent) if self.recent else None
        return asdict(self) | {"recent": len(self.recent), "intervention_rate": rate, "success_rate": success}

    def begin(self) -> None:
        """Set the counts of the present episode to zero."""
        self.state, self.message, self.steps, self.episode_return, self.human_steps = "running", "", 0, 0.0, 0

    def count(self, source: ActionSource, reward: float) -> None:
        """Count a step; source: who acted in it. reward: reward of the step."""
        is_human = source is ActionSource.HUMAN
        self.acts = source.name.lower()
        self.steps, self.total = self.steps + 1, self.total + 1
        self.human_steps, self.human = self.human_steps + is_human, self.human + is_human
        self.episode_return += reward
