"""The console's page, and each browser at it: it is heard, and shown the newest pictures, never older ones.

One port, the page over HTTP and everything else over one websocket. Without the token nobody sees or commands anything.

Pictures are not queued: at most MOST_UNSEEN are under way, and the next is whichever is newest when one was seen.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from robo_real.console.desk import LABELS, Desk
from robo_real.console.episodes import Tally
from robo_real.console.human import Still
from robo_real.console.pictures import Pictures
from robo_rl.errors import RobotError
from robo_rl.spec.environment import ActionSpec
from robo_rl.system.pages.server import ADDRESS, PageServer, read
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
SOCKET = "/socket"
REFUSED = 4401
"""close code: wrong token or none"""


class Garbage(Exception):
    """A message that makes no sense."""


@dataclass(frozen=True)
class Console:
    """State that all browsers share."""

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

    def __init__(self, socket: WebSocket, console: Console) -> None:
        self._socket, self._console = socket, console
        self._sent: dict[str, dict[int, float]] = {name: {} for name in (*console.pictures.names, REPORT)}
        self._shown: dict[str, int] = {}
        self._latency: float | None = None
        self._garbage = self._reports = 0
        self._report_times: deque[tuple[int, float]] = deque(maxlen=50)
        self._reported_stops: deque[tuple[int, int, int]] = deque(maxlen=100)  # report, stops of the desk, of the robot
        self._rearming: asyncio.Task[None] | None = None
        self._works: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "stop": self._stop,
            "hold": self._hold,
            "lost": self._lost,
            "sit": self._sit,
            "start": self._start,
            "follow": self._follow,
            "label": self._label,
            "rearm": self._rearm,
            "seen": self._seen,
        }

    async def serve(self, token: str) -> None:
        """Return when the connection has ended; the seat is free then."""
        await self._socket.accept()
        if not await self._shows(token):
            await self._close(REFUSED, "wrong token")
            return
        console = self._console
        await self._tell(kind="welcome", cameras=console.pictures.names, names=console.action.names, links=dict(console.links))
        showing = asyncio.create_task(self._show())
        try:
            while True:
                await self._hear(await self._message())
        except WebSocketDisconnect:
            pass
        finally:
            console.desk.rise(self)
            showing.cancel()

    async def _shows(self, token: str) -> bool:
        try:
            told = parsed(await asyncio.wait_for(self._message(), PATIENCE))
        except (TimeoutError, Garbage, WebSocketDisconnect):
            return False
        shown = told.get("token")
        if told.get("kind") != "hello" or not isinstance(shown, str):
            return False
        return hmac.compare_digest(shown.encode(errors="replace"), token.encode())

    # from the page

    async def _message(self) -> str | bytes:
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1005))
        found: str | bytes | None = event.get("text")
        return event["bytes"] if found is None else found

    async def _hear(self, message: str | bytes) -> None:
        try:
            told = parsed(message)
            if told.get("kind") not in self._works:
                raise Garbage(f"kind {told.get('kind')!r}")
            await self._works[told["kind"]](told)
        except Garbage as error:
            self._garbage += 1
            await self._tell(kind="refused", why=f"This message makes no sense: {error}.")
            if self._garbage >= MOST_GARBAGE:
                await self._close(1008, "garbage")

    async def _stop(self, _: dict[str, Any]) -> None:
        desk = self._console.desk
        by = desk.stop(self)
        try:
            await run_in_threadpool(self._console.stop, by)
        finally:
            desk.stop_arrived()

    async def _lost(self, _: dict[str, Any]) -> None:
        self._console.desk.lose(self)

    async def _start(self, _: dict[str, Any]) -> None:
        self._console.desk.start(self)

    async def _hold(self, told: dict[str, Any]) -> None:
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

    async def _sit(self, _: dict[str, Any]) -> None:
        if not self._console.desk.sit(self):
            await self._tell(kind="refused", why="Another operator is at the desk.")

    async def _follow(self, told: dict[str, Any]) -> None:
        if not isinstance(told.get("follows"), bool):
            raise Garbage("follows is neither true nor false")
        self._console.desk.follow(self, told["follows"])

    async def _label(self, told: dict[str, Any]) -> None:
        if told.get("label") not in LABELS:
            raise Garbage(f"label {told.get('label')!r}")
        self._console.desk.label(self, told["label"])

    async def _rearm(self, told: dict[str, Any]) -> None:
        found = [stops for number, *stops in self._reported_stops if number == told.get("number")]
        if not found:
            raise Garbage("a re-arming names the report that was looked at")
        if not self._console.desk.is_operator(self):
            await self._tell(kind="refused", why="Only the operator re-arms.")
        elif self._rearming is None or self._rearming.done():
            self._rearming = asyncio.create_task(self._ask_to_rearm(*found[0]))

    async def _ask_to_rearm(self, of_desk: int, of_robot: int) -> None:
        """Beside what is heard: a robot may take seconds for it, and a stop must be heard meanwhile."""
        try:
            await run_in_threadpool(self._console.rearm, of_robot)
            self._console.desk.rearm(self, of_desk)
        except RobotError as error:
            await self._tell(kind="refused", why=" ".join(str(error).split()))

    async def _seen(self, told: dict[str, Any]) -> None:
        camera, number = told.get("camera"), told.get("number")
        if not isinstance(camera, str) or camera not in self._sent or not isinstance(number, int):
            raise Garbage("no such picture")
        sent = self._sent[camera].pop(number, None)
        if sent is not None:
            self._latency = time.monotonic() - sent

    # to the page

    async def _show(self) -> None:
        reported = 0.0
        while True:
            for index, name in enumerate(self._console.pictures.names):
                await self._send_newest(index, name)
            if time.monotonic() - reported >= STATUS and len(self._sent[REPORT]) < MOST_UNSEEN:
                reported = time.monotonic()
                await self._report(reported)
            await asyncio.sleep(PACE)

    async def _send_newest(self, index: int, name: str) -> None:
        picture = self._console.pictures.newest.get(name)
        sent = self._sent[name]
        if picture is None or self._shown.get(name) == picture.number or len(sent) >= MOST_UNSEEN:
            return
        self._shown[name] = picture.number
        sent[picture.number] = time.monotonic()
        await self._send(bytes([index]) + (picture.number & 0xFFFFFFFF).to_bytes(4, "big") + picture.jpeg)

    async def _report(self, now: float) -> None:
        console, desk = self._console, self._console.desk
        self._reports += 1
        self._sent[REPORT][self._reports] = now
        self._report_times.append((self._reports, now))
        stops, health = desk.stops, console.pictures.health
        self._reported_stops.append((self._reports, stops, int(health.get("stops", -1))))
        episode = desk.episode  # before the grip: one that is newer than its episode is ignored, not the other way round
        ages = {name: console.pictures.age(name) for name in console.pictures.names}
        operator = "you" if desk.is_operator(self) else "another" if desk.is_taken else ""
        await self._tell(
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

    async def _tell(self, **facts: Any) -> None:
        await self._send(json.dumps(facts))

    async def _send(self, message: str | bytes) -> None:
        """Send a message, unless the connection has ended, which the next thing that is heard tells."""
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        with suppress(WebSocketDisconnect):
            await (self._socket.send_text(message) if isinstance(message, str) else self._socket.send_bytes(message))

    async def _close(self, code: int, why: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect):
                await self._socket.close(code, why)


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


def console_server(console: Console, *, address: str = ADDRESS, port: int = 0) -> PageServer:
    """Serve a console; port: 0 for any free one. Raises InvalidSetting if the port cannot be had."""

    async def serve(socket: WebSocket) -> None:
        await Session(socket, console).serve(server.token)

    routes = [WebSocketRoute(SOCKET, serve), read(SOCKET, _refuse)]
    server = PageServer(
        "robo_real.console",
        "Operator's console",
        routes,
        address=address,
        port=port,
        scripts=("page.js", "controls.js"),
        shows_token=False,
    )
    return server


def _refuse(request: Request) -> object:
    raise HTTPException(HTTPStatus.UPGRADE_REQUIRED, "This address takes websockets alone.")
