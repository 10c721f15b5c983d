"""Answers and budget of judges, shared by many workers on a Ray cluster.

One process, the Ledger, on the machine on which the command was given reads and writes the files of answers. Each worker calls
it before and after every question, so that an answer is on disk before the worker's next question.
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
"""Time after which the reservation of a question is dropped, because its worker was probably killed [s]."""
PAUSE = 0.05
"""Time between two checks of the budget [s]."""


class Ledger:
    """Process that reads and writes the files of answers for all workers, and reserves budget for their questions.

    Its methods take and return bytes, because Ray calls them from other machines.
    """

    def __init__(self, usual: bytes) -> None:
        """Open the ledger of a cluster training's answers.

        usual: path of the folder for the answers of judges whose settings name no folder.
        """
        self._usual = usual.decode()
        self._under_way: dict[str, dict[str, float]] = {}
        """Judge -> key of a reserved question -> time [s] until which the reservation holds."""
        self._largest: dict[str, tuple[int, int]] = {}
        """Judge -> largest numbers of tokens that one of its questions and one of its answers had so far."""

    def read(self, content: bytes) -> bytes:
        """Return the stored answers to the questions whose keys are in a packed message."""
        message = unpacked(content)
        with self._opened(message) as kept:
            return packed({key: asdict(answer) for key, answer in kept.read(message["keys"]).items()})

    def spent(self, content: bytes) -> bytes:
        """Return the tokens (prompts, completions) that a judge has used so far, by model."""
        message = unpacked(content)
        with self._opened(message) as kept:
            return packed({model: list(tokens) for model, tokens in kept.spent(message["judge"]).items()})

    def add(self, content: bytes) -> bytes:
        """Store a judge's answer on disk, and release the budget that was reserved for its question.

        content: packed message with the key of the question and the answer.
        """
        message = unpacked(content)
        answer = Answer(**message["answer"])
        with self._opened(message) as kept:
            kept.add(message["key"], message["judge"], answer)
        most = self._largest.get(message["judge"], (0, 0))
        self._largest[message["judge"]] = max(most[0], answer.prompt_tokens), max(most[1], answer.completion_tokens)
        return self.release(content)

    def release(self, content: bytes) -> bytes:
        """Release the reservation of a question."""
        message = unpacked(content)
        self._under_way.get(message["judge"], {}).pop(message["key"], None)
        return b""

    def reserve(self, content: bytes) -> bytes:
        """Reserve budget for a question.

        Returns b"yes" if the question may be asked, b"no" if the budget is used up, b"wait" if the reserved questions of other
        workers may still use it up.
        """
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
    """Start the Ledger on this machine, and return its Ray actor; the process ends when the actor is no longer referenced."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = cluster.ray
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"name": NAME, "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    kind, folder = "robo_app.cluster.node_answers:Ledger", str((user_cache() / "answers").absolute())
    return ray.remote(Host).options(**options).remote(*made_of(kind, folder.encode()))


class SharedAnswers(AnswerStore):
    """Store of answers that a worker uses; it calls the Ledger."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self._folder = folder

    @contextmanager
    @override
    def opened(self) -> Iterator[Answers]:
        yield _Told(self._folder)


class _Told(Answers):
    """Answers of one folder, read and written by calls of the Ledger."""

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
    """Budget of a judge that is shared by all workers: `may_ask` reserves it in the Ledger before each question."""

    def __init__(self, model: Paid) -> None:
        super().__init__(model.terms)
        self._judge, self._terms = ":".join(model.identity), model.terms

    @override
    def may_ask(self, question: Question) -> bool:
        """Return True, and reserve budget for a question, if the budget allows it; False if it is used up.

        It waits while the reserved questions of other workers may still use up the budget.
        """
        if not super().may_ask(question):
            return False
        message = {**self._message(question), "terms": asdict(self._terms)}
        while (verdict := _asked("reserve", **message)) == b"wait":
            time.sleep(PAUSE)
        return verdict == b"yes"

    @override
    def heard(self, question: Question, answer: Answer) -> None:
        """Release the reservation that `may_ask` made, if no answer came; otherwise storing the answer releases it."""
        if answer.status in SILENT:
            _asked("release", **self._message(question))

    def _message(self, question: Question) -> dict[str, Any]:
        key = hash_of(self._judge.encode(), question.hash.encode())
        return {"folder": self._terms.cache, "judge": self._judge, "key": key}


def share_answers(model: RewardModel, workers: int) -> None:
    """Change the judges of a reward so that they share stored answers, budget and rate limit with other workers.

    Their answers are then read and written by the Ledger (`begin_ledger`). The rate limit of a judge is divided by the number
    of workers. A judge with a budget has one question at a time in each worker.

    Args:
        model: The reward; it is changed in place.
        workers: Number of workers that have this reward.

    Raises:
        InvalidSetting: A judge cannot be shared.
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
    """Raise InvalidSetting for a reward that asks a language model through a log, which only one process can write."""
    if wrong := [type(part).__name__ for part in parts_of(model) if hasattr(part, "llm")]:
        raise InvalidSetting(
            "This reward asks a language model through a log of its own, which one process writes.",
            got=", ".join(wrong),
            fix="label without --ray",
        )


def asks_judges(model: RewardModel) -> bool:
    """Return True if a reward, or a source of it, asks a judge."""
    return any(isinstance(part, WithJudge) for part in parts_of(model))


def parts_of(model: RewardModel) -> list[Any]:
    """Return the reward models of which a reward pipeline consists, also inside nested pipelines.

    [model] if it is no pipeline.
    """
    if not isinstance(model, RewardPipeline):
        return [model]
    return [part for source in model.parts if source.model is not None for part in parts_of(source.model)]


def _asked(method: str, **message: Any) -> bytes:
    ray = ray_library()
    reply: bytes = ray.get(ray.get_actor(NAME).call.remote(method, packed(message)))
    return content_of(NAME, reply)
