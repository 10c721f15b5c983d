"""The console's server: one port, the page over HTTP and everything else over one websocket.

Reachable from this machine alone unless another address is named. Who does not know the token sees and commands nothing;
a page of another site is refused before it can say anything (its origin), and so is a foreign name that was made to point here.
"""

from __future__ import annotations

import secrets
import threading
from http import HTTPStatus
from importlib.resources import files

from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from robo_real.console.session import Console, Session
from robo_real.server.hosts import is_own_host
from robo_rl.errors import InvalidSetting

ADDRESS = "127.0.0.1"
LARGEST = 4096
"""bytes of a message of the page"""
SOCKET = "/socket"
STATIC = {
    "/": (__package__, "page.html", "text/html"),
    "/style.css": ("robo_rl", "report/style.css", "text/css"),
    "/page.css": (__package__, "page.css", "text/css"),
    "/page.js": (__package__, "page.js", "text/javascript"),
    "/controls.js": (__package__, "controls.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
}


class ConsoleServer:
    """Serves a console in a thread of its own."""

    def __init__(self, console: Console, *, address: str = ADDRESS, port: int = 0, token: str = "") -> None:
        """token: a new one by default. Raises InvalidSetting where the port cannot be had."""
        self.token = token or secrets.token_urlsafe(18)
        self._console, self._address = console, address
        try:
            self._server = serve(
                self._serve,
                address,
                port,
                process_request=self._answer,
                process_response=_with_headers,
                server_header=None,
                max_size=LARGEST,
                compression=None,
                ping_interval=None,  # the page speaks 20 times a second as it is
                close_timeout=1.0,
            )
        except (OSError, OverflowError) as error:
            raise InvalidSetting(
                f"Port {port} of {address} cannot be used.", got=error, allowed="a free port", fix="--port 0 takes any"
            ) from None
        self.port = int(self._server.socket.getsockname()[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="console", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page, with the token behind a # so that no log and no other page sees it."""
        return f"http://{self._address}:{self.port}/#{self.token}"

    def close(self) -> None:
        """Serves no more; connections are closed."""
        self._server.shutdown()
        self._thread.join()

    def _serve(self, connection: ServerConnection) -> None:
        Session(connection, self._console).serve(self.token)

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Returns a page or a refusal; None lets a websocket begin."""
        hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
        if len(hosts) != 1 or not is_own_host(hosts[0], self._address):
            return _response(HTTPStatus.FORBIDDEN, "This page has another address.")
        if request.path == SOCKET:
            if origins != [f"http://{hosts[0]}"]:
                return _response(HTTPStatus.FORBIDDEN, "Only the console's own page may command.")
            return None
        if request.path not in STATIC:
            return _response(HTTPStatus.NOT_FOUND, "There is no such address here.")
        package, name, kind = STATIC[request.path]
        return _response(HTTPStatus.OK, files(package).joinpath(name).read_text("utf-8"), kind)


def _with_headers(connection: ServerConnection, request: Request, response: Response) -> Response | None:
    """Return a refusal of the library's own with the headers of all others; None leaves a response as it is."""
    del connection, request
    if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS or "Content-Security-Policy" in response.headers:
        return None
    for name in HEADERS:
        if name in response.headers:
            del response.headers[name]
    response.headers.update(HEADERS)
    return response


def _response(status: HTTPStatus, text: str, kind: str = "text/plain") -> Response:
    body = text.encode()
    facts = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
    return Response(status, status.phrase, Headers(facts | HEADERS), body)
