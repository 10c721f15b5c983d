"""HTTP process of a served robot: sockets, HTTP and JSON of untrusted bytes, in one thread and bounded memory.

It shares no interpreter lock with guard and watchdog. Accepted requests go to the arm's process as small messages; answers
come back encoded. It imports only the standard library, and exits when the arm's process does.
"""

from __future__ import annotations

import hmac
import os
import selectors
import signal
import socket
import sys
import time
from collections import deque
from contextlib import suppress

from robo_real.server.http_syntax import LARGEST_BODY, LARGEST_HEAD, BadRequest, Head, parse_body, parse_head, refusal
from robo_real.server.messages import LARGEST_ANSWER, LENGTH, Request, encode_request
from robo_rl.system.pages.hosts import is_own_host

MOST_CONNECTIONS = 128
"""At this number one is closed: first the oldest without a request, last one whose request is being answered."""
READING, WRITING, IDLE, QUEUED, DRAINING = 5.0, 5.0, 60.0, 5.0, 1.0
"""[s] timeouts: a whole request, an answer, between two requests, for a free channel, after a refusal"""
SWEEP = 0.25
"""[s] period of the timeout check"""
STOP = "/robo/stop"
"""Needs no token: who reaches the robot may stop it."""
TOKEN_VARIABLE, TOKEN_HEADER = "ROBO_RL_ROBOT_TOKEN", "x-robo-token"
BEHIND = 5
"""Difference in real-time priority to the arm's process, which runs first."""
PART = 1 << 16
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Channel:
    """Channel to the arm's process; carries one request at a time."""

    def __init__(self, link: socket.socket, *, for_stops: bool) -> None:
        link.setblocking(False)
        self.link, self.for_stops = link, for_stops
        self.client: Client | None = None
        self._answer = bytearray()

    def send(self, client: Client, message: bytes) -> None:
        """Send a request; raises OSError if the arm's process has ended."""
        self.client = client
        self.link.sendall(message)  # fits: nothing else is under way

    def receive(self) -> bytes | None:
        """Return the answer, None while incomplete; raises EOFError if the arm's process has ended."""
        try:
            part = self.link.recv(PART)
        except BlockingIOError:
            return None
        if not part:
            raise EOFError
        self._answer += part
        if len(self._answer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._answer)
        if length > LARGEST_ANSWER:
            raise EOFError
        if len(self._answer) < LENGTH.size + length:
            return None
        answer = bytes(memoryview(self._answer)[LENGTH.size :])
        self._answer, self.client = bytearray(), None
        return answer


class Client:
    """One connection."""

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.link = link
        self.unread, self.unsent = bytearray(), memoryview(b"")
        self.head: Head | None = None
        self.message = b""
        self.requests = 0
        self.is_waiting = self.is_draining = self.is_closed = self.is_half_closed = False
        self.until = time.monotonic() + READING


class HttpProcess:
    """Serves connections until the arm's process ends."""

    def __init__(
        self, listener: socket.socket, control: socket.socket, links: list[socket.socket], address: str, token: str = ""
    ) -> None:
        """links: sockets to the arm's process; the first is reserved for stops. token: "" if none is asked for."""
        self._token = token
        self._selector = selectors.DefaultSelector()
        self._listener, self._control, self._address = listener, control, address
        self._channels = [Channel(link, for_stops=number == 0) for number, link in enumerate(links)]
        self._clients: set[Client] = set()
        self._queue: deque[Client] = deque()
        for link in (listener, control):
            link.setblocking(False)
            self._selector.register(link, selectors.EVENT_READ)
        for channel in self._channels:
            self._selector.register(channel.link, selectors.EVENT_READ, channel)

    def run(self) -> None:
        """Serve until the arm's process has ended."""
        swept = time.monotonic()
        while True:
            for key, events in self._selector.select(SWEEP):
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj is self._control:
                    if not (ping := self._control.recv(PART)):
                        return
                    self._control.send(ping)
                elif isinstance(key.data, Channel):
                    if not self._answered(key.data):
                        return
                elif not key.data.is_closed:
                    self._serve(key.data, events)
            if time.monotonic() - swept >= SWEEP:
                swept = time.monotonic()
                self._sweep(swept)

    def _accept(self) -> None:
        try:
            link, _ = self._listener.accept()
        except OSError:  # gone again, or no more file descriptors
            self._make_room(MOST_CONNECTIONS // 2)
            return
        self._make_room(MOST_CONNECTIONS - 1)
        client = Client(link)
        self._clients.add(client)
        self._selector.register(link, selectors.EVENT_READ, client)

    def _make_room(self, most: int) -> None:
        """Close connections until at most `most` are left."""
        while len(self._clients) > most:
            self._close(min(self._clients, key=self._importance))

    def _importance(self, client: Client) -> tuple[int, float]:
        """Return the rank of a connection; the least one is closed first, and among equals the oldest."""
        if client.is_waiting:
            return (3 if client.message and not self._is_stop(client) else 4), client.until
        return (2 if client.unsent else 1 if client.requests else 0), client.until

    def _serve(self, client: Client, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._write(client)
            if events & selectors.EVENT_READ and not client.is_closed:
                self._read(client)
        except OSError:
            self._close(client)

    def _read(self, client: Client) -> None:
        part = client.link.recv(PART)
        if client.is_draining:
            if not part:
                self._close(client)
            return
        if not part:  # half closed: complete requests are still answered
            if client.is_waiting or client.unsent:
                client.is_half_closed = True
                self._watch(client)
            else:
                self._close(client)
            return
        if not client.unread:
            client.until = time.monotonic() + READING
        client.unread += part
        self._parse(client)

    def _parse(self, client: Client) -> None:
        """Send on the next complete request; further ones wait for its answer."""
        if client.is_waiting or client.unsent:
            if len(client.unread) > LARGEST_HEAD + LARGEST_BODY:
                self._close(client)  # it does not wait for answers
            return
        try:
            if client.head is None and not self._parsed_head(client):
                return
            head = client.head
            assert head is not None
            if len(client.unread) < head.length:
                return
            body = bytes(client.unread[: head.length])
            del client.unread[: head.length]
            found = parse_body(body) if head.is_json and body else None
            message = encode_request(Request(head.method, head.path, found))
            if message is None:
                raise BadRequest(413, "The request is too large.")
        except BadRequest as error:
            self._refuse(client, error)
            return
        client.message, client.is_waiting, client.until = message, True, time.monotonic() + QUEUED
        self._hand_over(client)

    def _parsed_head(self, client: Client) -> bool:
        end = client.unread.find(b"\r\n\r\n")
        if end < 0 or end > LARGEST_HEAD:
            if len(client.unread) > LARGEST_HEAD:
                raise BadRequest(431, f"The headers of a request have at most {LARGEST_HEAD} bytes.")
            return False
        head = parse_head(bytes(client.unread[:end]))
        del client.unread[: end + 4]
        if "origin" in head.headers:
            raise BadRequest(403, "Pages in a browser may not speak with a robot.")
        if not is_own_host(head.headers.get("host", ""), self._address):
            raise BadRequest(403, "This robot's server has another address: use its number, or this machine's name.")
        shown = head.headers.get(TOKEN_HEADER, "")
        if self._token and head.path != STOP and not hmac.compare_digest(shown.encode(), self._token.encode()):
            raise BadRequest(401, f"This robot's server asks for its token: set {TOKEN_VARIABLE} as where it was started.")
        client.head = head
        if head.headers.get("expect", "").lower() == "100-continue" and len(client.unread) < head.length:
            client.link.send(CONTINUE)
        return True

    def _refuse(self, client: Client, error: BadRequest) -> None:
        """Send a refusal, discard input for a moment so that it arrives, then close."""
        client.is_draining, client.unread = True, bytearray()
        self._send(client, refusal(error))

    def _hand_over(self, client: Client) -> None:
        assert client.head is not None
        is_stop = client.head.path == STOP
        free = [each for each in self._channels if each.client is None and (is_stop or not each.for_stops)]
        if not free:
            self._queue.append(client)
            return
        free[0].send(client, client.message)
        client.message = b""
        client.until = float("inf")

    def _answered(self, channel: Channel) -> bool:
        """Pass on an answer of the arm's process; return False if that process has ended."""
        client = channel.client
        try:
            answer = channel.receive()
        except (EOFError, ConnectionError):
            return False
        if answer is None:
            return True
        while self._queue and channel.client is None:
            waiting = next((each for each in self._queue if not channel.for_stops or self._is_stop(each)), None)
            if waiting is None:
                break
            self._queue.remove(waiting)
            if not waiting.is_closed:
                self._hand_over(waiting)
        if client is None or client.is_closed:
            return True
        client.is_waiting, client.requests = False, client.requests + 1
        try:
            self._send(client, answer) if answer else self._close(client)
        except OSError:
            self._close(client)
        return True

    def _is_stop(self, client: Client) -> bool:
        return client.head is not None and client.head.path == STOP

    def _send(self, client: Client, answer: bytes) -> None:
        client.unsent, client.until = memoryview(answer), time.monotonic() + WRITING
        self._write(client)

    def _write(self, client: Client) -> None:
        with suppress(BlockingIOError):
            client.unsent = client.unsent[client.link.send(client.unsent) :]
        if not client.unsent:
            self._sent(client)
        if not client.is_closed:
            self._watch(client)

    def _sent(self, client: Client) -> None:
        head, client.head = client.head, None
        if client.is_draining:
            client.link.shutdown(socket.SHUT_WR)
            client.until = time.monotonic() + DRAINING
        elif client.is_half_closed or head is None or not head.is_kept:
            self._close(client)
        else:
            client.until = time.monotonic() + (READING if client.unread else IDLE)
            self._parse(client)

    def _watch(self, client: Client) -> None:
        wanted = (0 if client.is_half_closed else selectors.EVENT_READ) | (selectors.EVENT_WRITE if client.unsent else 0)
        known = client.link in self._selector.get_map()
        if wanted and known:
            self._selector.modify(client.link, wanted, client)
        elif wanted:
            self._selector.register(client.link, wanted, client)
        elif known:
            self._selector.unregister(client.link)

    def _sweep(self, now: float) -> None:
        for client in [client for client in self._clients if client.until < now]:
            if client.is_waiting:
                client.is_waiting = False
                with suppress(ValueError):
                    self._queue.remove(client)
                with suppress(OSError):
                    self._refuse(client, BadRequest(503, "The robot is busy with other requests."))
            else:
                self._close(client)

    def _close(self, client: Client) -> None:
        client.is_closed = True
        self._clients.discard(client)
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.link)
        client.link.close()


def main(arguments: list[str]) -> None:
    """Run the process. arguments: address, then descriptors of listening socket, channels and control socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the arm's process, which ends this one
    _run_behind()
    address, *descriptors = arguments
    listener, *links, control = (socket.socket(fileno=int(each)) for each in descriptors)
    with suppress(BrokenPipeError, ConnectionResetError):
        HttpProcess(listener, control, links, address, os.environ.get(TOKEN_VARIABLE, "")).run()


def _run_behind() -> None:
    """Lower the real-time priority below that of the arm's process, if it has one."""
    if hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) == os.SCHED_RR:
        lower = max(os.sched_getparam(0).sched_priority - BEHIND, 1)
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(lower))


if __name__ == "__main__":
    main(sys.argv[1:])
