"""Messages between the HTTP process and the arm's process: the length in four bytes, then the content. No pickle is used.

A request is JSON of method, path and body, at most LARGEST_REQUEST bytes. An answer is JSON of status and headers, a line
break, and the body.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

LARGEST_REQUEST = 1 << 15
"""[bytes] largest JSON of a request"""
LARGEST_ANSWER = 1 << 26
"""[bytes] largest answer, which leaves room for a large picture"""
LENGTH = struct.Struct("!I")


class Request(NamedTuple):
    """HTTP request that is well-formed and bounded in size."""

    method: str
    path: str
    body: Mapping[str, Any] | None
    """JSON object in the body of the request; None if it has none."""


class Answer(NamedTuple):
    """Answer to an HTTP request."""

    status: int
    """HTTP status"""
    headers: Mapping[str, str]
    body: bytes


def encode_request(request: Request) -> bytes | None:
    """Encode a request as its length (4 bytes, big-endian) and JSON.

    Returns:
        The bytes to send; None if the JSON is longer than `LARGEST_REQUEST`.
    """
    content = json.dumps(request, separators=(",", ":")).encode()
    return LENGTH.pack(len(content)) + content if len(content) <= LARGEST_REQUEST else None


def receive_request(channel: socket.socket) -> Request | None:
    """Wait for the next request and decode it.

    Returns:
        The request; None if the other process has ended.

    Raises:
        ValueError: The request is malformed or too large.
    """
    size = _receive(channel, LENGTH.size)
    if size is None:
        return None
    (length,) = LENGTH.unpack(size)
    if length > LARGEST_REQUEST:
        raise ValueError(f"a request of {length} bytes")
    content = _receive(channel, length)
    if content is None:
        return None
    method, path, body = json.loads(content)
    if not isinstance(method, str) or not isinstance(path, str) or not isinstance(body, dict | None):
        raise ValueError("a request of other types")
    return Request(method, path, body)


def send_answer(channel: socket.socket, answer: Answer) -> None:
    """Send an answer.

    Raises:
        OSError: The other process has ended.
        ValueError: The answer is larger than `LARGEST_ANSWER`.
    """
    head = json.dumps([answer.status, answer.headers]).encode() + b"\n"
    size = len(head) + len(answer.body)
    if size > LARGEST_ANSWER:
        raise ValueError(f"an answer of {size} bytes")
    channel.sendall(LENGTH.pack(size) + head + answer.body)


def decode_answer(content: bytes) -> Answer:
    """Decode the content of a message, without its length, into an answer."""
    head, _, body = content.partition(b"\n")
    status, headers = json.loads(head)
    return Answer(status, headers, body)


def _receive(channel: socket.socket, size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        part = channel.recv(size - len(content))
        if not part:
            return None
        content += part
    return bytes(content)
