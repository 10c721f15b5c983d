"""A training at a robot with its operator: its episodes are the same to a learner in this process and in one of its own."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from robo_policies.learners.hil_serl import HILSERLConfig, HILSERLReplay
from robo_policies.learners.rlpd import RLPDNetwork
from robo_real.console.operator import operator_at
from robo_real.console.operator_env import HOLDS, READY
from robo_rl.environments.make import make_environment
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.rollout.step_log import StepLog, StepReader
from robo_rl.spec.environment import specification
from robo_rl.stopwatch import Stopwatch
from robo_rl.training.actor_learner.learning import LearningTraining
from robo_rl.training.actor_learner.server import Finished
from robo_rl.training.off_policy import online_training
from robo_rl.training.replay_learning import ReplayLearner
from robo_rl.types import ActionSource

RIGHT = np.array([0, 0.5, 0, 0, 1], np.float32)
CONFIG = HILSERLConfig(network=RLPDNetwork(hidden=(8,)), batch_size=8, replay=HILSERLReplay(learning_starts=5, capacity=200))
SCRIPT = {
    (0, 2): "hold", (0, 4): "success",
    (1, 1): "hold", (1, 4): "lost",
    (2, 1): "hold", (2, 3): "discard",
    (3, 2): "failure",
}  # fmt: skip
"""episode and step in it -> what the person does before it"""


class Scripted:
    """A person at the desk of an operator, who does what the script says."""

    def __init__(self, operator: Any, person: Any) -> None:
        self.operator, self.person, self.operator_state = operator, person, operator.operator_state
        self.episode, self.step, self.me = -1, 0, object()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.person, name)

    def may_begin(self) -> bool:
        """Is asked while the operator is waited for: sits down, looks, presses start."""
        self.operator._rearm()
        self.operator_state.acquire(self.me)
        self.operator_state.update(self.me, False, RIGHT)
        self.operator_state.start(self.me)
        return True

    def reset(self) -> None:
        self.person.reset()
        self.episode, self.step = self.episode + 1, 0

    def override(self, observation: Any, proposed: Any) -> Any:
        deed = SCRIPT.get((self.episode, self.step), "")
        if deed == "hold":
            self.operator_state.update(self.me, True, RIGHT)
        elif deed == "lost":
            self.operator_state.release(self.me)
        elif deed:
            self.operator_state.label(self.me, deed)
        self.step += 1
        return self.person.override(observation, proposed)


class Journal:
    """Writes a log beside a training in one process."""

    def __init__(self, log: StepLog) -> None:
        self.log, self.step = log, log.step

    def begin(self, number: int, observation: Any, *, seed: int, instruction: str | None) -> None:
        self.log.begin(observation, seed=seed, instruction=instruction)

    def keep(self, episode: Any) -> None: ...

    def recorded(self, number: int) -> None: ...


class Until:
    """Stands for whoever watches, and for an acting process of which nothing more than the log is to be expected."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def on_episode(self, step: int, *, stop_reason: str, **outcome: Any) -> None:
        self.ends.append(stop_reason)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None

    def serve(self, step: int, training: Any, timeout: float = 0.0) -> None:
        if timeout:  # it would wait
            raise Finished


def leaves(state: Any) -> Any:
    if isinstance(state, dict):
        return {name: leaves(value) for name, value in state.items()}
    return np.asarray(state).tobytes() if hasattr(state, "__array__") else state


@pytest.fixture
def asked(serve, unhurried, monkeypatch):
    """Gives an operator and the environment of a training, whose twin runs in real time."""
    monkeypatch.setattr("robo_real.console.operator_state.STOP_AFTER", 0.2)
    name = f"robot:{serve(unhurried, cameras=()).url}"
    operator = operator_at(name, address="127.0.0.1", port=0)
    environment, person = operator.training_env(make_environment(name, max_steps=40))
    yield SimpleNamespace(operator=operator, environment=environment, person=person, spec=specification(environment))
    environment.close()
    operator.close()


@pytest.mark.slow
def test_operator_events_reach_learner_through_log(asked, tmp_path):
    simulated = make_environment("robo/ArmReach-v0", max_steps=10)
    demonstrations = [rollout(simulated, RandomPolicy(specification(simulated), 0), seed=0)]
    log, person, watched = StepLog(tmp_path, asked.spec), Scripted(asked.operator, asked.person), Until()
    asked.environment.may_begin = person.may_begin
    settings: dict[str, Any] = {"seed": 4, "demonstrations": demonstrations}
    learner, acted = CONFIG.build(asked.spec, 5), {"supervisor": person, "recorder": Journal(log)}
    whole = online_training(asked.environment, learner, CONFIG.sampling, steps=40, **acted, **settings)
    whole.run(watched)
    log.close()
    assert watched.ends == ["goal", "operator_lost", "discarded", "operator"]

    student = ReplayLearner(CONFIG.build(asked.spec, 5), CONFIG.sampling, stopwatch=Stopwatch(), is_corrected=True, **settings)
    half = LearningTraining(student, steps=10**9)
    reader = StepReader(tmp_path)
    with pytest.raises(Finished):
        half.learn_from(reader, watched)
    reader.close()
    expected, found = whole.state_dict(), half.state_dict()
    for state in (expected, found):
        del state["learner"]["policy"]  # the generator of actions is the acting half's
    for part in ("learner", "replay", "offline"):
        assert leaves(found[part]) == leaves(expected[part]), part

    steps = [step for step in log.since(0) if hasattr(step, "source")]
    sources = np.array([step.source for step in steps])
    own = int((sources == ActionSource.HUMAN).sum())
    assert own == 3 + 3 + 3 and (sources == ActionSource.GUARD).sum() >= 2
    assert int(np.sum(found["offline"]["corrections"]["rows"]["starts"])) == own, "a step that merely holds corrects nothing"
    rows = found["replay"]["rows"]
    assert rows["vectors"][rows["starts"].astype(bool), -1].sum() == 1, "the label of success, and nothing else, is paid"


@pytest.mark.slow
def test_start_is_refused_while_learner_is_absent(asked):
    operator, me, told = asked.operator, object(), []
    operator.operator_state.acquire(me)

    def may_begin() -> bool:
        told.append(operator.tally.message)
        if len(told) < 4:
            threading.Timer(0.02, operator.operator_state.start, [me]).start()  # while it waits
            return False
        if told[-1] == READY:
            operator.operator_state.start(me)
        return True

    operator.operator_state.start(me)  # before anybody waits
    operator.wait_for_start(may_begin)
    assert told == ["", HOLDS, HOLDS, HOLDS, READY]


@pytest.mark.slow
def test_held_episode_is_over_and_next_can_start(asked):
    person = Scripted(asked.operator, asked.person)
    asked.environment.may_begin = person.may_begin
    for seed in range(2):
        asked.environment.reset(seed=seed)
        person.person.reset()
        assert asked.operator.tally.state == "running"
        asked.environment.step(np.array([0, 0, 0, 0, 1], np.float32))
        asked.environment.get_wrapper_attr("hold")()
        assert (asked.operator.tally.state, asked.operator.tally.message) == ("waiting", HOLDS)
