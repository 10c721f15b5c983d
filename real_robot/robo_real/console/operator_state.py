"""State of the operator: session, present command, start requests, labels, and loss of contact.

A session is a page of the console, or a device with which the operator drives. One session is the operator. Devices beside the
operator's page may command, start and label as well.

If contact with the operator is lost within an episode, the policy does not act again in this episode: the arm holds, and after
STOP_AFTER it is stopped. Only a new press of the dead-man switch ends the loss, and this press starts an intervention.

A dead-man switch commands only after it was seen released and then pressed. A session that has just connected must release it
first. So must every session after a stop, and after a silence of page, network, this process or the person. Until then a switch
that is held makes the arm hold.
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
"""[s] without a message that counts as a loss of contact while the operator commands; the page sends 20 messages a second"""
WATCH_SILENCE = 2.5
"""[s] without a message that counts as a loss while the policy acts; browsers slow a background page to one message a second"""
ASLEEP = 0.5
"""[s] without a turn of this process's threads that counts as a loss, since nobody could have stopped the arm meanwhile"""
STOP_AFTER = 1.0
"""[s] from the loss of contact to the stop of the arm"""
LABELS = ("success", "failure", "discard")
"""labels with which the operator may end an episode"""


class DecisionKind(StrEnum):
    """Who controls the arm in this control period: the policy, the operator, nobody (hold), or nobody until re-armed (stop)."""

    POLICY = "policy"
    PERSON = "person"
    HOLD = "hold"
    STOP = "stop"


@dataclass(frozen=True)
class Decision:
    """Who controls the arm in one control period, and the operator's action."""

    kind: DecisionKind
    action: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    """(A,) action in [-1, 1] if the operator commands, else empty"""
    moves_gripper: bool = True
    """True if the action may move the gripper; False while the session has not yet seen the gripper of this episode."""


@dataclass
class Hand:
    """Newest message of one session: its dead-man switch and its action."""

    held: bool = False
    """True while the dead-man switch is held"""
    was_released: bool = False
    """True if the switch was seen released since the session connected, and since the newest loss or stop"""
    action: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    """(A,) action in [-1, 1]; empty before the first message"""
    action_of: int | None = None
    """Number of the episode in which the session saw the gripper's state; None before the first."""
    heard: float = -np.inf
    """[s] time of the newest message"""


class OperatorState:
    """What the operator wants, as the sessions report it. Sessions write this state, the control loop reads it. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._operator: object | None = None
        self._stopped = self._starts = self._runs = self._follows = False
        self._hands: dict[object, Hand] = {}  # session -> hand: of the operator, and of devices beside the page
        self._lost_at: float | None = None
        self._released_after = -np.inf  # [s] what a page says without knowledge of this time is no release
        self._turn = clock()  # [s] when a thread of this process last had its turn
        self._label = ""
        self._stopper = self._loss = ""  # origin of the stop, and reason of the loss
        self.episode = 0
        """number of episodes that were started"""
        self.stops = 0
        """number of stop requests"""
        self.stop_sent = -np.inf
        """[s] time at which the robot answered the newest stop; inf until then, -inf before the first stop"""

    # written by connections

    def acquire(self, session: object) -> bool:
        """Make a session the operator, unless another session is. Return whether this session is the operator now."""
        with self._changed:
            if self._operator is None:
                self._operator = session
                self._hands[session] = Hand(heard=self._clock())
            return self._operator is session

    def attach(self, device: object) -> None:
        """Add a device, which may command, start and label beside the operator's page."""
        with self._changed:
            self._hands[device] = Hand()

    def release(self, session: object, why: str = "the operator's page was closed, or its connection broke") -> None:
        """Remove a session that has ended. Within an episode this is a loss of contact if the session was the operator.

        Args:
            session: The session.
            why: Reason of the loss, in words.
        """
        with self._changed:
            self._hands.pop(session, None)
            if self._operator is session:
                self._lose(why)
                self._operator = None

    def update(self, session: object, held: bool, action: Array, episode: int | None = None, seen: float | None = None) -> None:
        """Set the dead-man switch and the action of a session.

        Args:
            session: The session; one that is not known is ignored.
            held: True while the dead-man switch is held.
            action: (A,) Action in [-1, 1].
            episode: Number of the episode whose gripper the session has seen. In another episode the action leaves the
                gripper as it is.
            seen: [s] Time at which the newest report that the page knows was sent to it; None for a device, which gets none.
        """
        with self._changed:
            if (hand := self._hands.get(session)) is None:
                return
            self._notice_silence()
            now = self._clock()
            is_release = not held and (now if seen is None else seen) >= self._released_after
            hand = Hand(held, hand.was_released or is_release, action, episode, now)
            self._hands[session] = hand
            if held and hand.was_released and self._operator is not None and not self._silence():
                self._lost_at = None

    def awake(self) -> None:
        """Note that a thread of this process runs; called at least ten times a second while a page is open."""
        with self._changed:
            self._notice_silence()

    def lose(self, session: object, why: str = "the operator's page lost its keys while they were held") -> None:
        """Note that a session lost its keys or its device. Within an episode this is a loss if the dead-man switch was held.

        Args:
            session: The session.
            why: Reason of the loss, in words.
        """
        with self._changed:
            hand = self._hands.get(session)
            if hand is not None and hand.held:
                hand.held = False
                self._lose(why)

    def stop(self, session: object = None) -> str:
        """Forbid all motion until the operator re-arms. Every session may do this. Return the origin of the stop, in words."""
        with self._changed:
            is_operator = session is None or session in self._hands
            self._stopper = "the operator at the console" if is_operator else "a second page of the console"
            self._stopped, self._starts, self._follows = True, False, False
            self._require_press()
            self.stops += 1
            self.stop_sent = np.inf
            return self._stopper

    def confirm_stop(self) -> None:
        """Note that the robot has answered a stop, or cannot be reached."""
        self.stop_sent = self._clock()

    def rearm(self, session: object, stops: int) -> None:
        """Clear the stop, at the request of the operator.

        Args:
            session: The operator's page, or a device of theirs; others clear nothing.
            stops: Value of `stops` when the operator looked at the robot. A stop since then stays.
        """
        with self._changed:
            self._stopped = self._stopped and (not self._is_of_operator(session) or stops != self.stops)

    def start(self, session: object) -> None:
        """Request the start of an episode; ignored during an episode, after a stop, and from others than the operator."""
        with self._changed:
            if self._is_of_operator(session) and not self._runs and not self._stopped:
                self._starts = True
                self._changed.notify_all()

    def set_autostart(self, session: object, follows: bool) -> None:
        """Set whether the next episodes start without a request; a stop or a loss of contact ends this."""
        with self._changed:
            self._follows = follows and self._operator is session and not self._stopped
            self._changed.notify_all()

    def label(self, session: object, label: str) -> None:
        """End the running episode with one of LABELS; ignored between episodes and from others than the operator."""
        with self._changed:
            if self._is_of_operator(session) and self._runs:
                self._label = label

    # read by the control loop

    def wait_for_start(self, timeout: float) -> bool:
        """Wait for a start request for at most `timeout` [s], and clear it. Return whether an episode starts."""
        with self._changed:
            starts = self._changed.wait_for(lambda: self._starts or (self._follows and not self._silence()), timeout)
            self._starts = False
            return starts

    def begin(self) -> None:
        """Begin an episode, with the next number. If there is no operator, contact counts as lost from the start."""
        with self._changed:
            self._runs, self._label, self._lost_at = True, "", None
            self._turn = self._clock()
            self.episode += 1
            if (operator := self._hands.get(self._operator)) is not None:
                operator.heard = self._clock()
            else:
                self._lose("there was no operator at the console")

    def end(self) -> None:
        """End the running episode, and drop a start request that came during it."""
        with self._changed:
            self._runs, self._lost_at, self._starts = False, None, False  # a double press starts one episode

    def decision(self) -> Decision:
        """Return who acts in the present control period: policy, person or nobody; or that the episode must stop."""
        with self._changed:
            self._notice_silence()
            if self._stopped or (self._lost_at is not None and self._clock() - self._lost_at > STOP_AFTER):
                return Decision(DecisionKind.STOP)
            if self._lost_at is not None:
                return Decision(DecisionKind.HOLD)
            held = [hand for hand in self._hands.values() if hand.held]
            if not held:
                return Decision(DecisionKind.POLICY)
            pressed = next((hand for hand in held if hand.was_released), None)
            if pressed is None:
                return Decision(DecisionKind.HOLD)
            return Decision(DecisionKind.PERSON, pressed.action, pressed.action_of == self.episode)

    def pop_label(self) -> str:
        """Return and clear the newest label, "" for none."""
        with self._changed:
            label, self._label = self._label, ""
            return label

    @property
    def stopper(self) -> str:
        """Origin of the present stop, in words; after a loss of contact its reason."""
        with self._changed:
            return self._stopper if self._stopped else f"the console: {self._loss}"

    @property
    def is_lost(self) -> bool:
        """True if contact was lost in the running episode, and no new press of the dead-man switch has ended the loss."""
        with self._changed:
            self._notice_silence()
            return self._lost_at is not None

    @property
    def has_operator(self) -> bool:
        """True if any session has the role of the operator."""
        return self._operator is not None

    def is_operator(self, session: object) -> bool:
        """Return whether this session has the role of the operator."""
        return self._operator is session

    @property
    def autostarts(self) -> bool:
        """True if the next episode starts without a request."""
        return self._follows

    def _is_of_operator(self, session: object) -> bool:
        """Return whether a session has the role of the operator, or is a device beside the operator's page."""
        return self._operator is not None and session in self._hands

    def _silence(self) -> float:
        """Return the limit [s], HELD_SILENCE or WATCH_SILENCE, that the silence of a session exceeds; 0 if no limit is."""
        now = self._clock()
        if any(hand.held and now - hand.heard > HELD_SILENCE for hand in self._hands.values()):
            return HELD_SILENCE
        operator = self._hands.get(self._operator)
        return WATCH_SILENCE if operator is None or now - operator.heard > WATCH_SILENCE else 0.0

    def _notice_silence(self) -> None:
        slept, self._turn = self._clock() - self._turn, self._clock()
        if slept > ASLEEP:
            self._lose(f"the console's own process was asleep for {slept:.1f} s")
        elif limit := self._silence():
            self._lose(f"nothing came from the operator's page for {limit:g} s")

    def _lose(self, why: str) -> None:
        self._follows = False
        self._require_press()
        if self._runs and self._lost_at is None:
            self._lost_at, self._loss = self._clock(), why

    def _require_press(self) -> None:
        """Require of every dead-man switch a release, by a page that knows a report from now on, and a press."""
        self._released_after = self._clock()
        for hand in self._hands.values():
            hand.was_released = False
