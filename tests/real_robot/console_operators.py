"""Operators without a browser, for the tests of the console: hands at a desk, and a page at a socket."""

import json
import time

import numpy as np
from websockets.sync.client import connect

from robo_real.console.operator_state import OperatorState
from robo_real.console.session import TURN

RIGHT = [0.0, 0.3, 0.0, 0.0, 1.0]
STILL = [0.0, 0.0, 0.0, 0.0, 1.0]


class Hands:
    def __init__(self):
        self.now = 0.0
        self.operator_state = OperatorState(lambda: self.now)
        self.operator_state.acquire(self)
        self.hold(False)  # as a page does 20 times a second, until its switch is pressed

    def hold(self, held=True, after=0.0, seen=None):
        self.now += after
        self.operator_state.update(self, held, np.array(RIGHT, np.float32), self.operator_state.episode, seen)

    def want(self, after=0.0):
        """Returns what is decided after a while in which this process was awake."""
        end = self.now + after
        while self.now < end:
            self.now = min(self.now + TURN, end)
            self.operator_state.awake()
        return self.operator_state.decision().kind


def begun(held=True) -> Hands:
    hands = Hands()
    hands.operator_state.begin()
    hands.hold(held)
    return hands


class Stops:
    stopped = enabled = 0

    def enable(self):
        self.enabled += 1

    def stop(self, by):
        self.stopped += 1
        self.by = by


class Page:
    """What the page does, without a browser."""

    def __init__(self, console, token=None, **arguments):
        server = console.server
        self.origin = f"http://127.0.0.1:{server.port}"
        arguments = {"origin": self.origin, "compression": None, "close_timeout": 0.2} | arguments
        self.socket = connect(f"ws://127.0.0.1:{server.port}/socket", **arguments).__enter__()
        self.say(kind="hello", token=server.token if token is None else token)
        self.held, self.action, self.answers, self.episode = False, STILL, None, None

    def say(self, **facts):
        self.socket.send(json.dumps(facts))

    def told(self, kind):
        """Returns the next message of a kind; answers what else comes as the page does."""
        while True:
            message = self.socket.recv(timeout=20)
            if isinstance(message, bytes):
                self.say(kind="seen", camera="camera_front", number=int.from_bytes(message[1:5], "big"))
                continue
            told = json.loads(message)
            if told["kind"] == "status":
                self.say(kind="seen", camera="report", number=told["number"])
                answers = told["number"] if self.answers is None else self.answers
                self.episode = self.episode if told["grip"] is None else told["episode"]
                self.say(kind="hold", held=self.held, action=self.action, answers=answers, episode=self.episode)
            if told["kind"] == kind:
                return told

    def rearm(self):
        """Re-arms as the page does: after a report that is newer than the last stop."""
        self.say(kind="rearm", number=self.until(lambda told: told["is_current"])["number"])

    def until(self, test):
        """Returns the first report that passes, speaking as the page does meanwhile."""
        end = time.monotonic() + 100
        while time.monotonic() < end:
            if test(found := self.told("status")):
                return found
        raise AssertionError(found)


def start(page):
    page.say(kind="start")
    page.until(lambda told: told["state"] == "running" and told["steps"] > 0)
