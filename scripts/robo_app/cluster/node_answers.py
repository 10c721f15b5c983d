"""Shared answers and budget of judges for many workers, in a separate process on the command's machine.

A worker contacts it before and after each question, so that an answer is on disk before the worker's next question.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from typing_extensions import override

from robo_rl.cluster.connection import Cluster
from robo_rl.cluster.environment import ray_library
from robo_rl.cluster.host import Host, content_of, made_of
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.rewards import RewardModel
from robo_rl.rewards.chat.client import SILENT, ModelClient, StoreBudget
from robo_rl.rewards.chat.models import Paid, Terms
from robo_rl.rewards.chat.question import Answer, Question
from robo_rl.rewards.chat.store import Answers, AnswerStore
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judges.rewards import WithJudge
from robo_rl.rewards.shaping.pipeline import RewardPipeline
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.system.user_cache import user_cache

NAME = "answers"
LONGEST = 900.0
"""[s] after which a pending question is dropped: its worker was killed."""
PAUSE = 0.05
"""[s] between two checks of the budget."""


class Ledger:
    """Reads and writes the files of answers for all workers, and says which question the budget still allows."""

    def __init__(self, usual: bytes) -> None:
        """usual: folder of answers of judges that name none."""
        self._usual = usual.decode()
        self._under_way: dict[str, dict[str, float]] = {}
        """Judge -> key of a question -> until when it counts."""
        self._largest: dict[str, tuple[int, int]] = {}
        """Judge -> most tokens that one of its questions and answers had."""

    def read(self, content: bytes) -> bytes:
        """Return the stored answers to questions."""
        message = unpacked(content)
        with self._opened(message) as kept:
            return packed({key: asdict(answer) for key, answer in kept.read(message["keys"]).items()})

    def spent(self, content: bytes) -> bytes:
        """Return the cost of a judge, by model."""
        message = unpacked(content)
        with self._opened(message) as kept:
            return packed({model: list(tokens) for model, tokens in kept.spent(message["judge"]).items()})

    def add(self, content: bytes) -> bytes:
        """Store an answer durably; its question is no longer pending."""
        message = unpacked(content)
        answer = Answer(**message["answer"])
        with self._opened(message) as kept:
            kept.add(message["key"], message["judge"], answer)
        most = self._largest.get(message["judge"], (0, 0))
        self._largest[message["judge"]] = max(most[0], answer.prompt_tokens), max(most[1], answer.completion_tokens)
        return self.release(content)

    def release(self, content: bytes) -> bytes:
        """Drop a pending question."""
        message = unpacked(content)
        self._under_way.get(message["judge"], {}).pop(message["key"], None)
        return b""

    def reserve(self, content: bytes) -> bytes:
        """Return b"yes", b"no", or b"wait" while pending questions could use up the budget."""
        message = unpacked(content)
        judge, terms = message["judge"], Terms(**message["terms"])
        now = time.monotonic()
        running = {key: until for key, until in self._under_way.get(judge, {}).items() if until > now and key != message["key"]}
        with self._opened(message) as kept:
            before = [sum(tokens) for tokens in zip((0, 0), *kept.spent(judge).values(), strict=True)]
        if _is_spent(terms, *before):
            return b"no"
        most = self._largest.get(judge)
        if running and (most is None or _is_spent(terms, *(b + len(running) * m for b, m in zip(before, most, strict=True)))):
            return b"wait"
        self._under_way[judge] = running | {message["key"]: now + LONGEST}
        return b"yes"

    @contextmanager
    def _opened(self, message: Mapping[str, Any]) -> Iterator[Answers]:
        with AnswerStore(message["folder"] or self._usual).opened() as kept:
            yield kept


def _is_spent(terms: Terms, prompts: int, completions: int) -> bool:
    cost = terms.cost(prompts, completions)
    return 0 < terms.most_tokens <= prompts + completions or 0 < terms.most_cost <= cost


def begin_ledger(cluster: Cluster) -> Any:
    """Start the ledger on the machine of this command; it lives as long as the returned object."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = cluster.ray
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"name": NAME, "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    kind, folder = "robo_app.cluster.node_answers:Ledger", str((user_cache() / "answers").absolute())
    return ray.remote(Host).options(**options).remote(*made_of(kind, folder.encode()))


class SharedAnswers(AnswerStore):
    """The ledger's answers as a worker sees them."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder

    @contextmanager
    @override
    def opened(self) -> Iterator[Answers]:
        yield _Told(self._folder)


class _Told(Answers):
    """Asks the ledger."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, keys: Iterable[str]) -> dict[str, Answer]:
        return {key: Answer(**message) for key, message in unpacked(_asked("read", folder=self._folder, keys=[*keys])).items()}

    def add(self, key: str, judge: str, answer: Answer) -> None:
        _asked("add", folder=self._folder, key=key, judge=judge, answer=asdict(answer))

    def spent(self, judge: str) -> Mapping[str, tuple[int, int]]:
        found = unpacked(_asked("spent", folder=self._folder, judge=judge))
        return {model: (prompts, completions) for model, (prompts, completions) in found.items()}


class Allowance(StoreBudget):
    """Budget that is reserved in the ledger before each question."""

    def __init__(self, model: Paid) -> None:
        super().__init__(model.terms)
        self._judge, self._terms = ":".join(model.identity), model.terms

    @override
    def may_ask(self, question: Question) -> bool:
        """Return whether the budget allows a question, after waiting for the pending ones of others."""
        if not super().may_ask(question):
            return False
        message = {**self._message(question), "terms": asdict(self._terms)}
        while (verdict := _asked("reserve", **message)) == b"wait":
            time.sleep(PAUSE)
        return verdict == b"yes"

    @override
    def heard(self, question: Question, answer: Answer) -> None:
        """Release the reservation if no answer came; a stored answer releases it, too."""
        if answer.status in SILENT:
            _asked("release", **self._message(question))

    def _message(self, question: Question) -> dict[str, Any]:
        key = hash_of(self._judge.encode(), question.hash.encode())
        return {"folder": self._terms.cache, "judge": self._judge, "key": key}


def share_answers(model: RewardModel, workers: int) -> None:
    """Make the judges of a reward store their answers in the ledger; raises InvalidSetting if they cannot be shared.

    workers: number of workers that share the rate limit. With a budget each has one pending question at a time.
    """
    for part in parts_of(model):
        if isinstance(part, WithJudge):
            judge: Any = part.asking.model
            changed: dict[str, Any] = {}
            if pace := getattr(judge, "requests_per_minute", 0.0):
                changed["requests_per_minute"] = pace / workers
            if judge.terms.is_limited and hasattr(judge, "concurrency"):
                changed["concurrency"] = 1
            judge = replace(judge, **changed) if changed else judge
            budget = Allowance(judge) if judge.terms.is_limited else None
            part.ask_by(ModelClient(judge, budget=budget, store=SharedAnswers(judge.terms.cache)))


def require_shareable(model: RewardModel) -> None:
    """Raise InvalidSetting for a reward that one process alone can ask."""
    if wrong := [type(part).__name__ for part in parts_of(model) if hasattr(part, "llm")]:
        raise InvalidSetting(
            "This reward asks a language model through a log of its own, which one process writes.",
            got=", ".join(wrong),
            fix="label without --ray",
        )


def asks_judges(model: RewardModel) -> bool:
    """Return whether there are judges to share."""
    return any(isinstance(part, WithJudge) for part in parts_of(model))


def parts_of(model: RewardModel) -> list[Any]:
    """Return a reward, or the sources of a pipeline."""
    if not isinstance(model, RewardPipeline):
        return [model]
    return [part for source in model.parts if source.model is not None for part in parts_of(source.model)]


def _asked(method: str, **message: Any) -> bytes:
    ray = ray_library()
    reply: bytes = ray.get(ray.get_actor(NAME).call.remote(method, packed(message)))
    return content_of(NAME, reply)
