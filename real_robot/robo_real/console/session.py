"""One browser at the console: a thread that hears it, and one that shows it the newest pictures, never older ones.

Pictures are not queued: at most MOST_UNSEEN are under way, and the next is whichever is newest when one was seen.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from robo_real.console.desk import LABELS, Desk
from robo_real.console.episodes import Tally
from robo_real.console.human import Still
from robo_real.console.pictures import Pictures
from robo_rl.errors import RobotError
from robo_rl.spec import ActionSpec
from robo_rl.types import Array

MOST_UNSEEN = 2
"""pictures of one camera, and reports, on their way to a page"""
PATIENCE = 2.0
"""[s] within which a page must show its token"""
MOST_LAG = 0.2
"""[s] from sending a report until the page's words know of it; older words command nothing"""
MOST_GARBAGE = 20
"""messages that make no sense, after which a connection is closed"""
STATUS = 0.1
"""[s] between two reports"""
REPORT = "report"
"""Stands beside the cameras' names: reports wait for a slow page, too."""
PACE = 0.01
"""[s] between two looks for new pictures"""
REFUSED = 4401
"""close code: wrong token or none"""


class Garbage(Exception):
    """A message that makes no sense."""


@dataclass(frozen=True)
class Console:
    """What all browsers share."""

    desk: Desk
    pictures: Pictures
    tally: Tally
    action: ActionSpec
    still: Still
    stop: Callable[[str], None]
    """stops the robot in the name of somebody; raises nothing"""
    rearm: Callable[[int], None]
    """ends the robot's stops that were looked at; raises RobotError"""
    links: Mapping[str, str]
    """pages beside this one: what they show -> address"""


class Session:
    """Serves one connection until it ends."""

    def __init__(self, connection: ServerConnection, console: Console) -> None:
        self._connection, self._console = connection, console
        self._sent: dict[str, dict[int, float]] = {name: {} for name in (*console.pictures.names, REPORT)}
        self._shown: dict[str, int] = {}
        self._latency: float | None = None
        self._garbage = self._reports = 0
        self._report_times: deque[tuple[int, float]] = deque(maxlen=50)
        self._reported_stops: deque[tuple[int, int, int]] = deque(maxlen=100)  # report, stops of the desk, of the robot
        self._rearming: threading.Thread | None = None
        self._works: dict[str, Callable[[dict[str, Any]], None]] = {
            "stop": lambda _: self._stop(),
            "hold": self._hold,
            "lost": lambda _: console.desk.lose(self),
            "sit": lambda _: self._sit(),
            "start": lambda _: console.desk.start(self),
            "follow": self._follow,
            "label": self._label,
            "rearm": self._rearm,
            "seen": self._seen,
        }

    def serve(self, token: str) -> None:
        """Returns when the connection has ended; the seat is free then."""
        if not self._shows(token):
            self._connection.close(REFUSED, "wrong token")
            return
        console = self._console
        self._tell(kind="welcome", cameras=console.pictures.names, names=console.action.names, links=dict(console.links))
        shower = threading.Thread(target=self._show, name="shower", daemon=True)
        shower.start()
        try:
            for message in self._connection:
                self._hear(message)
        except ConnectionClosed:
            pass
        finally:
            console.desk.rise(self)
            with contextlib.suppress(Exception):
                self._connection.close()
            shower.join()

    def _shows(self, token: str) -> bool:
        try:
            told = parsed(self._connection.recv(timeout=PATIENCE))
        except (TimeoutError, Garbage, ConnectionClosed):
            return False
        shown = told.get("token")
        if told.get("kind") != "hello" or not isinstance(shown, str):
            return False
        return hmac.compare_digest(shown.encode(errors="replace"), token.encode())

    # from the page

    def _hear(self, message: str | bytes) -> None:
        try:
            told = parsed(message)
            if told.get("kind") not in self._works:
                raise Garbage(f"kind {told.get('kind')!r}")
            self._works[told["kind"]](told)
        except Garbage as error:
            self._garbage += 1
            self._tell(kind="refused", why=f"This message makes no sense: {error}.")
            if self._garbage >= MOST_GARBAGE:
                self._connection.close(1008, "garbage")

    def _stop(self) -> None:
        desk = self._console.desk
        by = desk.stop(self)
        try:
            self._console.stop(by)
        finally:
            desk.stop_arrived()

    def _hold(self, told: dict[str, Any]) -> None:
        held = told.get("held")
        if not isinstance(held, bool):
            raise Garbage("held is neither true nor false")
        if self._is_old(told.get("answers")):
            return  # as if it had not come: the desk notices the silence
        episode = told.get("episode") if type(told.get("episode")) is int else None
        self._console.desk.hear(self, held, _action(told.get("action"), self._console.action.size), episode)

    def _is_old(self, answers: Any) -> bool:
        """Returns whether a page that speaks of that report should have heard of a later one by now."""
        sent = [when for number, when in self._report_times if isinstance(answers, int) and number > answers]
        return bool(sent) and time.monotonic() - sent[0] > MOST_LAG

    def _sit(self) -> None:
        if not self._console.desk.sit(self):
            self._tell(kind="refused", why="Another operator is at the desk.")

    def _follow(self, told: dict[str, Any]) -> None:
        if not isinstance(told.get("follows"), bool):
            raise Garbage("follows is neither true nor false")
        self._console.desk.follow(self, told["follows"])

    def _label(self, told: dict[str, Any]) -> None:
        if told.get("label") not in LABELS:
            raise Garbage(f"label {told.get('label')!r}")
        self._console.desk.label(self, told["label"])

    def _rearm(self, told: dict[str, Any]) -> None:
        found = [stops for number, *stops in self._reported_stops if number == told.get("number")]
        if not found:
            raise Garbage("a re-arming names the report that was looked at")
        if not self._console.desk.is_operator(self):
            self._tell(kind="refused", why="Only the operator re-arms.")
        elif self._rearming is None or not self._rearming.is_alive():
            self._rearming = threading.Thread(target=self._ask_to_rearm, args=tuple(found[0]), daemon=True)
            self._rearming.start()

    def _ask_to_rearm(self, of_desk: int, of_robot: int) -> None:
        """In a thread of its own: a robot may take seconds for it, and a stop must be heard meanwhile."""
        try:
            self._console.rearm(of_robot)
            self._console.desk.rearm(self, of_desk)
        except RobotError as error:
            self._tell(kind="refused", why=" ".join(str(error).split()))

    def _seen(self, told: dict[str, Any]) -> None:
        camera, number = told.get("camera"), told.get("number")
        if not isinstance(camera, str) or camera not in self._sent or not isinstance(number, int):
            raise Garbage("no such picture")
        sent = self._sent[camera].pop(number, None)
        if sent is not None:
            self._latency = time.monotonic() - sent

    # to the page

    def _show(self) -> None:
        reported = 0.0
        with contextlib.suppress(ConnectionClosed, OSError):
            while self._connection.close_code is None:
                for index, name in enumerate(self._console.pictures.names):
                    self._send_newest(index, name)
                if time.monotonic() - reported >= STATUS and len(self._sent[REPORT]) < MOST_UNSEEN:
                    reported = time.monotonic()
                    self._report(reported)
                time.sleep(PACE)

    def _send_newest(self, index: int, name: str) -> None:
        picture = self._console.pictures.newest.get(name)
        sent = self._sent[name]
        if picture is None or self._shown.get(name) == picture.number or len(sent) >= MOST_UNSEEN:
            return
        self._shown[name] = picture.number
        sent[picture.number] = time.monotonic()
        self._connection.send(bytes([index]) + (picture.number & 0xFFFFFFFF).to_bytes(4, "big") + picture.jpeg)

    def _report(self, now: float) -> None:
        console, desk = self._console, self._console.desk
        self._reports += 1
        self._sent[REPORT][self._reports] = now
        self._report_times.append((self._reports, now))
        stops, health = desk.stops, console.pictures.health
        self._reported_stops.append((self._reports, stops, int(health.get("stops", -1))))
        episode = desk.episode  # before the grip: one that is newer than its episode is ignored, not the other way round
        ages = {name: console.pictures.age(name) for name in console.pictures.names}
        operator = "you" if desk.is_operator(self) else "another" if desk.is_taken else ""
        self._tell(
            kind="status",
            number=self._reports,
            operator=operator,
            wish=desk.wish().want,
            follows=desk.follows,
            episode=episode,
            latency=self._latency,
            ages=ages,
            grip=console.still.grip,
            health=health,
            state_of_arm=console.pictures.state,
            is_current=console.pictures.asked > desk.stop_sent,
            **console.tally.to_json(),
        )

    def _tell(self, **facts: Any) -> None:
        with contextlib.suppress(ConnectionClosed):
            self._connection.send(json.dumps(facts))


def parsed(message: str | bytes) -> dict[str, Any]:
    """Returns a message; raises Garbage."""
    try:
        found = json.loads(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise Garbage("it is no JSON object with a kind")
    return found


def _action(found: Any, size: int) -> Array:
    if not isinstance(found, list) or len(found) != size or not all(type(value) in (int, float) for value in found):
        raise Garbage(f"an action has {size} numbers")
    action = np.array([float(value) if abs(value) < 1e9 else np.nan for value in found], np.float32)
    if not np.isfinite(action).all() or np.abs(action).max() > 1.0:
        raise Garbage("an action lies in [-1, 1]")
    return action
