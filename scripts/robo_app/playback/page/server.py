"""Server of the page of `robo-rl play`.

GET   /                       the page
      /api/moment?after=N     the newest moment once its number is another than N, or the same one after a while
POST  /api/command  {"command": "pause" | "go" | "restart" | "next"}
"""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, get_args

import cv2
import numpy as np
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typing_extensions import override

from robo_app.playback.playback import Command, Moment, Player, Screen
from robo_rl.evaluation.video import Frame
from robo_rl.system.pages.server import PageServer, as_response, write

QUALITY = 85
LONGEST_WAIT = 5.0
"""Time after which the page gets the old moment again [s], so that it sees that the server still runs."""
LOOK = 0.005
"""Time between two looks for a new moment [s]."""


class PlayServer(Screen):
    """Screen in the browser: serves the newest picture and numbers to any number of open pages."""

    is_open = True

    def __init__(self, title: str, player: Player, port: int) -> None:
        """Begin to serve the page; raises InvalidSetting if the port is taken.

        title: title of the page. player: player that gets the commands of the page. port: 0 for any free one.
        """
        self._player, self._changes = player, threading.Lock()
        self._newest: dict[str, Any] = {"number": 0, "title": title}
        routes = [Route("/api/moment", self._moment), write("/api/command", self._command)]
        self.server = PageServer("robo_app.playback.page", "Policy", routes, port=port)

    @override
    def show(self, picture: Frame | None, moment: Moment) -> None:
        assert picture is not None
        coded, jpeg = cv2.imencode(
            ".jpg", cv2.cvtColor(np.asarray(picture), cv2.COLOR_RGB2BGR), (cv2.IMWRITE_JPEG_QUALITY, QUALITY)
        )
        assert coded
        self._publish(picture=f"data:image/jpeg;base64,{base64.b64encode(jpeg.tobytes()).decode()}", **asdict(moment))

    def close(self) -> None:
        """Stop serving."""
        self.is_open = False
        self.server.close()

    def _publish(self, **facts: Any) -> None:
        outcomes = self._player.outcomes
        judged = [moment.success for moment in outcomes if moment.success is not None]
        tally = {"played": len(outcomes), "judged": len(judged), "successes": sum(judged)}
        with self._changes:
            number = self._newest["number"] + 1
            self._newest = {**self._newest, **facts, **tally, "paused": self._player.is_paused, "number": number}

    async def _moment(self, request: Request) -> Response:
        after, until = request.query_params.get("after", ""), time.monotonic() + LONGEST_WAIT
        while str(self._newest["number"]) == after and self.is_open and time.monotonic() < until:
            await asyncio.sleep(LOOK)
        return as_response(self._newest)

    def _command(self, request: Request, found: Any) -> object:
        command: Any = found.get("command") if isinstance(found, dict) else None
        if command not in get_args(Command):
            raise HTTPException(HTTPStatus.BAD_REQUEST, f'A command is JSON: {{"command": one of {get_args(Command)}}}.')
        self._player.command(command)
        self._publish()
        return {"paused": self._player.is_paused}
