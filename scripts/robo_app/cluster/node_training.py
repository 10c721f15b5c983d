"""Worker on a node of a cluster: it runs a training in a temporary folder, and sends the training's files and output back."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from robo_app.cluster.folder_copies import ChangingFolder, place
from robo_app.jobs.child_command import command_of
from robo_rl.cluster.temp_folders import locked_folder
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.system.supervised_process import SupervisedProcess

BEAT = 1.0
"""Longest time until `news` returns [s], even without news."""
LOOK = 0.05
"""Time between two looks for news [s]."""
PREFIX = "robo-rl-training-"


class NodeTraining:
    """One training on a node; `begin` starts it, and the other methods report on it. All take and return bytes."""

    def __init__(self, _: bytes) -> None:
        self._folder, self._lock = locked_folder(PREFIX, Path(tempfile.gettempdir()))
        self._runs, self._log = self._folder / "runs", self._folder / "log"
        self._copy: ChangingFolder | None = None
        self._reported = 0

    def begin(self, content: bytes) -> bytes:
        """Start a training, or resume a run whose files are in the message.

        content: packed message with options and files. Returns the first news, as `news` does.
        """
        message = unpacked(content)
        (self._folder / "recipe.yaml").write_text(message["recipe"])
        words = ["train", str(self._folder / "recipe.yaml"), "--seed", str(message["seed"]), "--out", str(self._runs)]
        if message["run"]:
            run = self._runs / message["run"]
            place(run, message["files"], [])
            self._copy = ChangingFolder(run)
            self._copy.changes()
            words = ["resume", str(run)]
        self._milestones = self._reached()
        self._process = SupervisedProcess(command_of(words), log=self._log, environment=_environment(message["threads"]))
        return self.news(b"")

    def news(self, _: bytes) -> bytes:
        """Wait briefly for news of the training, and return them as a packed message.

        The message has new output, files that changed since the last call, and the exit status, None while the training runs.
        """
        deadline = time.monotonic() + BEAT
        while (status := self._process.status) is None and not self._has_news() and time.monotonic() < deadline:
            time.sleep(LOOK)
        news: dict[str, Any] = {"log": self._words(), "status": status, "run": ""}
        if (reached := self._reached()) != self._milestones or status is not None:
            self._milestones = reached
            news |= self._written(is_over=status is not None)
        return packed(news)

    def stop(self, _: bytes) -> bytes:
        """Ask the training to end, which saves a checkpoint first. Returns news, as `news` does."""
        self._process.terminate()
        return self.news(b"")

    def close(self, _: bytes) -> bytes:
        """Stop the process and remove its folder; no further call is allowed."""
        self._process.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        return packed({})

    def _has_news(self) -> bool:
        return self._log.stat().st_size > self._reported or self._reached() != self._milestones

    def _words(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._reported)
            words = log.read()
        self._reported += len(words)
        return words.decode(errors="replace")

    def _reached(self) -> list[str]:
        """Return the paths of finished checkpoints and evaluations; files are sent when there is a new one."""
        found = [*self._runs.glob("*/checkpoints/*"), *self._runs.glob("*/evaluations/*.json")]
        return sorted(str(path) for path in found if path.stem.isdigit())

    def _written(self, *, is_over: bool) -> dict[str, Any]:
        if self._copy is None:
            if not (made := [*self._runs.glob("*/recipe.yaml")]):
                return {}
            self._copy = ChangingFolder(made[0].parent)
        files, gone = self._copy.changes(is_over=is_over)
        return {"run": self._copy.path.name, "files": files, "gone": gone}


def _environment(threads: str) -> dict[str, str]:
    """Return the environment variables with the OMP_NUM_THREADS of the command's machine, which Ray would override."""
    others = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return others | ({"OMP_NUM_THREADS": threads} if threads else {})
