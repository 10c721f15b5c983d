"""The judge `endpoint`: any server with OpenAI's chat-completions interface."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from robo_rl.errors import InvalidSetting, JudgeUnavailable, MissingExtra, QuestionNotAccepted, require_allowed
from robo_rl.rewards.chat.models import Terms
from robo_rl.rewards.chat.question import FINGERPRINT, Answer, Picture, Question, data_url, form_in_words
from robo_rl.rewards.identity import hash_of

if TYPE_CHECKING:
    from robo_rl.rewards.chat.transport import Connections, Pace, Transport

NEAR_NAME = re.compile(r"(?!(?:0x[0-9a-f]*|[0-9]+)$)[a-z0-9_-]+", re.IGNORECASE)
"""Host name without a domain. Resolvers read a number as an address (134744072 as 8.8.8.8), and other characters as dots."""
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
ANSWERS_FOLLOW_FROM = ("base_url", "model", "temperature", "max_tokens", "response_format", "longest_side", "extra")
FORMAT = 1
"""Version of the layout of messages, which is part of the model's identity."""
MOST_TOKENS = 10**9
"""Largest number of tokens of a question or answer that is believed; small enough for sums to fit into a database."""
LONGEST_NAME = 200
"""Largest number of characters of a model's own name."""


@dataclass(frozen=True)
class Endpoint:
    """Judge behind any server with OpenAI's chat-completions interface: OpenAI, vLLM, Ollama, llama.cpp, Gemini's."""

    model: str = ""
    """Name of the model on the server; prefer a fixed version, because an alias may change its meaning."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address before /chat/completions; the default is vLLM's on this machine, Ollama's is http://127.0.0.1:11434/v1."""
    key_variable: str = ""
    """Name of the environment variable that holds the key, such as OPENAI_API_KEY; empty for a server without keys."""
    temperature: float = 0.0
    """Temperature of sampling, 0 or more; at 0 answers repeat as well as the server can."""
    max_tokens: int = 1024
    """Largest number of tokens of an answer, 1 or more; a longer one is cut and counts as missing."""
    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    """Request field that asks for a form; "none" for servers without it. The prompt always states the form, too."""
    longest_side: int = 0
    """[pixels] to which the longer side of pictures is resized; 0 sends them unchanged."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as {seed: 0}; null removes a field, such as {max_tokens: null}."""
    timeout_s: float = 60.0
    """[s] for one attempt."""
    retries: int = 4
    """Further attempts after a temporary fault: no connection, HTTP 408, 409, 425, 429, 5xx."""
    deadline_s: float = 300.0
    """[s] for one question with all its attempts and waiting times."""
    longest_wait_s: float = 60.0
    """[s] largest wait between two attempts, even if the server asks for more (Retry-After)."""
    concurrency: int = 4
    """Questions that are sent at once, 1 or more."""
    requests_per_minute: float = 0.0
    """Largest number of attempts per minute; 0 for no limit."""
    terms: Terms = field(default_factory=Terms)
    """Budget, prices and cache."""

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidSetting(
                "Which model?",
                got="no model in the settings of the judge endpoint",
                allowed="a name as the server calls it",
                fix="--reward.settings.judge_settings.model NAME, or --llm.settings.model NAME of a language model; "
                "without a server --reward.settings.judge chance guesses, and --llm pack:NAME replies by hand",
            )
        if self.key_variable and not VARIABLE.fullmatch(self.key_variable):  # may be the key itself: not shown
            raise InvalidSetting(
                "key_variable is not a name of a variable.", allowed="such as OPENAI_API_KEY; never the key itself"
            )
        _require_address(self.base_url, with_key=bool(self.key_variable))
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("max_tokens", "concurrency")}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("temperature", "longest_side", "retries")}
        allowed |= {name: (0 < getattr(self, name) < 1e6, "above 0") for name in ("timeout_s", "deadline_s", "longest_wait_s")}
        require_allowed(self, allowed | {"requests_per_minute": (0 <= self.requests_per_minute < 1e6, "0 or more")})

    @property
    def identity(self) -> tuple[str, str]:
        """Name of the judge with that of the model, and a hash of all settings that the answers depend on."""
        settings = {name: getattr(self, name) for name in ANSWERS_FOLLOW_FROM}
        return f"endpoint {self.model}", hash_of(json.dumps([FORMAT, settings], sort_keys=True).encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield (number of the question, answer) as the answers arrive; several questions are asked at once.

        Raises:
            JudgeUnavailable: The key is missing or rejected, the model is unknown, or the server does not accept the question.
        """
        numbered, running, stop = enumerate(questions), dict[Future[Answer], int](), threading.Event()
        _ = self._pace, self._connections  # made here, once, and not by each thread
        with ThreadPoolExecutor(self.concurrency) as pool:
            try:
                while True:
                    for number, question in islice(numbered, self.concurrency - len(running)):
                        running[pool.submit(self._answer, question, stop)] = number
                    if not running:
                        return
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    if any(future.exception() for future in done):
                        stop.set()  # no retries, but requests under way are paid for
                        done, _ = wait(running)
                    for future in sorted(done, key=_turn):
                        yield running.pop(future), future.result()
            finally:
                stop.set()

    def _answer(self, question: Question, stop: threading.Event) -> Answer:
        transports = self._transports
        timeouts = transports.Timeouts(self.timeout_s, self.deadline_s, self.retries, self.longest_wait_s)
        transport = transports.Transport(self.require_key(), timeouts, self._pace, self._connections, stop)
        started = time.monotonic()
        try:
            answer = _answer_in(transport.post(self.request(question)), transport)
        except QuestionNotAccepted as problem:
            if question.sample is None:
                raise
            answer = Answer("not accepted", text=str(problem))  # a talk that grew too long: the next one need not
        except transports.NoReply as problem:
            answer = Answer(problem.status, text="" if problem.status == "garbage" else str(problem))
        return replace(answer, attempts=transport.attempts, seconds=time.monotonic() - started)

    def request(self, question: Question) -> Mapping[str, Any]:
        """Return the body of the request for a question."""
        parts = [*question.parts, *filter(None, [form_in_words(question)])]
        has_pictures = not all(isinstance(part, str) for part in parts)
        content = [self._part(part) for part in parts] if has_pictures else "\n\n".join(map(str, parts))
        said = [("system", question.system)] if question.system else []
        messages = [{"role": role, "content": words} for role, words in (*said, *question.turns)]
        body: dict[str, Any] = {"model": self.model, "messages": [*messages, {"role": "user", "content": content}]}
        temperature = self.temperature if question.temperature is None else question.temperature
        body |= {"temperature": temperature, "max_tokens": self.max_tokens}
        if question.form and self.response_format == "json_schema":
            schema = {"name": "answer", "strict": True, "schema": question.schema}
            body |= {"response_format": {"type": "json_schema", "json_schema": schema}}
        elif question.form and self.response_format == "json_object":
            body |= {"response_format": {"type": "json_object"}}
        body |= self.extra
        if isinstance(body.get("seed"), int) and question.sample:
            body["seed"] += question.sample  # one seed would give one answer n times
        return {name: value for name, value in body.items() if value is not None}

    def _part(self, part: str | Picture) -> Mapping[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        return {"type": "image_url", "image_url": {"url": data_url(part, self.longest_side)}}

    def require_key(self) -> str:
        """Return the key for the server, "" for a server without keys.

        Raises JudgeUnavailable if it is missing or malformed.
        """
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else ""
        if self.key_variable and not key:
            raise JudgeUnavailable(
                f"There is no key for {self.base_url}.",
                got=f"the environment variable {self.key_variable} is empty or not set",
                fix=f"export {self.key_variable}=...; a question that was answered before needs none",
            )
        if not (key.isascii() and key.isprintable()):  # nor does it fit into a header; not shown
            raise JudgeUnavailable(
                f"The environment variable {self.key_variable} holds no key.",
                got="line breaks, or characters that are not ASCII",
                allowed="one line of printable ASCII characters",
                fix=f"export {self.key_variable}=... with the key alone; was it read from a file of several lines?",
            )
        return key

    @property
    def _transports(self) -> Any:
        """Module that needs OpenAI's client; imported at the first question, because that takes half a second."""
        try:
            return import_module("robo_rl.rewards.chat.transport")
        except ModuleNotFoundError as error:
            raise MissingExtra("A question to a server", error.name or "openai", "llm") from None

    @cached_property
    def _pace(self) -> Pace:
        made: Pace = self._transports.Pace(self.requests_per_minute)
        return made

    @cached_property
    def _connections(self) -> Connections:
        made: Connections = self._transports.Connections(
            self.base_url, self.concurrency, through_proxy=not _is_open_and_near(self.base_url)
        )
        return made


def _turn(future: Future[Answer]) -> int:
    """Return the order in which results are yielded: answers, then an error that ends everything, then missing answers."""
    if future.exception() is not None:
        return 1
    return 2 if future.result().status in ("unreachable", "too many requests") else 0


def _answer_in(reply: Mapping[str, Any], transport: Transport) -> Answer:
    """Return the answer in a chat completion; its status is "garbage" for any other reply."""
    usage = reply.get("usage")
    prompt, completion = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    names = [_storable(transport.redacted(str(reply.get(key) or "")))[:LONGEST_NAME] for key in ("model", "system_fingerprint")]
    facts = (FINGERPRINT.join(filter(None, names)), prompt, completion)
    try:
        choice = reply["choices"][0]
        message, reason = choice["message"], choice.get("finish_reason")
        refusal, words = message.get("refusal"), message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        return Answer("garbage", {}, "", *facts)
    if isinstance(words, list):  # some servers answer in parts
        words = "".join(str(part.get("text", "")) for part in words if isinstance(part, dict))
    raw = transport.redacted(_storable(words) if isinstance(words, str) else "")
    if refusal or reason == "content_filter":
        return Answer("refused", {}, transport.redacted(_storable(str(refusal or raw))), *facts)
    return Answer("cut" if reason == "length" else "ok" if raw.strip() else "garbage", {}, raw, *facts)


def _count(usage: object, name: str) -> int:
    """Return a number of tokens; 0 for an impossible value, or if the server does not count."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


def _storable(words: str) -> str:
    """Return text without lone surrogates, which can be neither sent nor stored."""
    return words.encode(errors="replace").decode()


def _require_address(url: str, with_key: bool) -> None:
    """Raise InvalidSetting for an unsuitable base_url, without showing secrets in it."""
    try:
        parts = urlsplit(url)
        host, is_address = parts.hostname or "", parts.scheme in ("http", "https")
    except ValueError:
        host, is_address = "", False
    if not is_address or not host:
        raise InvalidSetting("base_url is not an address.", got=repr(url), allowed="such as http://127.0.0.1:8000/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidSetting(
            "base_url holds more than an address.", fix="the key belongs into the variable that key_variable names"
        )
    if with_key and parts.scheme == "http" and not _is_near(host):
        raise InvalidSetting("A key would go over the network for everybody to read.", got=f"http://{host}", allowed="https")


def _is_open_and_near(url: str) -> bool:
    """Return True for plain http to a private host; a proxy could read key and prompts, so that none is used."""
    parts = urlsplit(url)
    return parts.scheme == "http" and _is_near(parts.hostname or "")


def _is_near(host: str) -> bool:
    """Return True for this machine and hosts of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return NEAR_NAME.fullmatch(host) is not None
