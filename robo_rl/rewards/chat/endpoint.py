"""The judge `endpoint`: any server that speaks OpenAI's chat completions."""

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
"""A name without a domain. Resolvers take a number for an address (134744072 for 8.8.8.8), and other signs for dots."""
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
ANSWERS_FOLLOW_FROM = ("base_url", "model", "temperature", "max_tokens", "response_format", "longest_side", "extra")
FORMAT = 1
"""Version of the messages' layout, part of the identity."""
MOST_TOKENS = 10**9
"""In one question or answer: more than any model takes, and little enough for sums of them to fit into a database."""
LONGEST_NAME = 200
"""Characters of a model's name for itself."""


@dataclass(frozen=True)
class Endpoint:
    """Any server that speaks OpenAI's chat completions: OpenAI, vLLM, Ollama, llama.cpp, Gemini's compatible address."""

    model: str = ""
    """Name of the model on the server; a fixed version if it has some, because an alias may change its meaning."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address before /chat/completions; the default is vLLM's on this machine, Ollama's is http://127.0.0.1:11434/v1."""
    key_variable: str = ""
    """Name of the environment variable that holds the key, such as OPENAI_API_KEY; empty for a server that wants none."""
    temperature: float = 0.0
    """Temperature of sampling; at 0 answers repeat as well as the server can."""
    max_tokens: int = 1024
    """Most tokens of an answer; a longer one is cut, and then missing."""
    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    """Request field for the form; "none" for servers without one. The prompt always states the form, too."""
    longest_side: int = 0
    """[pixels] to which pictures are brought before they are sent; 0 sends them as they are."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the request, such as {seed: 0}; one that is null is left out, such as {max_tokens: null}."""
    timeout_s: float = 60.0
    """[s] for one attempt."""
    retries: int = 4
    """Attempts after the first if the fault may pass: no connection, HTTP 408, 409, 425, 429, 5xx."""
    deadline_s: float = 300.0
    """[s] for one question with all its attempts and waits."""
    longest_wait_s: float = 60.0
    """[s] between two attempts, even if the server asks for more (Retry-After)."""
    concurrency: int = 4
    """Questions under way at once."""
    requests_per_minute: float = 0.0
    """Attempts; 0 for no limit of ours."""
    terms: Terms = field(default_factory=Terms)
    """Budget, prices and cache."""

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidSetting("Which model?", fix="name it in the settings, as the server calls it: model=NAME")
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
        """The model's name, and a hash of all settings that the answers follow from."""
        settings = {name: getattr(self, name) for name in ANSWERS_FOLLOW_FROM}
        return f"endpoint {self.model}", hash_of(json.dumps([FORMAT, settings], sort_keys=True).encode())

    def ask(self, questions: Iterable[Question]) -> Iterator[tuple[int, Answer]]:
        """Yield each question's number with its answer as it comes in; several are under way at once.

        Raises JudgeUnavailable for a missing or rejected key, an unknown model, or a question that the server does not accept.
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
        """Return the key, empty for a server that wants none; raises JudgeUnavailable if it is missing or no key."""
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
        """The module that needs OpenAI's client; imported by the first question, because that takes half a second."""
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
    """Return the order of results: answers, then the error that ends everything, then missing answers."""
    if future.exception() is not None:
        return 1
    return 2 if future.result().status in ("unreachable", "too many requests") else 0


def _answer_in(reply: Mapping[str, Any], transport: Transport) -> Answer:
    """Return the answer in a chat completion, with the status "garbage" for any other reply."""
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
    """Return a number of tokens; 0 for impossible values, and for servers that do not count."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else 0


def _storable(words: str) -> str:
    """Return words without halves of surrogates, which can be neither sent on nor stored."""
    return words.encode(errors="replace").decode()


def _require_address(url: str, with_key: bool) -> None:
    """Raise InvalidSetting, without showing possible secrets."""
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
    """Return True for plain http to a near host: a proxy would read key and prompts, and may be anywhere."""
    parts = urlsplit(url)
    return parts.scheme == "http" and _is_near(parts.hostname or "")


def _is_near(host: str) -> bool:
    """Return True for this machine and for hosts of a private network."""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return NEAR_NAME.fullmatch(host) is not None
