"""HTTP process of a served robot: reads HTTP and JSON from untrusted clients, in one thread and bounded memory.

It is a process of its own, so that it shares no interpreter lock with guard and watchdog. uvicorn speaks HTTP, as for the
pages. Accepted requests go to the arm's process as small messages. This process exits when the arm's process does.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.server import ServerState

from robo_real.server.messages import LARGEST_ANSWER, LENGTH, Answer, Request, decode_answer, encode_request
from robo_real.server.request_syntax import LARGEST_HEAD, checked_headers, is_json, parse_body, path_of
from robo_rl.system.pages.connections import PER_TURN, WAITING, Connections, Rank
from robo_rl.system.pages.hosts import is_own_host
from robo_rl.system.pages.protocol import BadRequest, Connection, Rules

READING, WRITING, IDLE, QUEUED = 5.0, 5.0, 60.0, 5.0
"""[s] timeouts: for head and body of a request each, for an answer, between two requests, and for a free channel"""
STOP = "/robo/stop"
"""Path of the stop request. It needs no token, because everybody who reaches the robot may stop it."""
TOKEN_VARIABLE, TOKEN_HEADER = "ROBO_RL_ROBOT_TOKEN", "x-robo-token"
SAFE = {"Cross-Origin-Resource-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}
"""Headers of every answer, so that other sites cannot embed the robot's pictures, and browsers do not guess types"""
BEHIND = 5
"""difference by which this process's real-time priority is below that of the arm's process"""

Channel = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Channels:
    """Channels to the arm's process. Each carries one request at a time; the first one is reserved for stops."""

    def __init__(self, channels: list[Channel]) -> None:
        self._all = channels
        self._kept, *self._free = channels
        self._stops, self._others = asyncio.Lock(), asyncio.Semaphore(len(self._free))
        self.are_lost = asyncio.Event()
        """Set when the arm's process has ended"""

    async def ask(self, request: Request, is_wanted: Callable[[], bool]) -> Answer:
        """Pass a request on to the arm's process, and return the answer.

        Args:
            request: The request.
            is_wanted: Called when a channel is free; returns True if the client still waits for the answer. A stop is passed
                on in any case.

        Raises:
            BadRequest: The request is too large, no channel becomes free in time, or the arm's process has ended.
            ClientGone: The client waits no longer.
        """
        message = encode_request(request)
        if message is None:
            raise BadRequest(413, "The request is too large.")
        async with self._channel(is_stop=request.path == STOP) as (reader, writer):
            if request.path != STOP and not is_wanted():
                raise ClientGone
            try:
                writer.write(message)
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length <= LARGEST_ANSWER:
                    return decode_answer(await reader.readexactly(length))
            except (asyncio.IncompleteReadError, OSError):
                pass
            self.are_lost.set()
            raise BadRequest(503, "The robot's process has ended.")

    def close(self) -> None:
        """Close the channels."""
        for _, writer in self._all:
            writer.close()

    @asynccontextmanager
    async def _channel(self, *, is_stop: bool) -> AsyncIterator[Channel]:
        """Reserve a free channel inside the context; raises BadRequest if none becomes free in time."""
        if is_stop and self._others.locked():
            async with self._stops:
                yield self._kept
            return
        try:
            async with asyncio.timeout(QUEUED):
                await self._others.acquire()
        except TimeoutError:
            raise BadRequest(503, "The robot is busy with other requests.") from None
        channel = self._free.pop()
        try:
            yield channel
        finally:
            self._free.append(channel)
            self._others.release()


class ClientGone(Exception):
    """The client closed its connection before its request was passed on."""


class HttpProcess:
    """HTTP server over a listening socket; it serves connections until the arm's process ends."""

    def __init__(
        self, listener: socket.socket, control: socket.socket, links: list[socket.socket], address: str, token: str = ""
    ) -> None:
        """Create the server; `run` starts it.

        Args:
            listener: Listening socket.
            control: Socket of the pings of the arm's process.
            links: Sockets to the arm's process, for one request each; the first one is reserved for stops.
            address: Address of the server, which requests must name.
            token: Token that requests must have; "" for no token.
        """
        self._listener, self._control, self._links, self._address, self._token = listener, control, links, address, token
        self.connections = Connections()
        self._channels: Channels

    def run(self) -> None:
        """Serve until the arm's process has ended."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self._channels = Channels([await asyncio.open_connection(sock=link) for link in self._links])
        self._control.setblocking(False)
        loop.add_reader(self._control, self._reply)
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_keep_alive=IDLE,  # type: ignore[arg-type]
        )
        config.load()
        rules = Rules(self._check, _refused, READING, WRITING, _rank)
        protocol = partial(Connection, self.connections, rules, config, ServerState(), {}, _loop=loop)
        server = await loop.create_server(protocol, sock=self._listener, backlog=PER_TURN)
        self._listener.listen(WAITING)
        await self._channels.are_lost.wait()
        server.close()
        self._channels.close()
        self.connections.abort()
        await asyncio.sleep(0)  # in which they are closed

    def _reply(self) -> None:
        """Reply to a ping of the arm's process."""
        ping = b""
        with suppress(OSError):
            ping = self._control.recv(1 << 16)
            self._control.send(ping)
        if not ping:
            asyncio.get_running_loop().remove_reader(self._control)
            self._channels.are_lost.set()

    def _check(self, request: h11.Request) -> None:
        """Raise BadRequest if a request is malformed, comes from a web page, names another host, or lacks the token."""
        headers = checked_headers(request)
        if "origin" in headers:
            raise BadRequest(403, "Pages in a browser may not speak with a robot.")
        if not is_own_host(headers.get("host", ""), self._address):
            raise BadRequest(403, "This robot's server has another address: use its number, or this machine's name.")
        shown = headers.get(TOKEN_HEADER, "").encode()
        if self._token and path_of(request) != STOP and not hmac.compare_digest(shown, self._token.encode()):
            raise BadRequest(401, f"This robot's server asks for its token: set {TOKEN_VARIABLE} as where it was started.")

    async def _app(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        """Answer a request, as an ASGI application."""
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        try:
            content = await _body(receive)
            body = parse_body(content) if content and is_json(kind) else None
            request = Request(scope["method"], scope["raw_path"].decode(), body)
            answer = await self._channels.ask(request, lambda: self.connections.has(scope["client"]))
        except BadRequest as error:
            answer = refusal(error.status, error.words)
        except ClientGone:
            return
        lines = {**answer.headers, **SAFE, "Content-Length": str(len(answer.body))}
        start = [(name.encode(), value.encode("latin-1", "replace")) for name, value in lines.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": start})
        await send({"type": "http.response.body", "body": answer.body})


def refusal(status: int, words: str) -> Answer:
    """Return the answer to a refused request, which closes the connection; words: reason, for the client."""
    body = (json.dumps({"error": "BadRequest", "message": words}, separators=(",", ":")) + "\n").encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close", **SAFE}
    return Answer(status, headers, body)


def _refused(status: int, words: str) -> tuple[Mapping[str, str], bytes]:
    answer = refusal(status, words)
    return answer.headers, answer.body


def _rank(path: str) -> Rank:
    return Rank.STOPPING if path == STOP else Rank.ASKING


async def _body(receive: Any) -> bytes:
    """Return the body of a request; raises BadRequest if it is not complete in time, ClientGone if the connection ends."""
    body, is_whole = bytearray(), False
    try:
        async with asyncio.timeout(READING):
            while not is_whole:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message["body"]
                is_whole = not message["more_body"]
    except TimeoutError:
        raise BadRequest(408, f"A request comes within {READING:g} s.") from None
    return bytes(body)


def main(arguments: list[str]) -> None:
    """Run the process.

    Args:
        arguments: Address, then the descriptors of the listening socket, of the channels and of the control socket.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the arm's process, which ends this one
    _run_behind()
    address, *descriptors = arguments
    listener, *links, control = (socket.socket(fileno=int(each)) for each in descriptors)
    HttpProcess(listener, control, links, address, os.environ.get(TOKEN_VARIABLE, "")).run()


def _run_behind() -> None:
    """Lower the real-time priority below that of the arm's process, if it has one."""
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        lower = max(os.sched_getparam(0).sched_priority - BEHIND, 1)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(lower))


if __name__ == "__main__":
    main(sys.argv[1:])
