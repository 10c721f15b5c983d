"""Stands for the process of a training: its score is a formula of the recipe, and each look at it is one evaluation further.

Everything it has done lies in its run folder, as with a training; `ledger` lists what was ever trained.
"""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import numpy as np
import yaml

from robo_rl.evaluation.evaluation import Evaluation


def write(path: Path, text: str) -> None:
    """Replaces a file in one step; durable enough for a test, and fast."""
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").rename(path)


EPISODES = 20


def success(recipe: dict, seed: int, step: int) -> float:
    """Best at a learning rate of 1e-3, by half of the steps; seeds differ a little."""
    skill = max(0.0, 1.0 - abs(np.log10(recipe["learner"]["lr"]) + 3.0))
    return float(np.clip(skill * min(1.0, 2 * step / recipe["steps"]) + 0.03 * (seed % 3 - 1), 0.0, 1.0))


def evaluation(rate: float) -> str:
    wins = round(rate * EPISODES)
    outcomes = tuple(index < wins for index in range(EPISODES))
    told = (
        "stub",
        "0",
        None,
        tuple(range(EPISODES)),
        tuple(map(float, outcomes)),
        (1,) * EPISODES,
        outcomes,
        ("end",) * EPISODES,
    )
    return json.dumps(Evaluation(*told, deterministic=True, duration=0.0).to_json())


class StubTraining:
    """A job that trains a file of the folder `trials`, or goes on with a run of it."""

    score = staticmethod(success)
    status_of = staticmethod(lambda recipe, seed, step: 0)
    """Exit status at a step; anything but 0 ends the training."""
    alive: list[StubTraining]

    def __init__(self, job, logs: Path) -> None:
        self.job, self.is_stopped = job, False
        (words,) = job.commands
        self._ledger = logs.parent / "ledger"
        if words[0] == "train":
            recipe = yaml.load(Path(words[1]).read_text(), yaml.CSafeLoader)
            self._seed = int(words[3])
            self._run = Path(words[5]) / f"20260101-000000-{recipe['name']}-{self._seed}"
            (self._run / "evaluations").mkdir(parents=True)
            write(self._run / "recipe.yaml", json.dumps(recipe))
        else:
            self._run = Path(words[1])
            self._seed = int(self._run.name.rpartition("-")[2])
        self._recipe = json.loads((self._run / "recipe.yaml").read_text())
        every, done = self._recipe["evaluation"]["every"], len([*(self._run / "evaluations").glob("*.json")])
        self._steps = deque(range((done + 1) * every, self._recipe["steps"] + 1, every))

    def status(self):
        step = self._steps.popleft() if self._steps else self._recipe["steps"]
        if status := self.status_of(self._recipe, self._seed, step):
            return status
        told = evaluation(self.score(self._recipe, self._seed, step))
        if not (self._run / "evaluations" / f"{step:010d}.json").exists():
            with self._ledger.open("a") as file:
                file.write(f"{self._run.name} {step}\n")
            write(self._run / "evaluations" / f"{step:010d}.json", told)
        if self._steps:
            return None
        write(self._run / "evaluation.json", told)
        return 0

    def stop(self):
        self.is_stopped = True

    def wait(self):
        assert self.is_stopped
