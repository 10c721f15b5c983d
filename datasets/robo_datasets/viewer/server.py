"""A web server for a page of this machine, such as that of one dataset, reachable from this machine alone.

Other pages in the same browser are kept out: a request must name this machine as its host, which a foreign name that was
made to point here does not (DNS rebinding), and what writes must come from this page and know its token.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socketserver
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

from robo_datasets.dataset import Dataset
from robo_datasets.viewer.answers import Answer, get, post
from robo_datasets.viewer.reading import Reader
from robo_rl.errors import InvalidSetting, RoboRLError, UnknownName

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
TOKEN_HEADER = "X-Robo-Token"
LARGEST_BODY = 1 << 16
"""Bytes of a request: a note of the longest, with every character escaped."""
MOST_READ = 1 << 20
"""Bytes that are taken of a request which is refused: one that is cut off while it still sends never sees its answer."""
IDLE = 60.0
"""[s] after which a silent connection is closed."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class LocalServer(ThreadingHTTPServer, ABC):
    """Serves a page until it is shut down."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        """Binds to a port, 0 for any free one; raises InvalidSetting where it cannot be had."""
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            raise InvalidSetting(
                f"Port {port} of {ADDRESS} cannot be used.",
                got=error,
                allowed="a free port, 1024 to 65535",
                fix="--port 0 takes any free one",
            ) from None

    @abstractmethod
    def get(self, path: str) -> Answer:
        """Returns what lies at an address."""

    @abstractmethod
    def post(self, path: str, body: bytes) -> Answer:
        """Takes in what the page writes."""

    def server_bind(self) -> None:
        """Binds without asking the network for this machine's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports a fault, unless the browser only left before it had its answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


class ViewerServer(LocalServer):
    """Serves one dataset."""

    def __init__(self, dataset: Dataset, port: int) -> None:
        """Binds to a port, 0 for any free one; raises InvalidSetting where it cannot be had."""
        self.reader = Reader(dataset)
        super().__init__(port)

    @override
    def get(self, path: str) -> Answer:
        return get(path, self.reader, self.token)

    @override
    def post(self, path: str, body: bytes) -> Answer:
        return post(path, body, self.reader)


class _Handler(BaseHTTPRequestHandler):
    """One connection of a browser."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def do_GET(self) -> None:
        """Answers with what was asked for."""
        self._send(self._foreign_host() or self._guarded(self._get))

    def do_POST(self) -> None:
        """Takes in what the page writes."""
        body = self._body()
        self._send(self._foreign_host() or self._foreign_page() or self._guarded(lambda: self._post(body)))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that HTTP itself refuses, such as one that is too long, as any other refusal."""
        status, self.close_connection = HTTPStatus(code), True
        self._send(Answer.refusal(status, message or status.description))

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing for each request."""

    def _get(self) -> Answer:
        return self.server.get(self._own_path())

    def _own_path(self) -> str:
        """Return the path of the request; raises UnknownName for a whole address, as proxies are sent."""
        if not self.path.startswith("/"):
            raise UnknownName("address", self.path[:200], [], fix=f"open {self.server.url}")
        return self.path

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        return self.rfile.read(min(int(length), MOST_READ)) if re.fullmatch(r"[0-9]{1,9}", length) else b""

    def _post(self, body: bytes) -> Answer:
        if len(body) > LARGEST_BODY:
            return Answer.refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {LARGEST_BODY} bytes.")
        return self.server.post(self._own_path(), body)

    def _guarded(self, answer: Callable[[], Answer]) -> Answer:
        try:
            return answer()
        except RoboRLError as error:
            return Answer.to(error)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # one episode that we did not foresee must not take the page away
            traceback.print_exc()
            return Answer.refusal(HTTPStatus.INTERNAL_SERVER_ERROR, f"The server failed. {type(error).__name__}: {error}")

    def _foreign_host(self) -> Answer | None:
        """Returns a refusal unless the browser meant this machine; any port, because SSH may forward another one here."""
        hosts = self.headers.get_all("Host", [])
        if len(hosts) == 1 and re.sub(r":[0-9]{1,5}$", "", hosts[0]) in HOSTS:
            return None
        return Answer.refusal(HTTPStatus.FORBIDDEN, f"This page has the address {self.server.url} and no other.")

    def _foreign_page(self) -> Answer | None:
        """Returns a refusal unless the request was written by this page."""
        token = self.headers.get(TOKEN_HEADER, "")
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            return Answer.refusal(HTTPStatus.FORBIDDEN, "Only this page may write; the request comes from another.")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return Answer.refusal(HTTPStatus.FORBIDDEN, "The server was started anew; load the page again.")
        return None

    def _send(self, answer: Answer) -> None:
        # what was refused may have more that was not read: the next request would begin inside it
        self.close_connection = self.close_connection or (self.command == "POST" and answer.status != HTTPStatus.OK)
        self.request_version = "HTTP/1.1"  # what asks by another version is told by headers, too
        self.send_response(answer.status)
        keep = f"private, max-age={answer.keep}" if answer.keep else "no-store"
        connection = {"Connection": "close"} if self.close_connection else {}
        facts = {"Content-Type": answer.content_type, "Content-Length": str(len(answer.body)), "Cache-Control": keep}
        for name, value in (facts | connection | HEADERS).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Says what answers."""
        return "robo-rl"
