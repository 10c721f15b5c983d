"""Learner's end of the socket to the acting process: answer requests, send parameters, write checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

from robo_rl.protocols.components import Policy, TransferablePolicy
from robo_rl.runs.checkpoints import Checkpoint, checkpoint_steps, packed, save_checkpoint, unpacked
from robo_rl.types import Metrics, StateDict

BEAT = 0.5  # [s] between two messages without news
EVERY = 10  # learning steps between two versions of the parameters: 50 in HIL-SERL, whose updates are not bound to steps


class SavedTraining(Protocol):
    """Interface of a training that can be saved in a checkpoint."""

    acting_parts: dict[str, StateDict]
    """Checkpoint parts of the acting process."""

    @property
    def policy(self) -> Policy:
        """The policy being trained."""

    def state_dict(self) -> StateDict:
        """Return the checkpoint parts of the learning process."""


class Finished(Exception):
    """Error that ends the learning loop: the acting process has ended, or needs no more learning."""


class LearnerServer:
    """Serves the acting process while the learning process learns: requests, parameters, checkpoints, heartbeats.

    It is a robo_rl.protocols.components.TrainingObserver.
    """

    def __init__(self, connection: Connection, checkpoints: Path, forget: Callable[[int], None], *, every: int = EVERY) -> None:
        """Serve on `connection`.

        Args:
            connection: Socket to the acting process.
            checkpoints: Folder of the checkpoints.
            forget: Called with the first step that a resume from one of the kept checkpoints may need.
            every: Number of steps from one sending of parameters to the next.
        """
        self._connection, self._checkpoints, self._forget, self._every = connection, checkpoints, forget, every
        self._asked: StateDict = {}
        self._metrics: Metrics = {}
        self._sent = self._published = -1.0
        self._saved = -1

    def on_episode(self, step: int, **outcome: object) -> None:
        """Do nothing, since the acting process reports episodes."""

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Keep the learner's metrics for the next message."""
        self._metrics |= metrics

    def on_step(self, step: int, training: SavedTraining) -> None:
        """Handle requests after a step was learned from, and send the parameters if they are due."""
        self.serve(step, training)
        if step - self._published >= self._every or self._metrics:
            self.publish(step, training.policy)

    def serve(self, step: int, training: SavedTraining, timeout: float = 0.0) -> None:
        """Receive requests, handle those that are due and send a heartbeat.

        Raises Finished once the acting process has ended.
        """
        try:
            while self._connection.poll(timeout):
                self._asked |= unpacked(self._connection.recv_bytes())
                timeout = 0.0
        except (EOFError, OSError):  # killed: the next one learns from its written steps
            self._write(step, training, self._asked.pop("parts", {}))
            raise Finished from None
        if self._asked.get("save", step + 1) <= step:
            self._save(step, training)
        if self._asked.get("finish", step + 1) <= step:
            if self._saved != step:
                self._save(step, training)
            raise Finished
        if time.monotonic() - self._sent > BEAT:
            self._report(step)

    def publish(self, step: int, policy: Policy) -> None:
        """Send the policy's parameters to the acting process."""
        assert isinstance(policy, TransferablePolicy)
        self._published = step
        self._report(step, parameters=policy.parameters())

    def notify_slow(self, step: int) -> None:
        """Tell the acting process that something slow follows, so that it waits longer."""
        self._report(step, is_slow=True)

    def fail(self, error: Exception) -> None:
        """Tell the acting process why learning stops, with the text of the error."""
        self._send({"error": str(error) or type(error).__name__})

    def _save(self, step: int, training: SavedTraining) -> None:
        self.notify_slow(step)
        problem = self._write(step, training, self._asked.pop("parts", {}))
        self._asked.pop("save", None)
        policy = training.policy
        assert isinstance(policy, TransferablePolicy)
        self._report(step, problem=problem, parameters=policy.parameters())

    def _write(self, step: int, training: SavedTraining, parts: StateDict) -> str:
        """Write a checkpoint; return the reason if it failed, else ""."""
        try:
            save_checkpoint(self._checkpoints, Checkpoint(step, training.state_dict() | training.acting_parts | parts))
        except OSError as error:
            return str(error)
        training.acting_parts |= parts
        self._saved = step
        self._forget(min(checkpoint_steps(self._checkpoints)))
        return ""

    def _report(self, step: int, **what: object) -> None:
        self._send({"step": step, "metrics": self._metrics, **what})
        self._metrics = {}

    def _send(self, message: StateDict) -> None:
        self._sent = time.monotonic()
        try:
            self._connection.send_bytes(packed(message))
        except OSError:
            raise Finished from None
