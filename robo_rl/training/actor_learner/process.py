"""Handle of the learning process, in the acting process: start it, read its messages, replace it if it dies or hangs.

Messages are states packed as safetensors; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.errors import RunError
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.system.supervised_process import SupervisedProcess
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class LearnerTimeouts:
    """Limits for the silence of a learner, after which it counts as hung, and for its deaths, after which the training ends."""

    beat: float = 20.0
    """[s] between two messages of a learner that learns or waits; usually two messages a second."""
    slow: float = 600.0
    """[s] for the start of the process, and for writing a checkpoint."""
    deaths: int = 5
    """Deaths in a row, without a step learned in between, that end the training."""


class LearnerProcess:
    """Handle of the process that learns, as the acting process holds it; `poll` reads its messages."""

    def __init__(self, command: Sequence[str], log: Path, timeouts: LearnerTimeouts = LearnerTimeouts()) -> None:
        """Start the process.

        Args:
            command: Command line; the number of an inherited socket is appended as its last argument.
            log: File for its output.
            timeouts: Limits for silence and deaths.
        """
        self._command, self._log, self._timeouts = list(command), log, timeouts
        self.step = 0
        """Steps that it has learnt from, by its last message."""
        self.is_ready = False
        """True if a message has come since it was started."""
        self.restarts = 0
        self.version = -1
        """Version of the newest parameters: steps learnt from until then."""
        self.saved = -1
        """Step of the newest checkpoint."""
        self.problem = ""
        """Reason why the last checkpoint was not written; empty if it was."""
        self.tell: Callable[[str], None] = lambda words: None
        """Prints a message for the user."""
        self._parameters: StateDict | None = None
        self._metrics: Metrics = {}
        self._asked: StateDict = {}
        self._deaths, self._learnt = 0, -1  # in a row, and the step at the last one
        self._start()

    def poll(self, timeout: float = 0.0) -> None:
        """Read all messages, waiting at most `timeout` [s] for the first; replace a learner that has died or hangs.

        Raises RunError if the learner reports that it cannot continue, or dies repeatedly.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._messages.get(timeout > 0, timeout or None)
                if message is None:
                    if not self._is_over:
                        self._replace("died")
                    return
                self._take(unpacked(message))
                timeout = 0.0
        if time.monotonic() > self._silent_until:
            self._replace("said nothing for too long")

    def parameters(self) -> tuple[int, StateDict] | None:
        """Return (version, parameters) if newer ones have arrived since the last call, else None."""
        found, self._parameters = self._parameters, None
        return None if found is None else (self.version, found)

    def metrics(self) -> Metrics:
        """Return the learner's metrics since the last call."""
        found, self._metrics = self._metrics, {}
        return found

    def ask(self, **what: Any) -> None:
        """Send a request to the learner: to save at a step, with the given parts, or to finish at a step.

        what: `save` and `parts`, or `finish`. A process that replaces the learner gets the request again.
        """
        self._asked |= what
        self._process.send(packed(self._asked))

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Poll until `is_done()`; raises RunError if the learner cannot continue."""
        while not is_done():
            self.poll(0.05)

    def kill(self) -> None:
        """End the process at once; the log keeps the steps after its last checkpoint."""
        self._process.stop()

    def finish(self, step: int) -> None:
        """Wait until the learner has learned from all `step` steps, saved, sent its last parameters, and ended."""
        self.problem = ""
        self.ask(finish=step)
        self.wait_until(lambda: self._is_over)
        self.kill()
        if self.problem:
            raise RunError(
                "The last checkpoint could not be saved.", got=self.problem, fix="make room; robo-rl resume learns from the log"
            )

    @property
    def _is_over(self) -> bool:
        """True if no further message is expected."""
        finish = self._asked.get("finish")
        return finish is not None and (self.saved >= finish or bool(self.problem))

    def _start(self) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = SupervisedProcess(self._command, on_message=self._messages.put, log=self._log)
        self.is_ready = False
        self._silent_until = time.monotonic() + self._timeouts.slow
        if self._asked:
            self._process.send(packed(self._asked))

    def _take(self, message: StateDict) -> None:
        if "error" in message:
            self._process.wait()
            raise RunError("The learner cannot go on.", got=message["error"], fix=f"look at {self._log}; then robo-rl resume")
        allowed = self._timeouts.slow if message.get("is_slow") else self._timeouts.beat
        self._silent_until = time.monotonic() + allowed
        self.step, self.is_ready = message["step"], True
        self._metrics |= message.get("metrics", {})
        if "problem" in message:
            self._saved(message["step"], message["problem"])
        if "parameters" in message and message["step"] > self.version:  # one that begins again has older ones for a while
            self.version, self._parameters = message["step"], message["parameters"]

    def _saved(self, step: int, problem: str) -> None:
        self.problem = problem
        self.saved = self.saved if problem else step
        if self._asked.get("save", step + 1) <= step:
            self._asked = {name: value for name, value in self._asked.items() if name == "finish"}

    def _replace(self, why: str) -> None:
        """Start another process in place of this one."""
        status = self._process.stop()
        self._deaths = 1 if self.step > self._learnt else self._deaths + 1
        self._learnt = max(self.step, self._learnt)
        if self._deaths >= self._timeouts.deaths:
            raise RunError(
                f"The learner died {self._deaths} times in a row.",
                got=f"exit status {status}; its output: {self._process.output() or 'none'}",
                fix=f"look at {self._log}; then robo-rl resume",
            )
        self.restarts += 1
        self.tell(f"the learner {why} at step {self.step} and is started again")
        self._start()
