"""A chat-completions server on this machine: it speaks the protocol as OpenAI's does, and has every fault on demand."""

from __future__ import annotations

import base64
import json
import socket
import socketserver
import struct
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2
import numpy as np
import pytest

KEY = "sk-test-5ecret"
FIELDS = {"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "response_format", "seed", "stream"}
Reply = Callable[["_Handler"], None]


class ChatServer(ThreadingHTTPServer):
    """Answers each request with the next scripted reply, and with `answer` where the script is at its end."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.over = threading.Event()
        self.reset()

    def reset(self) -> None:
        self.over.set()
        self.over = threading.Event()
        self.script: deque[Reply] = deque()
        self.asked: list[dict] = []  # bodies
        self.headers: list[dict] = []
        self.model, self.reported = "judge", "judge-2026-11-01"
        self.answer: Callable[[list[str], list[np.ndarray]], str] = lambda words, pictures: "{}"
        self.lock, self.under_way, self.most_under_way = threading.Lock(), 0, 0
        self.connections = 0

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request, client_address) -> None:
        """A client that leaves is no fault."""

    # what a script is made of
    @staticmethod
    def say(words, finish="stop", **facts) -> Reply:
        return lambda handler: handler.complete(words, finish, **facts)

    @staticmethod
    def fail(status, message="no", code=None, **headers) -> Reply:
        return lambda handler: handler.error(status, message, code, **{k.replace("_", "-"): v for k, v in headers.items()})

    @staticmethod
    def send(body: bytes, status=200, length=None, **headers) -> Reply:
        """Any bytes; with a larger length the connection ends before they do."""
        return lambda handler: handler.send(status, body, length=length, **{"Content-Type": "text/html", **headers})

    @staticmethod
    def cut() -> Reply:
        """The connection is reset before an answer."""
        return lambda handler: handler.cut()

    @staticmethod
    def hang() -> Reply:
        """No answer until the test ends."""
        return lambda handler: handler.server.over.wait(20) and None

    @staticmethod
    def drip() -> Reply:
        """A byte now and then, so that no single read takes too long."""
        return lambda handler: handler.drip()


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a reply goes out in two writes, and its connection stays open

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def log_message(self, format, *args) -> None:
        pass

    def do_GET(self) -> None:
        if self.allowed() and self.path == "/v1/models":
            entry = {"id": self.server.model, "object": "model", "created": 1, "owned_by": "test"}
            self.json(200, {"object": "list", "data": [entry]})
        else:
            self.error(404, f"Invalid URL (GET {self.path})", "unknown_url")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked.append(body)
            server.headers.append(dict(self.headers))
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
            reply = server.script.popleft() if server.script else partial(_Handler.answer, body=body)
        try:
            if self.allowed() and self.is_right(body):
                reply(self)
        finally:
            with server.lock:
                server.under_way -= 1

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {KEY}":
            return True
        self.error(401, f"Incorrect API key provided: {self.headers.get('Authorization')}.", "invalid_api_key")
        return False

    def is_right(self, body) -> bool:
        if self.path != "/v1/chat/completions":
            self.error(404, f"Invalid URL (POST {self.path})", "unknown_url")
        elif unknown := body.keys() - FIELDS:
            self.error(400, f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}", None)
        elif body["model"] != self.server.model:
            self.error(404, f"The model `{body['model']}` does not exist", "model_not_found")
        else:
            try:
                words_and_pictures(body)
                form = body.get("response_format", {"type": "text"})
                assert form["type"] in ("text", "json_object", "json_schema"), "response_format"
                if form["type"] == "json_schema":
                    assert form["json_schema"].keys() >= {"name", "schema"}, "json_schema"
                return True
            except (AssertionError, KeyError, TypeError, ValueError) as problem:
                self.error(400, f"Invalid request: {problem!r}", "invalid_value")
        return False

    def answer(self, body) -> None:
        self.complete(self.server.answer(*words_and_pictures(body)))

    def complete(self, words, finish="stop", refusal=None, model=None, usage=True) -> None:
        message = {"role": "assistant", "content": words, "refusal": refusal}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        reply = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "choices": [choice]}
        counts = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        self.json(200, reply | {"model": model or self.server.reported} | ({"usage": counts} if usage else {}))

    def error(self, status, message, code=None, **headers) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        self.json(status, {"error": error}, **headers)

    def json(self, status, found, **headers) -> None:
        self.send(status, json.dumps(found).encode(), **{"Content-Type": "application/json", **headers})

    def send(self, status, body, length=None, **headers) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": length or len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = length is not None

    def cut(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def drip(self) -> None:
        self.send(200, b"", length=10_000)
        while not self.server.over.wait(0.02):
            self.wfile.write(b" ")


def words_and_pictures(body) -> tuple[list[str], list[np.ndarray]]:
    """Returns what a model would see; raises where a message is none."""
    words, pictures = [], []
    for message in body["messages"]:
        assert message["role"] in ("system", "user", "assistant"), message["role"]
        parts = message["content"]
        for part in [{"type": "text", "text": parts}] if isinstance(parts, str) else parts:
            if part["type"] == "text":
                words.append(part["text"] + "")
                continue
            assert part["type"] == "image_url", part["type"]
            kind, _, data = part["image_url"]["url"].partition(";base64,")
            assert kind == "data:image/png", kind
            picture = cv2.imdecode(np.frombuffer(base64.b64decode(data, validate=True), np.uint8), cv2.IMREAD_COLOR)
            pictures.append(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB))
    return words, pictures


@pytest.fixture(scope="session")
def _chat_server():
    with ChatServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


@pytest.fixture
def chat_server(_chat_server, monkeypatch):
    """A server with the key that TEST_KEY holds."""
    monkeypatch.setenv("TEST_KEY", KEY)
    _chat_server.reset()
    yield _chat_server
    _chat_server.over.set()
