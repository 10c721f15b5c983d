"""Annotation in a separate thread: a language model labels captions, and no training waits for it."""

from __future__ import annotations

import queue
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from robo_papers.oni.questions import Query, Questions
from robo_rl.errors import RewardUnavailable
from robo_rl.rewards.chat.client import SILENT
from robo_rl.types import Metrics, StateDict


class QueryQueue:
    """Queue of captions to be labelled, waiting or being labelled, shared by the learner's thread and the annotator's.

    The lock is held for microseconds and never during a request: `put` does not wait for answers.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: dict[Query, None] = {}  # the newest last
        self._in_flight: set[Query] = set()
        self._changed = threading.Condition()
        self._is_closed = False

    def put(self, queries: Iterable[Query]) -> int:
        """Add queries, the last one the newest; return the number of dropped ones, the oldest.

        A query that waits already becomes the newest; one in flight is ignored.
        """
        with self._changed:
            for query in queries:
                if query not in self._in_flight:
                    self._waiting.pop(query, None)
                    self._waiting[query] = None
            oldest = list(self._waiting)[: max(0, len(self._waiting) - self._capacity)]
            for query in oldest:
                del self._waiting[query]
            self._changed.notify()
        return len(oldest)

    def take(self, most: int) -> list[Query] | None:
        """Wait for queries, and return at most `most` of the newest, the newest first; None once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if self._is_closed:
                return None
            taken = [self._waiting.popitem()[0] for _ in range(min(most, len(self._waiting)))]
            self._in_flight.update(taken)
        return taken

    def done(self, query: Query) -> None:
        """Remove a query from those in flight, because it was answered or never will be."""
        with self._changed:
            self._in_flight.discard(query)

    def close(self) -> None:
        """Wake waiting consumers; `take` then returns None."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of queries that wait and that are in flight."""
        with self._changed:
            return len(self._waiting), len(self._in_flight)

    @property
    def pending(self) -> list[Query]:
        """Queries without an answer, the newest last."""
        with self._changed:
            return [*sorted(self._in_flight), *self._waiting]


MOST_FAILED = 30
"""Number of answers in a row without a label after which a training ends; an easy task has hardly more captions."""


FIRST = 5
"""Number of first answers after which a warning says that none is a label."""


class Label(NamedTuple):
    """Label from a valid answer of the language model to a query."""

    query: Query
    value: float
    """Label of one caption: 0 or 1. Label of two: 0 if the first is better, 1 if the second is, 0.5 for neither."""


class Annotator(Protocol):
    """Interface of what takes captions (queries) and gives their labels some time later; neither call waits."""

    @property
    def metrics(self) -> Metrics:
        """Numbers of queries, labels and failures, for the log."""

    def submit(self, queries: Sequence[Query]) -> None:
        """Request labels for these queries, the last one first."""

    def arrived(self, step: int) -> list[Label]:
        """Return the labels that arrived since the last call. `step` is the present step of the training.

        It grows from call to call.
        """

    def state_dict(self) -> StateDict:
        """Return the queries without an answer, and the counts."""

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state; queries that were in flight are sent again."""


class AnnotatorStopped(UserWarning):
    """Warning that the annotation has stopped; rewards go on with the known labels."""


class NoLabels(UserWarning):
    """Warning that no answer of the annotator has been a label so far."""


class _Outcome(NamedTuple):
    query: Query
    value: float | None
    status: str


class BackgroundAnnotator:
    """Annotator that asks a language model in a thread, `batch` queries at once and the newest first.

    An answer that is invalid or never came gives no label. The former is final, because the model's log would repeat it; the
    latter is tried `tries` times. If the model fails, the thread ends with a warning, and the metric `annotation/stopped` is 1
    from then on. If there is no label at all then, or many answers in a row gave none, the training ends with
    RewardUnavailable: it would learn from another reward than its settings name.
    """

    def __init__(self, questions: Questions, *, capacity: int, batch: int, tries: int) -> None:
        self._questions, self._capacity, self._batch, self._tries = questions, capacity, batch, tries
        self._queries = QueryQueue(capacity)
        self._outcomes: queue.SimpleQueue[_Outcome | Exception] = queue.SimpleQueue()
        self._statuses: Counter[str] = Counter()
        self._failures: Counter[Query] = Counter()
        self._dropped = self._labelled = self._failed_in_a_row = 0
        self._thread: threading.Thread | None = None
        self._has_stopped = False

    @property
    def metrics(self) -> Metrics:
        """Labels so far, waiting queries, and the share of answers without a label."""
        waiting, in_flight = self._queries.sizes
        answers = self._statuses.total()
        found: dict[str, float] = {
            "labels": self._labelled,
            "waiting": waiting,
            "in_flight": in_flight,
            "dropped": self._dropped,
            "stopped": self._has_stopped,
        }
        found["failed"] = (answers - self._statuses["ok"]) / max(answers, 1)
        faults = {f"status_{status.replace(' ', '_')}": count for status, count in self._statuses.items() if status != "ok"}
        return {f"annotation/{name}": float(value) for name, value in (found | faults).items()}

    def submit(self, queries: Sequence[Query]) -> None:
        """Request labels for these queries, the last one first; the first call starts the thread."""
        wanted = [query for query in queries if self._failures[query] < self._tries]
        if self._has_stopped or not wanted:
            return
        self._dropped += self._queries.put(wanted)
        if self._thread is None:
            arguments = (self._queries, self._questions, self._batch, self._outcomes)
            self._thread = threading.Thread(target=_ask_all, args=arguments, name="annotator", daemon=True)
            weakref.finalize(self, self._queries.close)  # the thread knows the queue and not this object
            self._thread.start()

    def arrived(self, step: int) -> list[Label]:
        """Return the labels that arrived since the last call; warn if the annotation has stopped.

        Raises RewardUnavailable if there is no label and none will come, and after MOST_FAILED answers in a row without one.
        """
        del step
        labels = []
        while not self._outcomes.empty():
            outcome = self._outcomes.get()
            if isinstance(outcome, Exception):
                self._stop(outcome)
            elif (label := self._read(outcome)) is not None:
                labels.append(label)
        return labels

    def _read(self, outcome: _Outcome) -> Label | None:
        self._statuses[outcome.status] += 1
        self._queries.done(outcome.query)
        if outcome.value is None:
            self._failures[outcome.query] += 1 if outcome.status in SILENT else self._tries
            self._failed_in_a_row += 1
            if not self._labelled and self._failed_in_a_row == FIRST:
                ended = ", ".join(f"{count} {status}" for status, count in self._statuses.most_common())
                warnings.warn(
                    f"None of the first {FIRST} answers of the annotator is a label: {ended}.", NoLabels, stacklevel=2
                )
            if self._failed_in_a_row >= MOST_FAILED:
                raise self._nothing_usable()
            return None
        self._labelled += 1
        self._failed_in_a_row = 0
        return Label(outcome.query, outcome.value)

    def _stop(self, reason: Exception) -> None:
        self._has_stopped = True
        cause = " ".join(str(reason).split()) or type(reason).__name__
        if not self._labelled:
            raise RewardUnavailable(
                "The annotator has stopped before any caption had a label.", got=cause, fix="mend that, and begin or resume"
            ) from reason
        warnings.warn(
            f"The annotator has stopped: {cause} Rewards go on with the {self._labelled} labels that are known; "
            "interrupt and resume the run to start it again.",
            AnnotatorStopped,
            stacklevel=2,
        )

    def _nothing_usable(self) -> RewardUnavailable:
        ended = ", ".join(f"{count} {status}" for status, count in self._statuses.most_common())
        return RewardUnavailable(
            f"The last {self._failed_in_a_row} answers of the annotator were none.",
            got=f"of all answers {ended}; {self._labelled} labels",
            allowed=f"less than {MOST_FAILED} in a row",
            fix="see what it says (robo-rl reward calls LOG), choose another model or goal, and begin or resume",
        )

    def close(self) -> None:
        """End the thread after the queries in flight."""
        self._queries.close()

    def state_dict(self) -> StateDict:
        """Return the queries without an answer, and the counts."""
        failures = [[list(query), count] for query, count in self._failures.items() if count]
        counts = {"dropped": self._dropped, "labelled": self._labelled, "statuses": dict(self._statuses)}
        return {"pending": [list(query) for query in self._queries.pending], "failures": failures, **counts}

    def load_state_dict(self, state: StateDict) -> None:
        """Restore a state; queries that were in flight are sent again."""
        self._dropped, self._labelled = state["dropped"], state["labelled"]
        self._statuses = Counter(state["statuses"])
        self._failures = Counter({tuple(query): count for query, count in state["failures"]})
        self.submit([tuple(query) for query in state["pending"]])


def _ask_all(waiting: QueryQueue, questions: Questions, batch: int, outcomes: queue.SimpleQueue[_Outcome | Exception]) -> None:
    """Send queries until the queue is closed; an exception ends the thread and is passed on."""
    try:
        while (queries := waiting.take(batch)) is not None:
            for query, (value, status) in zip(queries, questions.answers(queries), strict=True):
                outcomes.put(_Outcome(query, value, status))
    except Exception as error:  # of any kind: training goes on without the thread, with a warning
        outcomes.put(error)
