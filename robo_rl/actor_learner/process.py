"""The learner's process as the acting one sees it: started, listened to, replaced where it dies or falls silent.

Messages are states packed as safetensors, in frames of `multiprocessing.connection`; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robo_rl.checkpoints import packed, unpacked
from robo_rl.errors import RunError
from robo_rl.supervised_process import SupervisedProcess
from robo_rl.types import Metrics, StateDict


@dataclass(frozen=True)
class Patience:
    """How long a learner may be silent before it counts as hung, and how often it may die."""

    beat: float = 20.0
    """[s] between two words of a learner that learns or waits; it speaks twice a second where an update is short."""
    slow: float = 600.0
    """[s] for what takes long and is announced: starting, and writing a checkpoint."""
    deaths: int = 5
    """in a row, without one step learnt in between, after which the training ends"""


class LearnerProcess:
    """Runs a command that learns; `poll` reads what it says."""

    def __init__(self, command: Sequence[str], log: Path, patience: Patience = Patience()) -> None:
        """command: gets the number of an inherited socket as its last word. log: takes what it prints."""
        self._command, self._log, self._patience = list(command), log, patience
        self.step = 0
        """steps that it has learnt from, by its last word"""
        self.is_ready = False
        """whether it has spoken since it was started"""
        self.restarts = 0
        self.version = -1
        """of the newest parameters: the steps that were learnt from when they were taken"""
        self.saved = -1
        """step of the newest checkpoint that it told of"""
        self.problem = ""
        """why its last checkpoint was not written; empty where it was"""
        self.tell: Callable[[str], None] = lambda words: None
        """Is told what a person should know."""
        self._parameters: StateDict | None = None
        self._metrics: Metrics = {}
        self._asked: StateDict = {}
        self._deaths, self._learnt = 0, -1  # in a row, and the step at the last one
        self._start()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def poll(self, timeout: float = 0.0) -> None:
        """Reads all that has come, waiting at most so long [s] for it; replaces a learner that has died or is hung.

        Raises RunError where it cannot go on, or dies again and again.
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
        """Returns the newest parameters and their version, once; None where there are no newer ones."""
        found, self._parameters = self._parameters, None
        return None if found is None else (self.version, found)

    def metrics(self) -> Metrics:
        """Returns what the learner has measured since the last call."""
        found, self._metrics = self._metrics, {}
        return found

    def ask(self, **what: Any) -> None:
        """Has it save at a step, with parts, or finish at one; told again to a learner that takes the place of this one."""
        self._asked |= what
        self._process.send(packed(self._asked))

    def wait_until(self, is_done: Callable[[], bool]) -> None:
        """Listens until something holds; raises RunError where the learner cannot go on."""
        while not is_done():
            self.poll(0.05)

    def kill(self) -> None:
        """Ends it at once. What it had not saved is in the log of steps."""
        self._process.stop()

    def finish(self, step: int) -> None:
        """Returns once it has learnt from all steps, saved, given its last parameters, and ended."""
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
        """Whether nothing more is to be expected of it."""
        finish = self._asked.get("finish")
        return finish is not None and (self.saved >= finish or bool(self.problem))

    def _start(self) -> None:
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._process = SupervisedProcess(self._command, on_message=self._messages.put, log=self._log)
        self.is_ready = False
        self._silent_until = time.monotonic() + self._patience.slow
        if self._asked:
            self._process.send(packed(self._asked))

    def _take(self, message: StateDict) -> None:
        if "error" in message:
            self._process.wait()
            raise RunError("The learner cannot go on.", got=message["error"], fix=f"look at {self._log}; then robo-rl resume")
        allowed = self._patience.slow if message.get("is_slow") else self._patience.beat
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
        """Starts another learner in the place of this one."""
        status = self._process.stop()
        self._deaths = 1 if self.step > self._learnt else self._deaths + 1
        self._learnt = max(self.step, self._learnt)
        if self._deaths >= self._patience.deaths:
            raise RunError(
                f"The learner died {self._deaths} times in a row.",
                got=f"exit status {status}; its last words: {self._process.output() or 'none'}",
                fix=f"look at {self._log}; then robo-rl resume",
            )
        self.restarts += 1
        self.tell(f"the learner {why} at step {self.step} and is started again")
        self._start()
