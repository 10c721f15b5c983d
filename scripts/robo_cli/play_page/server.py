"""The server of the page.

GET   /                       the page
      /api/moment?after=N     the newest moment once its number is another than N, or the same one after a while
POST  /api/command  {"command": "pause" | "go" | "restart" | "next"}
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import asdict
from http import HTTPStatus
from importlib.resources import files
from typing import Any, get_args
from urllib.parse import parse_qs, urlsplit

import cv2
import numpy as np

from robo_cli.playback import Command, Moment, Player
from robo_datasets.viewer.answers import Answer
from robo_datasets.viewer.server import LocalServer
from robo_rl.video import Frame

STATIC = {
    "/": (__package__, "page.html", "text/html"),
    "/style.css": ("robo_rl", "report/style.css", "text/css"),
    "/page.css": (__package__, "page.css", "text/css"),
    "/page.js": (__package__, "page.js", "text/javascript"),
}
QUALITY = 85
LONGEST_WAIT = 5.0
"""[s] for a new moment, after which the page gets the old one again: it sees that the server is there."""


class PlayServer(LocalServer):
    """A screen in the browser: keeps the newest picture and numbers for any number of pages."""

    def __init__(self, title: str, player: Player, port: int) -> None:
        """Binds to a port, 0 for any free one; raises InvalidSetting if it cannot be had."""
        super().__init__(port)
        self.is_open = True
        self._player = player
        self._changed = threading.Condition()
        self._newest: dict[str, Any] = {"number": 0, "title": title}
        self._thread = threading.Thread(target=self.serve_forever, name="play", daemon=True)
        self._thread.start()

    def show(self, picture: Frame | None, moment: Moment) -> None:
        """Make a picture and the numbers the newest."""
        assert picture is not None
        coded, jpeg = cv2.imencode(
            ".jpg", cv2.cvtColor(np.asarray(picture), cv2.COLOR_RGB2BGR), (cv2.IMWRITE_JPEG_QUALITY, QUALITY)
        )
        assert coded
        self._publish(picture=f"data:image/jpeg;base64,{base64.b64encode(jpeg.tobytes()).decode()}", **asdict(moment))

    def close(self) -> None:
        """Serve no more."""
        self.is_open = False
        self.shutdown()
        self._thread.join()
        self.server_close()

    def get(self, path: str) -> Answer:
        """Returns what lies at an address; the page itself is given the token that writing asks for."""
        address = urlsplit(path)
        if address.path in STATIC:
            package, name, content_type = STATIC[address.path]
            text = files(package).joinpath(name).read_text("utf-8").replace("@TOKEN@", self.token)
            return Answer(text.encode(), f"{content_type}; charset=utf-8")
        if address.path == "/api/moment":
            return Answer.of(self._moment(parse_qs(address.query).get("after", [""])[0]))
        return Answer.refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")

    def post(self, path: str, body: bytes) -> Answer:
        """Steers the player."""
        if path != "/api/command":
            return Answer.refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")
        try:
            command = json.loads(body)["command"]
        except (ValueError, TypeError, KeyError, RecursionError):
            command = None
        if command not in get_args(Command):
            return Answer.refusal(HTTPStatus.BAD_REQUEST, f'A command is JSON: {{"command": one of {get_args(Command)}}}.')
        self._player.command(command)
        self._publish()
        return Answer.of({"paused": self._player.is_paused})

    def _publish(self, **facts: Any) -> None:
        outcomes = self._player.outcomes
        judged = [moment.success for moment in outcomes if moment.success is not None]
        tally = {"played": len(outcomes), "judged": len(judged), "successes": sum(judged)}
        with self._changed:
            number = self._newest["number"] + 1
            self._newest = {**self._newest, **facts, **tally, "paused": self._player.is_paused, "number": number}
            self._changed.notify_all()

    def _moment(self, after: str) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: str(self._newest["number"]) != after, LONGEST_WAIT)
            return self._newest
