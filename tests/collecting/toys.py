"""Toys for collectors: an environment that numbers its steps, a policy that is one number, a learner that fits it.

Run as a script it is a collector (local.LocalEngine), or a training that can be killed: toys.py train FOLDER STEPS.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robo_rl.cluster.host import serve
from robo_rl.cluster.local import LocalEngine, LocalWorker
from robo_rl.cluster.workers import Engine, Timeouts
from robo_rl.collectors.asynchronous import AsynchronousTraining, Pace
from robo_rl.collectors.collector_pool import CollectorPool
from robo_rl.collectors.segment_log import SegmentLog
from robo_rl.collectors.segments import SegmentCollector
from robo_rl.protocols.sampling import Sampling
from robo_rl.runs.checkpoints import has_checkpoint, load_checkpoint, unpacked
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.system.supervised_process import inherited
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.types import Array, Batch, Metrics, StateDict

SPEC = EnvironmentSpec(
    "test/Numbered",
    ObservationSpec((ArraySpec("birth", (1,)), ArraySpec("count", (1,)), ArraySpec("place", (1,), low=-1, high=1))),
    ActionSpec(("a",), (-1.0,), (1.0,), ("1",)),
    max_steps=11,
)
SAMPLING = Sampling(batch_size=16, learning_starts=30, capacity=5000)
PACE = Pace(segment=4, requests=2, every=5)


class Numbered(gymnasium.Env[Any, Any]):
    """No two steps of a training are alike. The action that equals the place pays most."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def __init__(self, birth: int) -> None:
        self._birth, self._count, self._left = birth, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self._left = SPEC.max_steps or 0
        self._count += 1
        return self._observe(), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        reward = -float((action[0] - self._place) ** 2)
        self._count, self._left = self._count + 1, self._left - 1
        return self._observe(), reward, False, self._left == 0, {}

    def _observe(self) -> dict[str, Array]:
        self._place = float(self.np_random.uniform(-1, 1))
        values = {"birth": self._birth, "count": self._count, "place": self._place}
        return {name: np.float32([value]) for name, value in values.items()}


class Slope:
    """Acts in proportion to the place, with noise."""

    environment_spec = SPEC

    def __init__(self, seed: int) -> None:
        self.slope, self.generator = np.zeros(1), np.random.default_rng(seed)

    def reset(self) -> None: ...

    def act(self, observation: Any, *, deterministic: bool = False) -> Array:
        noise = 0.0 if deterministic else self.generator.normal(0, 0.05)
        return np.clip(self.slope * observation["place"] + noise, -1, 1).astype(np.float32)

    def parameters(self) -> StateDict:
        return {"slope": self.slope.copy()}

    def load_parameters(self, parameters: StateDict) -> None:
        self.slope = np.asarray(parameters["slope"]).copy()


class Fitting:
    """Moves the slope towards that of the better half of each batch; remembers in which order batches came."""

    def __init__(self) -> None:
        self.policy = Slope(0)
        self.updates, self.trace = 0, 0.0

    def update(self, batch: Batch) -> Metrics:
        good = batch.rewards >= np.median(batch.rewards)
        places, actions = batch.observations["place"][good, 0], batch.actions[good, 0]
        slope = float(places @ actions / max(places @ places, 1e-3))
        self.policy.slope = self.policy.slope + 0.1 * (slope - self.policy.slope)
        self.updates += 1
        self.trace = 0.9 * self.trace + float(batch.observations["count"].sum() + 7 * batch.observations["birth"].sum())
        return {"train/slope": float(self.policy.slope[0])}

    def state_dict(self) -> StateDict:
        return {"slope": self.policy.slope.copy(), "updates": self.updates, "trace": self.trace}

    def load_state_dict(self, state: StateDict) -> None:
        self.policy.slope = np.asarray(state["slope"]).copy()
        self.updates, self.trace = state["updates"], state["trace"]


def collector_of(job: bytes) -> SegmentCollector:
    birth = unpacked(job)["birth"]
    return SegmentCollector(Numbered(birth), Slope(birth), seed=1, birth=birth)


def crew_of(engine: Engine, count: int = 2, **more: Any) -> CollectorPool:
    return CollectorPool(engine, {}, count, **more)


def training_of(folder: Path, pool: CollectorPool, steps: int, pace: Pace = PACE) -> AsynchronousTraining:
    """Returns a training, which goes on from its newest checkpoint and its log where there are some."""
    checkpoints = folder / "checkpoints"
    checkpoint = load_checkpoint(checkpoints) if has_checkpoint(checkpoints) else None
    log = SegmentLog(folder / "collected", 0 if checkpoint is None else checkpoint.step)
    student = ReplayLearner(Fitting(), SAMPLING, seed=1, stopwatch=Stopwatch())
    training = AsynchronousTraining(student, pool, log, checkpoints, steps=steps, pace=pace)
    training.go_on(None if checkpoint is None else checkpoint.parts)
    return training


class Observer:
    """Has checkpoints written; does something at one step."""

    def __init__(self, every: int = 50, at: int = -1, deed: Any = None) -> None:
        self.every, self.at, self.deed = every, at, deed
        self.metrics: list[Metrics] = []
        self.episodes: list[dict[str, Any]] = []

    def on_episode(self, step: int, **outcome: Any) -> None:
        self.episodes.append({"step": step, **outcome})

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        self.metrics.append(metrics)

    def on_step(self, step: int, training: AsynchronousTraining) -> None:
        if step % self.every == 0:
            training.save(step, training.state_dict())
        if step == self.at:
            self.deed()


class Remembering(LocalEngine):
    """Has a list of the collectors that were started and may run."""

    def __init__(self, command: list[str], log: Path) -> None:
        super().__init__(command, log)
        self.links: list[LocalWorker] = []

    def start(self, setup: bytes) -> LocalWorker:
        self.links = [*(link for link in self.links if link.status is None), super().start(setup)]
        return self.links[-1]


def local(folder: Path) -> Remembering:
    return Remembering([sys.executable, __file__], folder / "collectors.txt")


def train_and_die(folder: Path, step: int) -> None:
    engine = local(folder)
    pool = crew_of(engine, timeouts=Timeouts(start=600.0, answer=600.0))

    def die() -> None:
        (folder / "pids.txt").write_text(" ".join(str(link.pid) for link in engine.links))
        os.kill(os.getpid(), signal.SIGKILL)

    training_of(folder, pool, 10**6).run(Observer(at=step, deed=die))  # type: ignore[arg-type]


if __name__ == "__main__":
    if sys.argv[1] == "train":
        train_and_die(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        serve(inherited(int(sys.argv[1])), collector_of)
