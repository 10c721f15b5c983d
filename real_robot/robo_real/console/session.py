"""Page of the console, and one session per open page, over a websocket.

Page and websocket share a port. Without the token a client sees and commands nothing.
Pictures are not queued: at most MOST_UNSEEN pictures are on their way to a page, and each acknowledgement lets the newest
follow.
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

from robo_real.console.episodes import Tally
from robo_real.console.human import HoldAction
from robo_real.console.monitor import RobotMonitor
from robo_real.console.operator_state import LABELS, OperatorState
from robo_rl.errors import RobotError
from robo_rl.spec.environment import ActionSpec
from robo_rl.system.pages.server import ADDRESS, PageServer, read
from robo_rl.types import Array

MOST_UNSEEN = 2
"""largest number of unacknowledged pictures of a camera, and of unacknowledged reports, per page"""
TOKEN_TIMEOUT = 2.0
"""[s] within which a page must send its token"""
MOST_LAG = 0.2
"""[s] from a report to the first message that knows this report; messages that do not know it by then command nothing"""
MOST_INVALID = 20
"""number of invalid messages after which a connection is closed"""
STATUS = 0.1
"""Period [s] of the reports that a page is sent."""
REPORT = "report"
"""name of the reports among the names of the cameras, since pages acknowledge reports, too"""
PACE = 0.01
"""[s] period of the check for new pictures"""
TURN = 0.05
"""[s] period of `OperatorState.awake`"""
SOCKET = "/socket"
REFUSED = 4401
"""close code of a websocket whose token is wrong or missing"""


class InvalidMessage(Exception):
    """A message of a page is malformed."""


@dataclass(frozen=True)
class Console:
    """Objects of one console that all of its sessions (open pages) use: state, monitor, and functions that stop the robot."""

    operator_state: OperatorState
    monitor: RobotMonitor
    tally: Tally
    action: ActionSpec
    hold_action: HoldAction
    stop: Callable[[str], None]
    """stops the robot; its argument is the origin of the stop; must raise nothing"""
    rearm: Callable[[int], None]
    """re-arms the robot; its argument is the number of stops that the operator has seen; raises RobotError"""
    links: Mapping[str, str]
    """title -> address of related pages"""


class Session:
    """Session of one page, over one websocket, until the connection ends."""

    def __init__(self, socket: WebSocket, console: Console, trust: Callable[[WebSocket], None] = lambda _: None) -> None:
        """Create the session; `serve` runs it.

        Args:
            socket: Websocket of the page.
            console: What all sessions share.
            trust: Called with the websocket once it has shown the token; a flood of other connections must not close it then.
        """
        self._socket, self._console, self._trust = socket, console, trust
        self._sent: dict[str, dict[int, float]] = {name: {} for name in (*console.monitor.names, REPORT)}
        self._shown: dict[str, int] = {}
        self._latency: float | None = None
        self._invalid = self._reports = 0
        self._report_times: deque[tuple[int, float]] = deque(maxlen=50)
        self._reported_stops: deque[tuple[int, int, int]] = deque(maxlen=100)  # report, stops of operator and of robot
        self._rearming: asyncio.Task[None] | None = None
        self._handlers: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "stop": self._stop,
            "hold": self._hold,
            "lost": self._lost,
            "sit": self._acquire,
            "start": self._start,
            "follow": self._set_autostart,
            "label": self._label,
            "rearm": self._rearm,
            "seen": self._seen,
        }

    async def serve(self, token: str) -> None:
        """Serve until the connection has ended, then release the operator's role."""
        await self._socket.accept()
        if not await self._authenticates(token):
            await self._close(REFUSED, "wrong token")
            return
        self._trust(self._socket)
        console = self._console
        await self._send_json(
            kind="welcome", cameras=console.monitor.names, names=console.action.names, links=dict(console.links)
        )
        tasks = [asyncio.create_task(self._send_updates()), asyncio.create_task(self._stay_awake())]
        try:
            while True:
                await self._handle(await self._receive())
        except WebSocketDisconnect:
            pass
        finally:
            console.operator_state.release(self)
            for task in tasks:
                task.cancel()

    async def _authenticates(self, token: str) -> bool:
        try:
            message = parse_message(await asyncio.wait_for(self._receive(), TOKEN_TIMEOUT))
        except (TimeoutError, InvalidMessage, WebSocketDisconnect):
            return False
        shown = message.get("token")
        if message.get("kind") != "hello" or not isinstance(shown, str):
            return False
        return hmac.compare_digest(shown.encode(errors="replace"), token.encode())

    # from the page

    async def _receive(self) -> str | bytes:
        event = await self._socket.receive()
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", 1005))
        found: str | bytes | None = event.get("text")
        return event["bytes"] if found is None else found

    async def _handle(self, content: str | bytes) -> None:
        try:
            message = parse_message(content)
            if message.get("kind") not in self._handlers:
                raise InvalidMessage(f"kind {message.get('kind')!r}")
            await self._handlers[message["kind"]](message)
        except InvalidMessage as error:
            self._invalid += 1
            await self._send_json(kind="refused", why=f"This message makes no sense: {error}.")
            if self._invalid >= MOST_INVALID:
                await self._close(1008, "garbage")

    async def _stop(self, _: dict[str, Any]) -> None:
        operator_state = self._console.operator_state
        by = operator_state.stop(self)
        try:
            await run_in_threadpool(self._console.stop, by)
        finally:
            operator_state.confirm_stop()

    async def _lost(self, _: dict[str, Any]) -> None:
        self._console.operator_state.lose(self)

    async def _start(self, _: dict[str, Any]) -> None:
        self._console.operator_state.start(self)

    async def _hold(self, message: dict[str, Any]) -> None:
        held = message.get("held")
        if not isinstance(held, bool):
            raise InvalidMessage("held is neither true nor false")
        answers = message.get("answers")
        if self._is_old(answers):
            return  # as if it had not come: the silence then counts as a loss
        episode = message.get("episode") if type(message.get("episode")) is int else None
        action = _action(message.get("action"), self._console.action.size)
        seen = next((when for number, when in self._report_times if number == answers), float("-inf"))
        self._console.operator_state.update(self, held, action, episode, seen)

    def _is_old(self, answers: Any) -> bool:
        """Return whether a page that answers the report number `answers` should know a later report by now."""
        sent = [when for number, when in self._report_times if isinstance(answers, int) and number > answers]
        return bool(sent) and time.monotonic() - sent[0] > MOST_LAG

    async def _acquire(self, _: dict[str, Any]) -> None:
        if not self._console.operator_state.acquire(self):
            await self._send_json(kind="refused", why="Another operator is at the console.")

    async def _set_autostart(self, message: dict[str, Any]) -> None:
        if not isinstance(message.get("follows"), bool):
            raise InvalidMessage("follows is neither true nor false")
        self._console.operator_state.set_autostart(self, message["follows"])

    async def _label(self, message: dict[str, Any]) -> None:
        if message.get("label") not in LABELS:
            raise InvalidMessage(f"label {message.get('label')!r}")
        self._console.operator_state.label(self, message["label"])

    async def _rearm(self, message: dict[str, Any]) -> None:
        found = [stops for number, *stops in self._reported_stops if number == message.get("number")]
        if not found:
            raise InvalidMessage("a re-arming names the report that was looked at")
        if not self._console.operator_state.is_operator(self):
            await self._send_json(kind="refused", why="Only the operator re-arms.")
        elif self._rearming is None or self._rearming.done():
            self._rearming = asyncio.create_task(self._request_rearm(*found[0]))

    async def _request_rearm(self, of_operator: int, of_robot: int) -> None:
        """Re-arm the robot. This runs in a task of its own, since it may take seconds, and stops must be handled meanwhile.

        Args:
            of_operator: Number of stops of the operator that the page showed.
            of_robot: Number of stops of the robot that the page showed.
        """
        try:
            await run_in_threadpool(self._console.rearm, of_robot)
            self._console.operator_state.rearm(self, of_operator)
        except RobotError as error:
            await self._send_json(kind="refused", why=" ".join(str(error).split()))

    async def _seen(self, message: dict[str, Any]) -> None:
        camera, number = message.get("camera"), message.get("number")
        if not isinstance(camera, str) or camera not in self._sent or not isinstance(number, int):
            raise InvalidMessage("no such picture")
        sent = self._sent[camera].pop(number, None)
        if sent is not None:
            self._latency = time.monotonic() - sent

    # to the page

    async def _send_updates(self) -> None:
        reported = 0.0
        while True:
            for index, name in enumerate(self._console.monitor.names):
                await self._send_newest(index, name)
            if time.monotonic() - reported >= STATUS and len(self._sent[REPORT]) < MOST_UNSEEN:
                reported = time.monotonic()
                await self._report(reported)
            await asyncio.sleep(PACE)

    async def _stay_awake(self) -> None:
        while True:
            self._console.operator_state.awake()
            await asyncio.sleep(TURN)

    async def _send_newest(self, index: int, name: str) -> None:
        picture = self._console.monitor.newest.get(name)
        sent = self._sent[name]
        if picture is None or self._shown.get(name) == picture.number or len(sent) >= MOST_UNSEEN:
            return
        self._shown[name] = picture.number
        sent[picture.number] = time.monotonic()
        await self._send(bytes([index]) + (picture.number & 0xFFFFFFFF).to_bytes(4, "big") + picture.jpeg)

    async def _report(self, now: float) -> None:
        console, operator_state = self._console, self._console.operator_state
        self._reports += 1
        self._sent[REPORT][self._reports] = now
        self._report_times.append((self._reports, now))
        stops, health = operator_state.stops, console.monitor.health
        self._reported_stops.append((self._reports, stops, int(health.get("stops", -1))))
        episode = operator_state.episode  # read before the grip: a grip newer than its episode is ignored, not the reverse
        ages = {name: console.monitor.age(name) for name in console.monitor.names}
        operator = "you" if operator_state.is_operator(self) else "another" if operator_state.has_operator else ""
        await self._send_json(
            kind="status",
            number=self._reports,
            operator=operator,
            wish=operator_state.decision().kind,
            follows=operator_state.autostarts,
            episode=episode,
            latency=self._latency,
            ages=ages,
            grip=console.hold_action.grip,
            health=health,
            state_of_arm=console.monitor.state,
            is_current=console.monitor.requested > operator_state.stop_sent,
            **console.tally.to_json(),
        )

    async def _send_json(self, **facts: Any) -> None:
        await self._send(json.dumps(facts))

    async def _send(self, message: str | bytes) -> None:
        """Send a message unless the connection has ended, which the next `_receive` raises."""
        if self._socket.application_state is not WebSocketState.CONNECTED:
            return
        with suppress(WebSocketDisconnect):
            await (self._socket.send_text(message) if isinstance(message, str) else self._socket.send_bytes(message))

    async def _close(self, code: int, why: str) -> None:
        if self._socket.application_state is WebSocketState.CONNECTED:
            with suppress(WebSocketDisconnect):
                await self._socket.close(code, why)


def parse_message(message: str | bytes) -> dict[str, Any]:
    """Return the JSON object of a message, which has a text `kind`; raises InvalidMessage for anything else."""
    try:
        found = json.loads(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        raise InvalidMessage("it is no JSON object with a kind")
    return found


def _action(found: Any, size: int) -> Array:
    if not isinstance(found, list) or len(found) != size or not all(type(value) in (int, float) for value in found):
        raise InvalidMessage(f"an action has {size} numbers")
    action = np.array([float(value) if abs(value) < 1e9 else np.nan for value in found], np.float32)
    if not np.isfinite(action).all() or np.abs(action).max() > 1.0:
        raise InvalidMessage("an action lies in [-1, 1]")
    return action


def console_server(console: Console, *, address: str = ADDRESS, port: int = 0) -> PageServer:
    """Serve the web page of a console, and return the running server.

    Args:
        console: State that all open pages of the console share.
        address: Address at which the page is served.
        port: Port of the page; 0 chooses a free one.

    Raises:
        InvalidSetting: The port is in use.
    """

    async def serve(socket: WebSocket) -> None:
        await Session(socket, console, server.trust).serve(server.token)

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
