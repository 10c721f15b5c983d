"""The operator's desk: who sits at it, what they want of the arm now, and what follows when nothing is heard of them.

Once the person was lost within an episode, the policy does not act again in it: the arm holds, then it is stopped. Only a hand
that is seen on the dead-man switch again ends the loss, and only into an intervention.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from robo_rl.types import Array

HELD_SILENCE = 0.25
"""[s] without a word while the person commands, after which they are lost; the page speaks 20 times a second"""
WATCH_SILENCE = 2.5
"""[s] without a word while the policy acts; above the 1 s to which browsers slow a page in the background"""
STOP_AFTER = 1.0
"""[s] from the loss of a person to the stop"""
LABELS = ("success", "failure", "discard")


class Want(StrEnum):
    """Decision about the arm in this control period."""

    POLICY = "policy"
    PERSON = "person"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True)
class Wish:
    """Present decision."""

    want: Want
    action: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    """(A,) in [-1, 1], where the person commands"""
    moves_fingers: bool = True
    """False if the page did not know the fingers of this episode yet: they stay"""


class Desk:
    """One operator at a time; told from the threads of connections, asked from that of the control loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._operator: object | None = None
        self._held = self._stopped = self._starts = self._runs = self._follows = False
        self._action: Array = np.zeros(0, np.float32)
        self._action_of: int | None = None  # episode whose fingers the page knew
        self._heard = -np.inf
        self._lost_at: float | None = None
        self._label = ""
        self._stopper = self._loss = ""  # who stopped the arm, and why the operator is lost
        self.episode = 0
        """Episodes begun so far."""
        self.stops = 0
        """Stop requests so far."""
        self.stop_sent = -np.inf
        """[s] when the robot's answer to the newest stop came; infinite while it is awaited"""

    # told by connections

    def sit(self, session: object) -> bool:
        """Returns whether this session is the operator now; it is not where another is."""
        with self._changed:
            if self._operator is None:
                self._operator, self._held, self._heard = session, False, self._clock()
            return self._operator is session

    def rise(self, session: object) -> None:
        """The session has ended, for whatever reason; within an episode that is a loss."""
        with self._changed:
            if self._operator is session:
                self._lose("the operator's page was closed, or its connection broke")
                self._operator, self._held = None, False

    def hear(self, session: object, held: bool, action: Array, episode: int | None = None) -> None:
        """The operator's hand is on the dead-man switch, or not, and commands an action.

        episode: that whose fingers the page has seen; an action of another one moves no fingers.
        """
        with self._changed:
            if self._operator is not session:
                return
            self._notice_silence()
            self._held, self._action, self._heard = held, action, self._clock()
            self._action_of = episode
            if held:
                self._lost_at = None

    def lose(self, session: object) -> None:
        """The page lost its keys: somebody let go, or another window has them; nobody knows."""
        with self._changed:
            if self._operator is session and self._held:
                self._lose("the operator's page lost its keys while they were held")

    def stop(self, session: object = None) -> str:
        """Forbid all motion until the operator re-arms; any session may. Return who stops it, in words."""
        with self._changed:
            is_operator = session is None or session is self._operator
            self._stopper = "the operator at the console" if is_operator else "a second page of the console"
            self._stopped, self._starts, self._follows = True, False, False
            self.stops += 1
            self.stop_sent = np.inf
            return self._stopper

    def stop_arrived(self) -> None:
        """The robot has answered a stop, or cannot be reached."""
        self.stop_sent = self._clock()

    def rearm(self, session: object, stops: int) -> None:
        """The operator has looked, when there had been so many stops: a later one stays."""
        with self._changed:
            self._stopped = self._stopped and (self._operator is not session or stops != self.stops)

    def start(self, session: object) -> None:
        """The operator wants an episode to begin."""
        with self._changed:
            self._starts = self._operator is session and not self._runs and not self._stopped
            self._changed.notify_all()

    def follow(self, session: object, follows: bool) -> None:
        """The operator wants each episode to follow the one before by itself, or not any more; a stop or a loss ends it."""
        with self._changed:
            self._follows = follows and self._operator is session and not self._stopped
            self._changed.notify_all()

    def label(self, session: object, label: str) -> None:
        """The operator ends the episode under way with one of LABELS."""
        with self._changed:
            if self._operator is session and self._runs:
                self._label = label

    # asked by the control loop

    def wait_for_start(self, timeout: float) -> bool:
        """Returns whether an episode is to begin, once for each wish."""
        with self._changed:
            starts = self._changed.wait_for(lambda: self._starts or (self._follows and not self._is_silent), timeout)
            self._starts = False
            return starts

    def begin(self) -> None:
        """An episode begins; without an operator it begins with a loss."""
        with self._changed:
            self._runs, self._label, self._lost_at = True, "", None
            self.episode += 1
            self._heard = self._clock()
            if self._operator is None:
                self._lose("nobody was at the console")

    def end(self) -> None:
        """The episode is over."""
        with self._changed:
            self._runs, self._lost_at, self._starts = False, None, False  # a start that was pressed twice begins one episode

    def wish(self) -> Wish:
        """Returns what is to become of the arm now."""
        with self._changed:
            self._notice_silence()
            if self._stopped or (self._lost_at is not None and self._clock() - self._lost_at > STOP_AFTER):
                return Wish(Want.STOP)
            if self._lost_at is not None:
                return Wish(Want.HOLD)
            if not self._held:
                return Wish(Want.POLICY)
            return Wish(Want.PERSON, self._action, self._action_of == self.episode)

    def take_label(self) -> str:
        """Returns the label that was given since the last question, "" for none."""
        with self._changed:
            label, self._label = self._label, ""
            return label

    @property
    def stopper(self) -> str:
        """Present stop: origin and reason, in words."""
        with self._changed:
            return self._stopper if self._stopped else f"the console: {self._loss}"

    @property
    def is_lost(self) -> bool:
        """True if the person was lost in the running episode and has not come back."""
        with self._changed:
            self._notice_silence()
            return self._lost_at is not None

    @property
    def is_taken(self) -> bool:
        """True if a person holds the console."""
        return self._operator is not None

    def is_operator(self, session: object) -> bool:
        """Returns whether it is this session."""
        return self._operator is session

    @property
    def follows(self) -> bool:
        """True if the next episode begins by itself."""
        return self._follows

    @property
    def _is_silent(self) -> bool:
        return self._clock() - self._heard > (HELD_SILENCE if self._held else WATCH_SILENCE)

    def _notice_silence(self) -> None:
        if self._is_silent:
            limit = HELD_SILENCE if self._held else WATCH_SILENCE
            self._lose(f"nothing came from the operator's page for {limit:g} s")

    def _lose(self, why: str) -> None:
        self._follows = False
        if self._runs and self._lost_at is None:
            self._lost_at, self._loss = self._clock(), why
