"""Answers of judges that many workers ask, kept in one place and under one budget: in a process beside the command.

A worker asks it before and after each question, so that an answer is on disk before the same worker asks the next one.
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
from robo_rl.rewards.answer_cache import AnswerCache, Answers
from robo_rl.rewards.cached_judge import SILENT, CachedJudge, WithJudge
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.judging import Answer, Judge, Question, Terms
from robo_rl.rewards.pipeline import RewardPipeline
from robo_rl.rewards.user_cache import user_cache
from robo_rl.runs.checkpoints import packed, unpacked

NAME = "answers"
LONGEST = 900.0
"""[s] after which a question counts as under way no more: who asked it was killed."""
PAUSE = 0.05
"""[s] between two looks whether a question may be asked."""


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
        """Returns the answers to questions, as far as there are any."""
        told = unpacked(content)
        with self._opened(told) as kept:
            return packed({key: asdict(answer) for key, answer in kept.read(told["keys"]).items()})

    def spent(self, content: bytes) -> bytes:
        """Returns what a judge has cost, by model."""
        told = unpacked(content)
        with self._opened(told) as kept:
            return packed({model: list(tokens) for model, tokens in kept.spent(told["judge"]).items()})

    def add(self, content: bytes) -> bytes:
        """Stores an answer durably; its question is under way no more."""
        told = unpacked(content)
        answer = Answer(**told["answer"])
        with self._opened(told) as kept:
            kept.add(told["key"], told["judge"], answer)
        most = self._largest.get(told["judge"], (0, 0))
        self._largest[told["judge"]] = max(most[0], answer.prompt_tokens), max(most[1], answer.completion_tokens)
        return self.release(content)

    def release(self, content: bytes) -> bytes:
        """Takes note that a question is under way no more."""
        told = unpacked(content)
        self._under_way.get(told["judge"], {}).pop(told["key"], None)
        return b""

    def reserve(self, content: bytes) -> bytes:
        """Returns b"yes", b"no", or b"wait" while questions under way could use up the budget by themselves."""
        told = unpacked(content)
        judge, terms = told["judge"], Terms(**told["terms"])
        now = time.monotonic()
        running = {key: until for key, until in self._under_way.get(judge, {}).items() if until > now and key != told["key"]}
        with self._opened(told) as kept:
            before = [sum(tokens) for tokens in zip((0, 0), *kept.spent(judge).values(), strict=True)]
        if _is_spent(terms, *before):
            return b"no"
        most = self._largest.get(judge)
        if running and (most is None or _is_spent(terms, *(b + len(running) * m for b, m in zip(before, most, strict=True)))):
            return b"wait"
        self._under_way[judge] = running | {told["key"]: now + LONGEST}
        return b"yes"

    @contextmanager
    def _opened(self, told: Mapping[str, Any]) -> Iterator[Answers]:
        with AnswerCache(told["folder"] or self._usual).opened() as kept:
            yield kept


def _is_spent(terms: Terms, prompts: int, completions: int) -> bool:
    cost = terms.cost(prompts, completions)
    return 0 < terms.most_tokens <= prompts + completions or 0 < terms.most_cost <= cost


def begin_ledger(cluster: Cluster) -> Any:
    """Begins the ledger of this command on the machine of this command; it lives as long as what is returned is kept."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray = cluster.ray
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    options = {"name": NAME, "num_cpus": 0, "max_restarts": -1, "max_task_retries": -1, "scheduling_strategy": here}
    kind, folder = "robo_app.cluster.node_answers:Ledger", str((user_cache() / "answers").absolute())
    return ray.remote(Host).options(**options).remote(*made_of(kind, folder.encode()))


class SharedAnswers(AnswerCache):
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
        return {key: Answer(**told) for key, told in unpacked(_asked("read", folder=self._folder, keys=[*keys])).items()}

    def add(self, key: str, judge: str, answer: Answer) -> None:
        _asked("add", folder=self._folder, key=key, judge=judge, answer=asdict(answer))

    def spent(self, judge: str) -> Mapping[str, tuple[int, int]]:
        found = unpacked(_asked("spent", folder=self._folder, judge=judge))
        return {model: (prompts, completions) for model, (prompts, completions) in found.items()}


class Allowance:
    """Asks the ledger whether a question may be asked; a Listener of a CachedJudge."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._terms = ":".join(judge.identity), judge.terms

    def may_ask(self, question: Question) -> bool:
        """Returns whether the budget allows it, waiting for what others have under way."""
        told = {**self._told(question), "terms": asdict(self._terms)}
        while (verdict := _asked("reserve", **told)) == b"wait":
            time.sleep(PAUSE)
        return verdict == b"yes"

    def heard(self, question: Question, answer: Answer, is_kept: bool) -> None:
        """Gives back what was reserved where no answer came; one that came does so when it is stored."""
        if not is_kept and answer.status in SILENT:
            _asked("release", **self._told(question))

    def _told(self, question: Question) -> dict[str, Any]:
        key = hash_of(self._judge.encode(), question.hash.encode())
        return {"folder": self._terms.cache, "judge": self._judge, "key": key}


def share_answers(model: RewardModel, workers: int) -> None:
    """Has the judges that a reward asks keep their answers with the ledger; raises InvalidSetting for what cannot be shared.

    workers: among which a pace is divided. With a budget each of them has one question under way at a time.
    """
    for part in parts_of(model):
        if isinstance(part, WithJudge):
            judge: Any = part.asking.judge
            changed: dict[str, Any] = {}
            if pace := getattr(judge, "requests_per_minute", 0.0):
                changed["requests_per_minute"] = pace / workers
            if judge.terms.is_limited and hasattr(judge, "concurrency"):
                changed["concurrency"] = 1
            judge = replace(judge, **changed) if changed else judge
            listener = Allowance(judge) if judge.terms.is_limited else None
            part.ask_by(CachedJudge(judge, listener, SharedAnswers(judge.terms.cache)))


def require_shareable(model: RewardModel) -> None:
    """Raises InvalidSetting for a reward that one process alone can ask."""
    if wrong := [type(part).__name__ for part in parts_of(model) if hasattr(part, "llm")]:
        raise InvalidSetting(
            "This reward asks a language model through a log of its own, which one process writes.",
            got=", ".join(wrong),
            fix="label without --ray",
        )


def asks_judges(model: RewardModel) -> bool:
    """Returns whether there is anything to share."""
    return any(isinstance(part, WithJudge) for part in parts_of(model))


def parts_of(model: RewardModel) -> list[Any]:
    """Returns a reward, or the sources of a pipeline."""
    if not isinstance(model, RewardPipeline):
        return [model]
    return [part for source in model.parts if source.model is not None for part in parts_of(source.model)]


def _asked(method: str, **told: Any) -> bytes:
    ray = ray_library()
    reply: bytes = ray.get(ray.get_actor(NAME).call.remote(method, packed(told)))
    return content_of(NAME, reply)
