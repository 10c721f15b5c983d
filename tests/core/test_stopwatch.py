"""The stopwatch: at every moment one activity runs, so that the seconds of all add up to the wall clock."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from robo_policies.learners.sac import SACConfig
from robo_policies.networks.settings import Network
from robo_rl import stopwatch as module
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import evaluate
from robo_rl.protocols.sampling import Replay
from robo_rl.report.reading import ACTIVITIES, read_runs
from robo_rl.runs.observer import Cadence, RunRecord
from robo_rl.runs.run import Run
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec, specification
from robo_rl.stopwatch import Stopwatch, timed
from robo_rl.training.off_policy import online_training

SPEC = EnvironmentSpec("timed", ObservationSpec((ArraySpec("state", (1,)),)), None)


class Clock:
    """A clock that somebody turns."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def turn(self, seconds: float) -> float:
        self.now += seconds
        return seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "_running", SimpleNamespace())
    return clock


def test_activity_excludes_nested_ones_and_rest_is_other(clock):
    watch = Stopwatch()
    clock.turn(50)  # before it starts nothing counts
    watch.start()
    clock.turn(1)

    def step():
        clock.turn(2)
        watch.time("infer", lambda: clock.turn(4))
        return clock.turn(8)

    assert watch.time("simulate", step) == 8
    clock.turn(16)
    assert watch.state_dict() == {"other": 17, "simulate": 10, "infer": 4}
    assert watch.metrics == {"time/other_s": 17, "time/simulate_s": 10, "time/infer_s": 4}


def test_an_error_ends_the_activity(clock):
    watch = Stopwatch()
    watch.start()
    with pytest.raises(ZeroDivisionError):
        watch.time("update", lambda: clock.turn(1) / 0)
    clock.turn(2)
    assert watch.state_dict() == {"other": 2, "update": 1}


def test_saved_seconds_go_on(clock):
    watch = Stopwatch()
    watch.load_state_dict({"update": 5.0, "other": 1.0})
    clock.turn(99)
    watch.start()
    watch.time("update", lambda: clock.turn(2))
    assert watch.state_dict() == {"update": 7, "other": 1}


def test_hidden_time_is_charged_to_running_stopwatch(clock):
    assert timed("render", lambda: clock.turn(1)) == 1
    watch = Stopwatch()
    watch.start()
    watch.time("simulate", lambda: timed("render", lambda: clock.turn(3)))
    assert watch.state_dict() == {"other": 0, "simulate": 0, "render": 3}


class Quiet:
    def update(self, step, metrics): ...

    def say(self, message): ...


@pytest.mark.slow
def test_the_activities_of_a_training_add_up_to_its_wall_clock(monkeypatch, tmp_path):
    """Every reading of the clock is a second later than the one before: no second may be lost or counted twice."""
    readings = itertools.count()
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: float(next(readings))))
    environment = make_environment("robo/ArmReach-v0", cameras=["front"], image_size=16, max_steps=10)
    spec = specification(environment)
    config = SACConfig(network=Network(hidden=(8,)), batch_size=4, replay=Replay(learning_starts=5))
    training = online_training(environment, config.build(spec, 0), config.sampling, steps=20, seed=0)
    with Run.create(tmp_path, recipe_name="timed", seed=0, recipe="{}", spec=spec) as run:
        record = RunRecord(
            run, Cadence(10, 10, 10), lambda policy: evaluate(policy, environment, seeds=[1], training_seed=0), Quiet()
        )
        training.run(record)
        record.finish(20, training)
        record.close()
        seconds = training.stopwatch.state_dict()
        assert set(seconds) == {"other", "simulate", "infer", "render", "update", "log", "evaluation", "checkpoint"}
        assert sum(seconds.values()) == next(readings) - 1
        recorded = read_runs([run.path])[0]
    tags = {tag for tag in recorded.newest if tag.startswith("time/") and tag.endswith("_s")}
    assert tags == {f"time/{name}_s" for name in seconds}
    assert tags <= set(ACTIVITIES)


def test_shares_on_the_page_add_up_to_the_run(tmp_path):
    run = Run.create(tmp_path, recipe_name="timed", seed=0, recipe="{}", spec=SPEC)
    with run:
        run.log(10, {"time/simulate_s": 2.0, "time/update_s": 5.0, "time/other_s": 1.0}, elapsed=8.5)
    split = read_runs([run.path])[0].time_split
    assert split == {"simulation": 2.0, "learner updates": 5.0, "everything else": 1.5}
