"""Web server of a page: the viewer of datasets, comparisons by a person, `robo-rl play` and the operator's console.

Reachable from this machine alone unless another address is named. Any number of clients may connect: few stay, and of those the
one without a request or the token goes first. Other pages in the same browser are kept out: a request must
name this machine as its host, against DNS rebinding; only this page may write or open a websocket; its writes carry its token.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import secrets
import socket
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from types import TracebackType
from typing import Any, Self

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from typing_extensions import override

from robo_rl.errors import DatasetBusy, DatasetNotFound, InvalidSetting, RoboRLError, UnknownName
from robo_rl.system.pages.connections import PER_TURN, WAITING, Connections
from robo_rl.system.pages.hosts import is_own_host, listener_at
from robo_rl.system.pages.protocol import Connection, Rules

ADDRESS = "127.0.0.1"
TOKEN_HEADER = "X-Robo-Token"
LARGEST_HEAD = 1 << 16
"""Largest size of the headers of a request in bytes."""
LARGEST_BODY = 1 << 16
"""Largest size of a request in bytes: the longest note, with every character escaped."""
LARGEST_MESSAGE = 4096
"""Largest size of a message over a websocket in bytes."""
IDLE = 60
"""[s] after which a silent connection is closed."""
ENDS = 1
"""[s] for open requests to finish when the server is closed."""
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""Headers of every response; a response may have another Cache-Control."""
STATUS: Mapping[type[RoboRLError], HTTPStatus] = {
    UnknownName: HTTPStatus.NOT_FOUND,
    DatasetNotFound: HTTPStatus.NOT_FOUND,
    InvalidSetting: HTTPStatus.BAD_REQUEST,
    DatasetBusy: HTTPStatus.CONFLICT,
}
KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class PageServer:
    """Web server of a page, which runs in its own thread from construction until `close`."""

    def __init__(
        self,
        package: str,
        title: str,
        routes: Sequence[BaseRoute],
        *,
        port: int,
        address: str = ADDRESS,
        scripts: Sequence[str] = ("page.js",),
        shows_token: bool = True,
    ) -> None:
        """Start the server.

        Args:
            package: Package with page.html, which is only the body of the page, page.css and the scripts.
            title: Title of the page.
            routes: Further routes.
            port: Port; 0 for any free one.
            address: Address to listen at.
            scripts: Names of the scripts.
            shows_token: False if the page gets the token only from its own address.

        Raises:
            InvalidSetting: The port is not available.
            MissingExtra: A route needs the package for websockets.
        """
        self._connections = Connections()
        sockets = _websockets(routes, self._connections)
        self.token = secrets.token_urlsafe(24)
        self._address, self._listener = address, listener_at(address, port)
        self.port: int = self._listener.getsockname()[1]
        self._own = f"http://{address}:{self.port}/"
        self.url = self._own if shows_token else f"{self._own}#{self.token}"
        """Address of the page; a token behind a # is in no log, and no other page sees it."""
        texts = _texts(package, title, scripts, self.token if shows_token else "")
        static = [read(path, _constant(text, KINDS[kind])) for path, (text, kind) in texts.items()]
        handlers: Any = {HTTPException: _refused, RoboRLError: _failed, ClientDisconnect: _gone, Exception: _fault}
        self._app = Starlette(routes=[*static, *routes], exception_handlers=handlers)
        self._app.router.redirect_slashes = False
        self._server = _Server(self._configuration(sockets))
        arguments = {"sockets": [self._listener]}
        self._thread = threading.Thread(target=self._server.run, kwargs=arguments, name="page", daemon=True)
        self._thread.start()

    def _configuration(self, sockets: Any) -> uvicorn.Config:
        """Return the settings of the server; sockets: its protocol of websockets, or "none"."""
        rules = Rules(_nothing, _not_understood, IDLE)
        return uvicorn.Config(
            self._answer,
            interface="asgi3",
            loop="asyncio",
            backlog=PER_TURN,
            http=partial(Connection, self._connections, rules),  # type: ignore[arg-type]  # it is called, and no more
            ws=sockets,
            ws_max_size=LARGEST_MESSAGE,
            ws_ping_interval=None,
            ws_per_message_deflate=False,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=ENDS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def wait(self) -> None:
        """Block until the server is closed."""
        self._thread.join()

    def trust(self, link: WebSocket) -> None:
        """Keep a websocket that has sent the token, however many others connect; called by routes in the server's thread."""
        if link.client is not None:
            self._connections.trust((link.client.host, link.client.port))

    def close(self) -> None:
        """Close the server and its connections."""
        self._server.should_exit = True
        self._thread.join()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"].endswith("response.start"):
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response to a request that is foreign or not understood; None for other requests."""
        headers, method = Headers(scope=scope), scope.get("method", "")
        hosts, token = headers.getlist("host"), headers.get(TOKEN_HEADER, "")
        host = hosts[0] if len(hosts) == 1 else ""
        size = sum(len(name) + len(value) for name, value in headers.raw) + len(scope["raw_path"])
        is_own_page = headers.getlist("origin") == [f"http://{host}"]
        faults = {
            (431, f"Headers have at most {LARGEST_HEAD} bytes."): size > LARGEST_HEAD,
            (505, "This server speaks HTTP/1.1."): scope["http_version"] not in ("1.0", "1.1"),
            # any port, because SSH may forward another one here
            (403, f"This page has the address {self._own} and no other."): not is_own_host(host, self._address),
            (501, f"There is no method {method} here."): method not in ("", "GET", "POST"),  # a websocket has none
            (403, "Only this page may write; the request comes from another."): method != "GET" and not is_own_page,
            (403, "The server was restarted; load the page again."): method == "POST"
            and not hmac.compare_digest(token.encode(), self.token.encode()),
        }
        return next((refusal(status, text) for (status, text), holds in faults.items() if holds), None)


def _texts(package: str, title: str, scripts: Sequence[str], token: str) -> dict[str, tuple[str, str]]:
    """Return path -> (text, kind) of the files that do not change: the page, its styles and scripts."""
    page = _text(__package__, "shell.html").replace("@TITLE@", title).replace("@BODY@", _text(package, "page.html"))
    texts = {"/": (page.replace("@TOKEN@", token), "html"), "/style.css": (_text("robo_rl", "report/style.css"), "css")}
    return texts | {f"/{name}": (_text(package, name), name.rpartition(".")[2]) for name in ("page.css", *scripts)}


def _websockets(routes: Sequence[BaseRoute], connections: Connections) -> Any:
    """Return the websocket protocol if a route needs it, else "none"; raises MissingExtra."""
    if not any(isinstance(route, WebSocketRoute) for route in routes):
        return "none"
    from robo_rl.system.pages.sockets import Websocket

    return partial(Websocket, connections)


class _Server(uvicorn.Server):
    """Server that accepts few connections in a turn, and lets many wait."""

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(WAITING)


def read(path: str, answer: Callable[[Request], object]) -> Route:
    """Make the route for a resource that the page reads (GET).

    answer: runs in a thread; returns a Response, or a value that is sent as JSON.
    """

    def endpoint(request: Request) -> Response:
        return as_response(answer(request))

    return Route(path, endpoint)


def write(path: str, answer: Callable[[Request, Any], object]) -> Route:
    """Make the route for a resource that the page writes (POST).

    answer: runs in a thread, with the JSON value of the body (None if it is not JSON); returns a Response, or a value that is
    sent as JSON.
    """

    async def endpoint(request: Request) -> Response:
        body = await _body(request)
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        return as_response(await run_in_threadpool(answer, request, found))

    return Route(path, endpoint, methods=["POST"])


def as_response(value: object) -> Response:
    """Return a response unchanged, and any other value as a JSON response."""
    return value if isinstance(value, Response) else _json(value)


def refusal(status: int, text: str) -> Response:
    """Make an error response with this HTTP status; the page displays the text."""
    return _json({"error": text}, status)


def _json(value: object, status: int = HTTPStatus.OK) -> Response:
    return Response(json.dumps(_plain(value), allow_nan=False), status, media_type="application/json")


def _plain(value: Any) -> Any:
    """Return JSON values, with "NaN", "Infinity" and "-Infinity" in place of non-finite numbers, which JSON lacks."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(IDLE):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST_BODY:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {LARGEST_BODY} bytes.")
    except TimeoutError:
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, f"A request arrives within {IDLE} s.") from None
    return bytes(body)


def _refused(request: Request, error: HTTPException) -> Response:
    if error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return refusal(HTTPStatus.NOT_FOUND, "There is no such address here.")
    return refusal(error.status_code, error.detail)


def _failed(request: Request, error: RoboRLError) -> Response:
    return refusal(STATUS.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR), str(error))


def _gone(request: Request, error: ClientDisconnect) -> Response:
    return Response()  # never read


def _fault(request: Request, error: Exception) -> Response:
    """Return the response for an unexpected error, which must not stop the server."""
    traceback.print_exception(error)
    return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"The server failed. {type(error).__name__}: {error}")


def _nothing(request: h11.Request) -> None:
    """Accept any request before its body."""


def _not_understood(status: int, words: str) -> tuple[Mapping[str, str], bytes]:
    answer = refusal(status, words)
    return {**answer.headers, **HEADERS, "connection": "close"}, bytes(answer.body)


def _constant(text: str, kind: str) -> Callable[[Request], Response]:
    return lambda _: Response(text, media_type=kind)


def _text(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text("utf-8")
