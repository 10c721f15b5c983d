"""The learner's half, fed from a log, equals the training in one process bit for bit, also from a checkpoint on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from factories import axes, make_spec
from robo_policies.learners.hil_serl import HILSERLConfig, HILSERLReplay
from robo_policies.learners.rlpd import RLPDNetwork
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.runs.checkpoints import packed, unpacked
from robo_rl.spec.environment import ArraySpec
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.actor_learner.learning import LearningTraining
from robo_rl.training.actor_learner.server import Finished
from robo_rl.training.off_policy import OnlineTraining
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.training.step_sources import EnvironmentSteps, Explorer
from robo_rl.types import ActionSource, Array, Labels, Metrics, StateDict, StepRewards

SPEC = make_spec("test/Line", ArraySpec("place", (2,)), action=axes("x", "y", unit="m"), max_steps=7)
CONFIG = HILSERLConfig(network=RLPDNetwork(hidden=(8,)), batch_size=8, replay=HILSERLReplay(learning_starts=10, capacity=500))
STEPS = 60


class Line(gymnasium.Env[Any, Any]):
    environment_spec = SPEC
    observation_space, action_space = SPEC.observation.space, SPEC.action.space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.place = SPEC.max_steps or 0, self.np_random.uniform(-1, 1, 2)
        return {"place": self.place.astype(np.float32)}, {"instruction": "go east"}

    def step(self, action: Array) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        self.place, self.left = self.place + 0.1 * action, self.left - 1
        return {"place": self.place.astype(np.float32)}, float(self.place[0]), self.place[0] > 1.2, self.left == 0, {}


class EveryOther:
    """A person who commands every other step."""

    calls = 0
    source = ActionSource.HUMAN

    def reset(self) -> None: ...

    def command(self, observation: Any, proposed: Array) -> Array | None:
        self.calls += 1
        return np.float32([1, 0]) if self.calls % 2 else None

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None: ...


class Halved(DelayedRewards):
    """Half of what the environment gives, for three steps at once."""

    is_due, metrics = False, {}  # type: ignore[assignment]

    def __init__(self) -> None:
        self.waiting: list[float] = []

    def restart(self) -> None:
        self.waiting = []

    def begin(self, index: int, observation: Any, instruction: str | None) -> None:
        assert instruction == "go east" and observation["place"].shape == (2,) and not self.waiting

    def add(self, index: int, observation: Any, *, reward: float, **_: Any) -> None:
        self.waiting.append(reward / 2)
        self.is_due = len(self.waiting) == 3

    def add_all(self, observations: Any, **_: Any) -> None:
        raise AssertionError("one environment")

    def score(self) -> StepRewards:
        values, self.waiting, self.is_due = np.float32(self.waiting), [], False
        return StepRewards(Labels.finite(values), np.zeros(len(values), bool))

    def state_dict(self) -> StateDict:
        return {"waiting": list(self.waiting)}

    def load_state_dict(self, state: StateDict) -> None:
        self.waiting = list(state["waiting"])


class Until:
    """Stands for the acting process: ends the learning at a step, or where the log ends."""

    def __init__(self, step: int) -> None:
        self.last = step

    def on_metrics(self, step: int, metrics: Metrics) -> None: ...

    def on_episode(self, step: int, **outcome: Any) -> None: ...

    def publish(self, step: int, policy: Any) -> None: ...

    def serve(self, step: int, training: Any, timeout: float = 0.0) -> None:
        if timeout:  # it would wait
            raise Finished

    def on_step(self, step: int, training: Any) -> None:
        if step == self.last:
            raise Finished


class Logged(ReplayLearner):
    """In one process, with a log beside it."""

    log: StepLog

    def begin(self, episode: Any) -> None:
        self.log.begin(episode.observation, seed=episode.seed, instruction=episode.instruction)
        super().begin(episode)

    def add(self, transition: Any) -> None:
        self.log.step(transition)
        super().add(transition)


def demonstrations() -> list[Any]:
    return [rollout(Line(), RandomPolicy(SPEC, seed), seed=seed) for seed in range(2)]


def student(kind: Any, rewards: Any) -> Any:
    settings: dict[str, Any] = {"seed": 4, "demonstrations": demonstrations(), "is_corrected": True, "rewards": rewards}
    return kind(CONFIG.build(SPEC, 5), CONFIG.sampling, stopwatch=Stopwatch(), **settings)


def half(rewards: Any) -> LearningTraining:
    return LearningTraining(student(ReplayLearner, rewards), steps=10**9)


def learnt(training: LearningTraining, reader: StepReader, until: int = -1) -> None:
    with pytest.raises(Finished):
        training.learn_from(reader, Until(until))  # type: ignore[arg-type]
    reader.close()


def leaves(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: leaves(value) for name, value in state.items()}
    return np.asarray(state).tobytes() if hasattr(state, "__array__") else state


@pytest.mark.slow
@pytest.mark.parametrize("has_model", [False, True], ids=["own-rewards", "rewards-of-a-model"])
def test_learning_from_the_log_is_learning_in_one_process(tmp_path: Path, has_model: bool) -> None:
    log = StepLog(tmp_path, SPEC)
    logged = student(Logged, Halved() if has_model else None)
    logged.log = log
    explorer = Explorer(logged.policy, seed=4, random_steps=CONFIG.replay.learning_starts, stopwatch=logged.stopwatch)
    person: Any = PersonInTheLoop(EveryOther(), 0.1)  # type: ignore[arg-type]
    whole = OnlineTraining(EnvironmentSteps(Line(), explorer, seed=4, supervisor=person), logged, steps=STEPS)
    whole.run(Until(-1))  # type: ignore[arg-type]
    log.close()
    expected = whole.state_dict()
    del expected["learner"]["policy"]  # the generator of actions is the acting half's
    first = half(Halved() if has_model else None)
    learnt(first, StepReader(tmp_path), until=32)  # in the fifth episode, with a step that waits for its reward
    parts = unpacked(packed(first.state_dict() | {"acting": {"episodes": 4}}))
    second = half(Halved() if has_model else None)
    reader = StepReader(tmp_path, 32)
    second.load_from(parts, reader)
    assert second.acting_parts == {"acting": {"episodes": 4}} and second.step == 32
    learnt(second, reader)
    found = second.state_dict()
    del found["learner"]["policy"]
    for part in ("learner", "replay", "offline"):
        assert leaves(found[part]) == leaves(expected[part]), part
    assert second.step == STEPS


@pytest.mark.parametrize("has_model", [False, True], ids=["own-rewards", "rewards-of-a-model"])
def test_episode_that_broke_off_is_not_joined_to_the_next(tmp_path: Path, has_model: bool) -> None:
    """The next one begins where the arm stands."""
    log, expected = StepLog(tmp_path, SPEC), half(None)
    stood = demonstrations()[0]
    for begin in (0, 3):  # the learner was lost after three steps, and the arm was left where it was
        log.begin({"place": stood.observations["place"][begin]}, seed=None, instruction="go east")
        expected.step_learner.memory.begin({"place": stood.observations["place"][begin]})
        for step in range(begin, begin + 3):
            log.step(stood.transition(step))
            told = stood.transition(step)
            expected.step_learner.memory.add(replace(told, reward=told.reward / 2) if has_model else told)
        expected.step_learner.memory.cut()
    log.close()
    found = half(Halved() if has_model else None)
    learnt(found, StepReader(tmp_path))
    found.step_learner.memory.cut()
    assert leaves(found.state_dict()["replay"]) == leaves(expected.state_dict()["replay"])
