"""Both halves of a small training, each to be killed at any moment.

halves.py act FOLDER STEPS      acts, with a learner in a process of its own
halves.py learn FOLDER FD       is that learner

FOLDER holds steps/ (the log), checkpoints/, log.txt, learner.pid, settings.json, and, of the environment, executed.txt: a line
for each step that was executed. acknowledged.txt has a line for each step that the log has.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robo_rl.errors import NonFiniteUpdate
from robo_rl.protocols.components import Policy
from robo_rl.protocols.sampling import Sampling
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.runs.checkpoints import has_checkpoint, load_checkpoint
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.system.supervised_process import inherited
from robo_rl.training.actor_learner.acting import ActingTraining, LearnerConnection, acting_training
from robo_rl.training.actor_learner.learning import LearningTraining, learn
from robo_rl.training.actor_learner.process import LearnerProcess, LearnerTimeouts
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.types import Array, Batch, Metrics, StateDict

SPEC = EnvironmentSpec(
    "test/Numbered",
    ObservationSpec((ArraySpec("session", (1,)), ArraySpec("count", (1,)), ArraySpec("place", (1,), low=-1, high=1))),
    ActionSpec(("a",), (-1.0,), (1.0,), ("1",)),
    max_steps=12,
)
SETTINGS: dict[str, Any] = {
    **{"every": 1, "checkpoint_every": 40, "seconds": 0.0, "most_ahead": 20},
    **{"beat": 20.0, "slow": 600.0, "deaths": 5},
}


def settings(folder: Path) -> dict[str, Any]:
    path = folder / "settings.json"
    return SETTINGS | (json.loads(path.read_text()) if path.exists() else {})


def append(path: Path, line: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


class Numbered(gymnasium.Env[Any, Any]):
    """No two steps are alike: each session of the environment counts its own. The action that equals the place pays most."""

    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        sessions = folder / "sessions.txt"
        append(sessions, "")
        self._session, self._count, self._left = float(len(sessions.read_text())), 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self._left = SPEC.max_steps
        self._count += 1
        return self._observe(), {}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        append(self._folder / "executed.txt", f"{self._session:.0f} {self._count}")
        reward = -float((action[0] - self._place) ** 2)
        self._count, self._left = self._count + 1, self._left - 1
        return self._observe(), reward, False, self._left == 0, {}

    def _observe(self) -> dict[str, Array]:
        self._place = float(self.np_random.uniform(-1, 1))
        return {
            "session": np.float32([self._session]),
            "count": np.float32([self._count]),
            "place": np.float32([self._place]),
        }


class Slope:
    """Acts in proportion to the place, with noise."""

    environment_spec = SPEC

    def __init__(self) -> None:
        self.slope, self.generator = np.zeros(1), np.random.default_rng(0)

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

    def __init__(self, seconds: float = 0.0, fails_at: int = -1) -> None:
        self.policy: Policy = Slope()
        self._seconds, self._fails_at = seconds, fails_at
        self.updates, self.trace = 0, 0.0

    def update(self, batch: Batch) -> Metrics:
        time.sleep(self._seconds)
        if self.updates == self._fails_at:
            raise NonFiniteUpdate("Update 7 was refused.")
        good = batch.rewards >= np.median(batch.rewards)
        places, actions = batch.observations["place"][good, 0], batch.actions[good, 0]
        slope = float(places @ actions / max(places @ places, 1e-3))
        policy = self.policy
        assert isinstance(policy, Slope)
        policy.slope = policy.slope + 0.1 * (slope - policy.slope)
        self.updates += 1
        self.trace = 0.9 * self.trace + float(batch.observations["count"].sum())
        return {"train/slope": float(policy.slope[0])}

    def state_dict(self) -> StateDict:
        assert isinstance(self.policy, Slope)
        return {"slope": self.policy.slope.copy(), "updates": self.updates, "trace": self.trace}

    def load_state_dict(self, state: StateDict) -> None:
        assert isinstance(self.policy, Slope)
        self.policy.slope = np.asarray(state["slope"]).copy()
        self.updates, self.trace = state["updates"], state["trace"]


SAMPLING = Sampling(batch_size=32, learning_starts=30, capacity=5000)


class KeepingReader(StepReader):
    """Forgets nothing, so that a test can look at everything again."""

    def forget(self, step: int) -> None: ...


def learning(told: dict[str, Any], steps: int) -> LearningTraining:
    learner = Fitting(told["seconds"], told.get("fails_at", -1))
    return LearningTraining(ReplayLearner(learner, SAMPLING, seed=1, stopwatch=Stopwatch()), steps=steps)


def learner_half(folder: Path, descriptor: int) -> int:
    (folder / "learner.pid").write_text(str(os.getpid()))
    told = settings(folder)
    if "last_words" in told:
        sys.exit(told["last_words"])
    training = learning(told, 10**9)
    reader = partial(KeepingReader, folder / "steps")
    return learn(training, inherited(descriptor), folder / "checkpoints", reader, every=told["every"])


class Observer:
    """Acknowledges steps, has checkpoints written."""

    def __init__(self, folder: Path, every: int) -> None:
        self._folder, self._every = folder, every
        self.seen: list[Metrics] = []
        self.ends: list[str] = []

    def on_episode(self, step: int, *, stop_reason: str, **outcome: Any) -> None:
        self.ends.append(stop_reason)

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        self.seen.append(metrics)

    def on_step(self, step: int, training: ActingTraining) -> None:
        append(self._folder / "acknowledged.txt", (self._folder / "executed.txt").read_text().splitlines()[-1])
        if step % self._every == 0:
            training.save(step, training.state_dict())


def acting(folder: Path, steps: int, environment: Any = None) -> ActingTraining:
    told = settings(folder)
    command = [sys.executable, __file__, "learn", str(folder)]
    process = LearnerProcess(
        command, folder / "log.txt", LearnerTimeouts(beat=told["beat"], slow=told["slow"], deaths=told["deaths"])
    )
    checkpoints = folder / "checkpoints"
    found = load_checkpoint(checkpoints) if has_checkpoint(checkpoints) else None
    log = StepLog(folder / "steps", SPEC, 0 if found is None else found.step)
    training = acting_training(
        Numbered(folder) if environment is None else environment,
        Fitting(),
        SAMPLING,
        LearnerConnection(log, process, told["most_ahead"]),
        steps=steps,
        seed=1,
    )
    if found is not None:
        training.load_state_dict(found.parts)
    return training


def actor_half(folder: Path, steps: int) -> int:
    training = acting(folder, steps)
    training.run(Observer(folder, settings(folder)["checkpoint_every"]))  # type: ignore[arg-type]
    training.close()
    return 0


if __name__ == "__main__":
    half = {"act": actor_half, "learn": learner_half}[sys.argv[1]]
    sys.exit(half(Path(sys.argv[2]), int(sys.argv[3])))
