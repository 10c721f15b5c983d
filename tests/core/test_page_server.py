"""The server of pages, attacked: silence, endless requests, faults, and its end while a request is under way."""

import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from robo_rl.system.pages import server
from robo_rl.system.pages.connections import MOST_CONNECTIONS, Connections, Rank
from robo_rl.system.pages.protocol import MOST_AHEAD
from robo_rl.system.pages.server import LARGEST_BODY, LARGEST_MESSAGE, TOKEN_HEADER, PageServer, as_response, read, write

PACKAGE = "robo_datasets.comparison_page"


async def echo(link):
    await link.accept()
    async for text in link.iter_text():
        await link.send_text(text)


@contextmanager
def served(*routes):
    with PageServer(PACKAGE, "test", [*routes, WebSocketRoute("/echo", echo)], port=0) as found:
        yield found


def ask(page, path, *, method="GET", body=None):
    connection = HTTPConnection("127.0.0.1", page.port, timeout=20)
    own = {"Origin": page.url.rstrip("/"), TOKEN_HEADER: page.token} if method == "POST" else {}
    connection.request(method, path, body, own)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def talk(page):
    address = f"127.0.0.1:{page.port}"
    return connect(f"ws://{address}/echo", origin=f"http://{address}", compression=None, proxy=None)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_page_server_closes_silent_connections(monkeypatch, sent):
    monkeypatch.setattr(server, "IDLE", 0.3)
    with served() as page, socket.create_connection(("127.0.0.1", page.port), 20) as link:
        link.sendall(sent)
        while link.recv(1 << 16):
            pass


@pytest.mark.slow
def test_page_server_gives_up_a_body_that_does_not_come(monkeypatch):
    monkeypatch.setattr(server, "IDLE", 0.3)
    with served(write("/note", lambda *_: {})) as page, socket.create_connection(("127.0.0.1", page.port), 20) as link:
        head = f"POST /note HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n{TOKEN_HEADER}: {page.token}\r\n"
        link.sendall(head.encode() + b'Content-Length: 20\r\n\r\n{"a": ')
        assert link.recv(1 << 16).startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_page_server_keeps_a_silent_websocket(monkeypatch):
    monkeypatch.setattr(server, "IDLE", 0.2)
    with served() as page, talk(page) as link:
        time.sleep(0.6)
        link.send("still here")
        assert link.recv(timeout=20) == "still here"


def test_page_server_refuses_endless_bodies():
    taken = []
    with served(write("/note", lambda _, found: taken.append(found))) as page:
        parts = (b"[" + b"0," * 5000 for _ in range(100))
        assert ask(page, "/note", method="POST", body=parts)[0] == 413
        assert ask(page, "/note", method="POST", body=b" " * LARGEST_BODY)[0] == 200
    assert taken == [None]


def test_page_server_refuses_foreign_websockets():
    with served() as page:
        address = f"127.0.0.1:{page.port}"
        for origin in (None, "null", "http://evil.example", f"https://{address}"):
            with pytest.raises(Exception, match="403"):
                connect(f"ws://{address}/echo", origin=origin, proxy=None)


def test_page_server_closes_a_websocket_with_a_large_message():
    with served() as page, talk(page) as link:
        link.send("x" * LARGEST_MESSAGE)
        assert len(link.recv(timeout=20)) == LARGEST_MESSAGE
        with pytest.raises(ConnectionClosed):
            link.send("x" * (LARGEST_MESSAGE + 1))
            link.recv(timeout=20)


def test_page_server_survives_a_fault_and_says_it(capsys):
    with served(read("/fault", lambda _: 1 // 0)) as page:
        status, body = ask(page, "/fault")
        assert status == 500 and "ZeroDivisionError" in json.loads(body)["error"]
        assert ask(page, "/")[0] == 200
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_page_server_keeps_little_that_is_asked_ahead():
    """It ends the connection, or leaves the rest unread: which of both depends on how much arrives at once."""
    entered, leaves = threading.Event(), threading.Event()

    def wait(_):
        entered.set()
        leaves.wait(60)

    with served(read("/wait", wait)) as page, socket.create_connection(("127.0.0.1", page.port), 60) as link:
        ask = b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n"
        link.sendall(ask)
        assert entered.wait(20)
        link.settimeout(2)
        with pytest.raises((ConnectionError, TimeoutError)):  # the buffers of the two sockets hold a few megabytes
            link.sendall(ask * (1024 * MOST_AHEAD // len(ask)))
        leaves.set()


HOSTILE = ("", "GET / HTTP/1.1\r\nHost: loc", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "websocket")


def hostile(page, kind):
    link = socket.create_connection(("127.0.0.1", page.port), 60)
    if kind == "websocket":
        lines = ["GET /echo HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {'A' * 22}=="]
        address = f"127.0.0.1:{page.port}"
        lines += ["Sec-WebSocket-Version: 13", f"Host: {address}", f"Origin: http://{address}", "", ""]
        link.sendall("\r\n".join(lines).encode())
    else:
        link.sendall(kind.encode())
    return link


def test_page_server_keeps_those_with_the_token():
    """600 strangers: half open ones, slow headers, idle ones after an answer, websockets that say nothing."""

    async def trusted(link):
        await link.accept()
        async for text in link.iter_text():
            if text == "token":
                page.trust(link)
            await link.send_text(text)

    most = 0
    with served(WebSocketRoute("/trusted", trusted)) as page, ExitStack() as strangers:
        address = f"127.0.0.1:{page.port}"
        with connect(f"ws://{address}/trusted", origin=f"http://{address}", compression=None, proxy=None) as mine:
            mine.send("token")
            assert mine.recv(timeout=20) == "token"
            for number in range(600):
                strangers.enter_context(hostile(page, HOSTILE[number % len(HOSTILE)]))
                most = max(most, len(page._connections))
            begun = time.monotonic()
            while most <= 64 and time.monotonic() - begun < 20:  # the server takes them when the machine lets it
                time.sleep(0.01)
                most = max(most, len(page._connections))
            begun = time.monotonic()
            mine.send("stop")
            assert mine.recv(timeout=20) == "stop"
            assert time.monotonic() - begun < 5
            assert ask(page, "/page.css")[0] == 200, "a new page opens, too"
        assert 64 < most <= MOST_CONNECTIONS


def test_connections_displace_the_oldest_of_the_least_rank():
    class Transport:
        is_aborted = False

        def abort(self):
            self.is_aborted = True

    def closed():
        return [number for number, transport in enumerate(opened) if transport.is_aborted]

    connections, opened = Connections(4), [Transport() for _ in range(9)]
    for transport in opened[:4]:
        connections.add(transport)
    for number, rank in ((0, Rank.ASKING), (1, Rank.IDLE), (2, Rank.TRUSTED)):
        connections.rank(opened[number], rank)
    wanted = [3, 4, 5]
    for number in (4, 5, 6):  # each newcomer has sent nothing when the next one comes
        connections.add(opened[number])
        assert closed() == wanted[: number - 3]
    connections.rank(opened[6], Rank.IDLE)
    connections.add(opened[7])
    assert closed() == [1, 3, 4, 5]
    connections.remove(opened[6])
    connections.add(opened[8])
    assert closed() == [1, 3, 4, 5] and len(connections) == 4


def test_page_server_ends_while_it_answers(monkeypatch):
    monkeypatch.setattr(server, "ENDS", 0.2)
    entered = threading.Event()

    async def wait(request):
        entered.set()
        await server.asyncio.sleep(60)
        return as_response({})

    with served(Route("/wait", wait)) as page, talk(page) as link, socket.create_connection(("127.0.0.1", page.port)) as other:
        other.sendall(b"GET /wait HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert entered.wait(20)
        before = time.monotonic()
        page.close()
        assert time.monotonic() - before < 20
        with pytest.raises(ConnectionClosed):
            link.recv(timeout=20)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", page.port), 5)
