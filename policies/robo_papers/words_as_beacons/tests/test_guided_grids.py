"""Subgoals in grid worlds: what completes which, what is told when, nothing of it in evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from minigrid.core.world_object import Ball, Box, Door, Goal, Key, WorldObj

from robo_papers.words_as_beacons.environments import SUBGOAL, GuidedSimulation, guidance
from robo_papers.words_as_beacons.forms import FORMS, Object, Position
from robo_papers.words_as_beacons.level import Level, Subgoal
from robo_papers.words_as_beacons.reward import BONUS, SubgoalReward
from robo_papers.words_as_beacons.teachers import PURPOSE, PerfectTeacher, SubgoalsMissing
from robo_papers.words_as_beacons.tracker import SubgoalTracker
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.vector import metrics_of
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.report.annotating import annotation_warnings
from robo_rl.spec.environment import specification
from robo_sims.grids.simulation import MiniGridSimulation

LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
TASK = "minigrid/MiniGrid-DoorKey-5x5-v0"
PERFECT = {"teacher": "perfect", "unguided": 0.0}


class Said:
    """A teacher that says what it was told to say."""

    def __init__(self, *subgoals: Subgoal) -> None:
        self._subgoals = subgoals

    metrics: ClassVar[dict[str, float]] = {}

    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        return self._subgoals

    def close(self) -> None: ...


def level() -> Level:
    return Level(5, 5, frozenset(), (), (1, 1), "right", "go")


def world(*subgoals: Subgoal, front=None, carried=None) -> GuidedSimulation:
    """Returns a 5x5 world, the agent at (1, 1) looking at a thing at (2, 1), with a teacher who says these subgoals."""
    simulation = GuidedSimulation(MiniGridSimulation("MiniGrid-Empty-5x5-v0"), guidance("position", PERFECT))
    simulation.reset(0)
    source = simulation._simulation.source
    source.agent_pos, source.agent_dir = (1, 1), 0
    source.grid.set(2, 1, front)
    source.carrying = carried
    simulation.tracker._teacher = Said(*subgoals)
    simulation.tracker.begin(0, level())
    return simulation


def bonuses(simulation: GuidedSimulation, *actions: int) -> list[float]:
    return [round(float(simulation.step(np.array(action)).observation[BONUS][0]), 4) for action in actions]


FIRST = 0.99  # of a subgoal that the first of 100 steps completes
HERE = (2, 1)


@pytest.mark.parametrize(
    ("subgoal", "front", "carried", "action", "is_complete"),
    [
        (Subgoal(HERE, "key", "red"), Key("red"), None, PICK_UP, True),
        (Subgoal(HERE, "key", "red"), Key("red"), None, TOGGLE, False),
        (Subgoal(HERE, "ball", "blue"), Ball("blue"), None, PICK_UP, True),
        (Subgoal(HERE, "door", "red", "closed"), Door("red"), None, TOGGLE, True),
        (Subgoal(HERE, "door", "red", "locked"), Door("red", is_locked=True), Key("red"), TOGGLE, True),
        (Subgoal(HERE, "door", "red", "locked"), Door("red", is_locked=True), Key("blue"), TOGGLE, False),
        (Subgoal(HERE, "box", "green", holds=True), Box("green", Key("red")), None, TOGGLE, True),
        (Subgoal(HERE, "box", "green", holds=True), Box("green", Key("red")), None, PICK_UP, False),
        (Subgoal(HERE, "box", "green"), Box("green"), None, PICK_UP, True),
        (Subgoal(HERE, "key", "red"), Box("green", Key("red")), None, PICK_UP, False),
        (Subgoal(HERE, "goal", "green"), Goal(), None, FORWARD, True),
        (Subgoal(HERE), None, None, FORWARD, True),
        (Subgoal(HERE), None, Ball("red"), DROP, True),
        (Subgoal((3, 3)), None, None, FORWARD, False),
    ],
    ids=lambda value: value.type if isinstance(value, WorldObj) else str(value),  # no addresses: processes must agree
)
def test_what_completes_a_subgoal(subgoal, front, carried, action, is_complete) -> None:
    simulation = world(subgoal, front=front, carried=carried)
    simulation.tracker._max_steps = 100
    assert bonuses(simulation, action) == [FIRST if is_complete else 0.0]
    told = simulation.tracker.observe(np.array([[1, 1]]), np.array([0]))
    assert bool(told.any()) is not is_complete


def test_box_precedes_key_and_moving_box_earns_nothing() -> None:
    plan = Subgoal(HERE, "box", "green", holds=True), Subgoal(HERE, "key", "red")
    for actions, expected in (((TOGGLE, PICK_UP), [0.99, 0.99]), ((PICK_UP, DROP, PICK_UP, DROP), [0.0] * 4)):
        simulation = world(*plan, front=Box("green", Key("red")))
        simulation.tracker._max_steps = 100
        assert bonuses(simulation, *actions) == expected


def test_the_bonus_falls_with_the_steps_since_the_one_before() -> None:
    simulation = world(Subgoal((2, 1)), Subgoal((3, 1)))
    simulation.tracker._max_steps = 10
    assert bonuses(simulation, LEFT, RIGHT, FORWARD, DONE, FORWARD, LEFT) == [0.0, 0.0, 0.7, 0.0, 0.8, 0.0]


def test_early_subgoal_is_credited_once_and_next_are_shown() -> None:
    wrong, key, last = Subgoal((4, 4)), Subgoal(HERE, "key", "red"), Subgoal((3, 1))
    simulation = world(wrong, key, last, front=Key("red"))
    tracker = simulation.tracker
    tracker._max_steps = 100
    assert (tracker.observe(np.array([[1, 1]]), np.array([0]))[0, 1:] * 7).tolist() == [3, 3]
    assert bonuses(simulation, PICK_UP, DROP, PICK_UP) == [0.99, 0.0, 0.0]
    assert (tracker.observe(np.array([[1, 1]]), np.array([0]))[0, 1:] * 7).tolist() == [2, 0]
    assert bonuses(simulation, FORWARD, FORWARD) == [0.0, 0.96]
    assert not tracker.observe(np.array([[3, 1]]), np.array([0])).any()  # the last is done: none, though the wrong one is left


def test_positions_are_relative_and_turn_with_the_student() -> None:
    tracker = SubgoalTracker(Position(), Said(Subgoal((3, 0))), 1, unguided=0.0, max_steps=10)
    tracker.begin(0, level())
    ahead_and_right = {0: (2, -1), 1: (-1, -2), 2: (-2, 1), 3: (1, 2)}  # looking right, down, left, up from (1, 1)
    for direction, expected in ahead_and_right.items():
        told = tracker.observe(np.array([[1, 1]]), np.array([direction]))[0]
        assert told[0] == 1.0 and (told[1:] * 7).round(5).tolist() == list(expected)
    assert (tracker.observe(np.array([[2, 1]]), np.array([0]))[0, 1:] * 7).round(5).tolist() == [1, -1]


def test_things_are_told_by_kind_colour_and_state() -> None:
    told = Object().features(Subgoal((1, 1), "door", "blue", "locked"))
    assert "".join(str(int(bit)) for bit in told) == "0" + "100000" + "001000" + "001"
    assert Object().features(Subgoal((1, 1))).nonzero()[0].tolist() == [0]


@pytest.mark.slow
@given(st.sampled_from(sorted(FORMS)), st.integers(0, 2**31 - 1))
@settings(max_examples=15, deadline=None)
def test_in_evaluation_nothing_is_told(form: str, seed: int) -> None:
    environment = make_environment(TASK, encoding="one-hot", subgoals=form)
    observation, _ = environment.reset(seed=seed)
    random = np.random.default_rng(seed)
    for _ in range(20):
        assert set(observation) == {"grid", "direction", SUBGOAL} and not observation[SUBGOAL].any()
        observation, *_, over, _ = environment.step(random.integers(7))
        if over:
            break


@pytest.mark.parametrize("form", sorted(FORMS))
def test_policy_sees_same_entries_in_evaluation(form: str) -> None:
    training, evaluation = (make_environment(TASK, subgoals=form, **more) for more in ({"teaching": PERFECT}, {}))
    reward = SubgoalReward().online(specification(training), weight=1.0, discount=0.99)
    assert reward.visible(specification(training)) == specification(evaluation)
    assert BONUS not in specification(training).observation.vectors


def test_hidden_levels_still_earn_the_bonus() -> None:
    vector = make_vector_environment(TASK, 200, subgoals="position", teaching={"teacher": "perfect", "unguided": 0.3})
    told = vector.reset(seed=0)[0][SUBGOAL][:, 0]
    assert 0.6 < told.mean() < 0.8
    assert not vector.batch.tracker.done[told == 0.0, 0].any()
    vector.close()


def test_there_may_be_only_so_many_levels() -> None:
    teaching = {"teacher": "perfect", "levels": 3}
    vector = make_vector_environment(TASK, 40, subgoals="position", teaching=teaching)
    grids = {bytes(grid) for grid in vector.reset(seed=0)[0]["grid"]}
    expected = set()
    for seed in range(3):
        observation, _ = make_environment(TASK).reset(seed=seed)
        expected.add(bytes(observation["grid"]))
    assert grids == expected
    vector.close()


def test_subgoals_that_cannot_be_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"Unknown form of subgoals 'places'"):
        make_environment(TASK, subgoals="places")
    with pytest.raises(InvalidSetting, match=r"Teaching needs a form of subgoals"):
        make_environment(TASK, teaching=PERFECT)
    with pytest.raises(UnknownName, match=r"Unknown teacher 'perfct'(.|\n)*'perfect'"):
        make_environment(TASK, subgoals="position", teaching={"teacher": "perfct"})
    with pytest.raises(UnknownName, match=r"Unknown key in teaching: 'unguidd'"):
        make_environment(TASK, subgoals="position", teaching={"teacher": "perfect", "unguidd": 1})
    with pytest.raises(InvalidSetting, match=r"Setting 'unguided' is out of range\.\n  got:     2\.0\n  allowed: 0 to 1"):
        make_environment(TASK, subgoals="position", teaching={"teacher": "perfect", "unguided": 2.0})
    with pytest.raises(InvalidSetting, match=r"Subgoals need a time limit that is known"):
        make_environment("minigrid/BabyAI-GoToLocal-v0", subgoals="position", teaching=PERFECT)
    with pytest.raises(InvalidSetting, match=r"There are no subgoals in minigrid"):
        SubgoalReward().online(specification(make_environment(TASK)), weight=1.0, discount=None)


def test_specs_of_guided_worlds_are_plain_json() -> None:
    spec = specification(make_environment(TASK, subgoals="language", teaching=PERFECT))
    assert type(spec).from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_shipped_pack_answers_all_but_spoilt_levels() -> None:
    settings = {"llm": "pack:beacons-doorkey"}
    environment = make_environment(
        TASK, subgoals="language", teaching={"teacher": "llm", "settings": settings, "unguided": 0.0}
    )
    planner, differing, unanswered = PerfectTeacher(), [], []
    for seed in range(16):
        environment.reset(seed=seed)
        simulation = environment._simulation
        told, expected = simulation.tracker._teacher.subgoals(simulation._level()), planner.subgoals(simulation._level())
        differing += [seed] if list(told) != list(expected) else []
        unanswered += [] if told else [seed]
    assert (unanswered, differing) == ([3, 7, 10], [3, 7, 10, 11])  # 10 is the level of 3 again
    assert simulation.tracker._teacher.unanswered == 2
    environment.close()


@pytest.mark.parametrize("is_vector", [False, True])
def test_levels_without_subgoals_are_counted_and_warned_of(tmp_path: Path, is_vector: bool) -> None:
    """A model that is always cut leaves a training without subgoals: its log, its end and its report say so."""
    facts = {"pack": 1, "made": "by hand", "author": "a test", "about": "nothing", "method": "beacons", "task": TASK}
    cut = {"text": "First, the agent", "status": "cut"}
    (tmp_path / "cut.yaml").write_text(yaml.safe_dump({**facts, "replies": {PURPOSE: [{"when": "", "samples": [cut]}]}}))
    teaching = {"teacher": "llm", "settings": {"llm": f"pack:{tmp_path / 'cut.yaml'}"}}
    with pytest.warns(SubgoalsMissing, match="None of the first 3 levels has subgoals: 3 cut"):
        if is_vector:
            environments: Any = make_vector_environment(TASK, 5, subgoals="position", teaching=teaching)
            environments.reset(seed=0)
        else:
            environments = make_environment(TASK, subgoals="position", teaching=teaching)
            for seed in range(5):
                environments.reset(seed=seed)
    counts = metrics_of(environments)
    assert counts["subgoals/levels"] == counts["subgoals/missing"] == counts["subgoals/status_cut"] >= 4
    (told,) = annotation_warnings(counts)
    assert "0 of " in told and "levels have subgoals" in told and "cut" in told
    environments.close()
