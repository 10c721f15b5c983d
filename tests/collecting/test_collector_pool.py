"""The pool: who is asked what with which parameters, and what becomes of collectors that die, hang or cannot go on."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest

from robo_rl.cluster.host import ERROR
from robo_rl.cluster.workers import Timeouts
from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.errors import RunError, SimulationFailed
from robo_rl.runs.checkpoints import packed, unpacked


class Scripted:
    """An engine whose answers the test writes."""

    def __init__(self) -> None:
        self.links: list[ScriptedLink] = []
        self.answers: deque[tuple[ScriptedLink, bytes | None]] = deque()
        self.is_closed = False

    def start(self, job: bytes) -> ScriptedLink:
        self.links.append(ScriptedLink(unpacked(job)))
        return self.links[-1]

    def next(self, timeout: float) -> tuple[ScriptedLink, bytes | None] | None:
        return self.answers.popleft() if self.answers else None

    def close(self) -> None:
        self.is_closed = True

    def say(self, index: int, **content: Any) -> None:
        self.answers.append((self.links[index], packed(content)))

    def lose(self, index: int) -> None:
        self.answers.append((self.links[index], None))


class ScriptedLink:
    def __init__(self, job: Any) -> None:
        self.job, self.asked, self.has_ended = job, [], False

    def ask(self, method: str, request: bytes, *parameters: bytes) -> None:
        assert method == "answer"
        self.asked.append((unpacked(request), unpacked(parameters[0]) if parameters else None))

    def stop(self) -> None:
        self.has_ended = True

    def output(self) -> str:
        return "Segmentation fault"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def crew_of(engine: Scripted, clock: Clock | None = None) -> CollectorPool:
    pool = CollectorPool(engine, {"recipe": "r"}, 2, timeouts=Timeouts(start=100, answer=10, losses=3), clock=clock or Clock())
    pool.publish(0, {"a": 1})
    return pool


def test_each_worker_gets_its_job_and_each_version_once() -> None:
    engine = Scripted()
    pool = crew_of(engine)
    for _ in range(2):
        pool.ask(0, {"do": "it"})
    pool.publish(7, {"a": 2})
    pool.ask(0, {"do": "it"})
    pool.ask(1, {"do": "it"})
    assert [link.job for link in engine.links] == [
        {"recipe": "r", "index": 0, "count": 2, "birth": 0},
        {"recipe": "r", "index": 1, "count": 2, "birth": 1},
    ]
    assert [(request["version"], sent) for request, sent in engine.links[0].asked] == [(0, {"a": 1}), (0, None), (7, {"a": 2})]
    assert engine.links[1].asked == [({"do": "it", "version": 7}, {"a": 2})]
    assert pool.open(0) == 3 and pool.oldest == 0
    engine.say(0, x=1)
    engine.say(0, x=2)
    replies = [pool.next(0.0) for _ in range(3)]
    assert [reply and (reply.place, reply.content) for reply in replies] == [(0, {"x": 1}), (0, {"x": 2}), None]
    assert pool.open(0) == 1 and pool.oldest == 7


def test_dead_worker_is_replaced_and_its_answer_discarded() -> None:
    engine = Scripted()
    pool = crew_of(engine)
    told: list[str] = []
    pool.tell = told.append
    pool.ask(1, {})
    engine.lose(1)
    reply = pool.next(0.0)
    assert reply is not None and reply.content is None and reply.place == 1
    assert told == ["collector 1 died and is replaced; its environments begin new episodes"]
    assert engine.links[1].has_ended and engine.links[2].job["birth"] == 2 and pool.losses == 1 and pool.open(1) == 0
    engine.say(1, x=1)  # was on its way
    assert pool.next(0.0) is None
    pool.ask(1, {})
    assert engine.links[2].asked == [({"version": 0}, {"a": 1})]


def test_hung_worker_is_replaced_after_longer_first_limit() -> None:
    engine, clock = Scripted(), Clock()
    pool = crew_of(engine, clock)
    pool.ask(0, {})
    pool.ask(1, {})
    clock.now = 99.0
    assert pool.next(0.0) is None
    engine.say(1)
    assert pool.next(0.0) is not None
    clock.now = 101.0
    reply = pool.next(0.0)
    assert reply is not None and (reply.place, reply.content) == (0, None), "nothing was heard of it since it was started"
    pool.ask(1, {})
    pool.ask(1, {})
    clock.now = 110.0
    engine.say(1)
    assert pool.next(0.0) is not None
    clock.now = 119.9  # its second request counts from the first answer on
    assert pool.next(0.0) is None
    clock.now = 120.1
    reply = pool.next(0.0)
    assert reply is not None and (reply.place, reply.content) == (1, None)


def test_repeated_loss_of_one_worker_ends_training() -> None:
    engine = Scripted()
    pool = crew_of(engine)
    for losses in (2, 3):
        for _ in range(losses):
            pool.ask(0, {})
            engine.lose(-1 if pool.losses else 0)
            if pool.losses == 4:
                with pytest.raises(RunError, match=r"Collector 0 was lost 3 times in a row.\n.*it died.*Segmentation fault"):
                    pool.next(0.0)
                return
            assert pool.next(0.0) is not None
        pool.ask(0, {})
        engine.say(-1)  # it answers: what was before does not count any more
        assert pool.next(0.0) is not None


@pytest.mark.parametrize(("kind", "raised"), [("InvalidSetting", RunError), ("SimulationFailed", SimulationFailed)])
def test_common_worker_error_ends_training_at_once(kind: str, raised: type[Exception]) -> None:
    engine = Scripted()
    pool = crew_of(engine)
    pool.ask(1, {})
    engine.answers.append((engine.links[1], ERROR + json.dumps([kind, "Unknown task 'Reech'."]).encode()))
    with pytest.raises(raised, match=r"Collector 1 cannot go on.\n.*Reech"):
        pool.next(0.0)


def test_closing_ends_all_of_them() -> None:
    engine = Scripted()
    pool = crew_of(engine)
    pool.ask(0, {})
    pool.close()
    pool.close()
    assert [link.has_ended for link in engine.links] == [True, True] and engine.is_closed
