"""Plays one episode after the other, each when the operator asks for it, and keeps the count that the page shows."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from typing_extensions import override

from robo_real.console.desk import Desk
from robo_real.console.labels import LabelledByPerson
from robo_rl.errors import RobotError
from robo_rl.human import PersonInTheLoop
from robo_rl.protocols import Policy
from robo_rl.rollout import Rollout
from robo_rl.types import ActionSource, Transition

LOOK = 0.1
"""[s] between two looks whether the console is to end"""
RECENT = 20
"""episodes of the success rate"""


class Store(Protocol):
    """Where episodes are kept."""

    def begin(self, rollout: Rollout) -> None:
        """An episode began."""

    def step(self, transition: Transition) -> None:
        """It went on."""

    def end(self, rollout: Rollout | None) -> None:
        """It is over; None where it is not to be kept."""


class KeepNothing(Store):
    """A store for looking only."""

    @override
    def begin(self, rollout: Rollout) -> None:
        """Keeps nothing."""

    @override
    def step(self, transition: Transition) -> None:
        """Keeps nothing."""

    @override
    def end(self, rollout: Rollout | None) -> None:
        """Keeps nothing."""


@dataclass
class Tally:
    """What the page says about the episodes."""

    state: str = "waiting"
    """waiting or running"""
    doing: str = ""
    """what the episodes are for, where they are of a training"""
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


class Episodes:
    """Runs in the thread that calls it."""

    def __init__(
        self, environment: LabelledByPerson, policy: Policy, takeover: PersonInTheLoop, desk: Desk, tally: Tally
    ) -> None:
        self._environment, self._policy, self._takeover = environment, policy, takeover
        self._desk = desk
        self.store: Store = KeepNothing()
        """Where episodes go from the next one on."""
        self.tally = tally
        self._done = False

    def run(self, seed: int) -> None:
        """Plays until `close`; seed: of the first episode, the others follow."""
        while not self._done:
            if self._desk.wait_for_start(LOOK):
                self._try(seed)
                seed += 1

    def close(self) -> None:
        """Ends `run` after the step under way."""
        self._done = True

    def _try(self, seed: int) -> None:
        try:
            self._play(seed)
        except RobotError as error:
            self.tally.message = " ".join(str(error).split())
        finally:
            self._desk.end()
            self.tally.state, self.tally.acts = "waiting", ""

    def _play(self, seed: int) -> None:
        rollout = Rollout(self._environment, self._policy, seed=seed, supervisor=self._takeover, deterministic=True)
        self.tally.begin()  # not before: a label that is given while the scene is prepared would be lost
        store = self.store
        store.begin(rollout)
        while not rollout.done and not self._done:
            transition = rollout.step()
            store.step(transition)
            self.tally.count(transition.source, transition.reward)
        if not rollout.done:
            rollout.cut("operator")
        is_kept = not self._environment.is_discarded and len(rollout) > 0
        store.end(rollout if is_kept else None)
        if is_kept:
            self.tally.episodes += 1
            self.tally.recent.append(bool(rollout.success))
        self.tally.message = "discarded" if self._environment.is_discarded else f"ended: {rollout.stop_reason}"
