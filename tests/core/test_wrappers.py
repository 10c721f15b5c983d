"""The list of wrappers: found by name, one clear error, changed by name, left out of evaluations, opened as recorded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import gymnasium
import numpy as np
import pytest

import robo_rl
from robo_app.arguments.free_settings import EnvironmentArguments, gather, groups_of
from robo_app.papers.checks import rows_of
from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.overrides import recipe_from
from robo_app.recipes.recipe import parse_recipe, to_yaml
from robo_app.training.assembly import judged_environment_of
from robo_app.training.train_options import recipe_of
from robo_datasets.dataset import card_as_recorded
from robo_datasets.recorded_environment import PREFIXES, environment_as_recorded
from robo_rl.conformance.rules import ConformanceFailure
from robo_rl.conformance.wrappers import check_wrapper
from robo_rl.entry_points import known
from robo_rl.environments import wrapping
from robo_rl.environments.make import make_environment, make_vector_environment
from robo_rl.environments.wrapping import EnvironmentWrapper, changed, read_wrappers
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.papers import papers
from robo_rl.spec.environment import specification
from robo_sims.batched.environment import BatchedEnvironment

POINT, ARM = "hazards/Point-v0", "robo/ArmReach-v0"


class Louder(gymnasium.RewardWrapper):
    def __init__(self, environment, gain):
        super().__init__(environment)
        self.gain = gain

    def reward(self, reward):
        return self.gain * float(reward)


@dataclass(frozen=True)
class LouderWrapper(EnvironmentWrapper):
    """A stranger's: pays more while a policy is trained."""

    in_evaluations = False

    gain: float = 2.0

    def wrap(self, environment):
        return Louder(environment, self.gain)


@pytest.fixture
def louder(monkeypatch):
    """As an entry point of a stranger's package would declare it."""
    load = wrapping.load
    monkeypatch.setattr(
        wrapping, "load", lambda group, name, **more: LouderWrapper if name == "louder" else load(group, name, **more)
    )


# one list


def test_wrappers_lie_around_the_environment_in_their_order():
    stack = {"name": "frame_stack", "count": 2, "stacks": "vectors"}
    inside = make_environment(POINT, wrappers=[{"name": "maximum"}, stack])
    assert specification(inside).observation["best_reward"].history == 2
    outside = make_environment(POINT, wrappers=[stack, {"name": "maximum"}])
    assert specification(outside).observation["best_reward"].history == 1


@pytest.mark.parametrize(
    ("entries", "kind", "said"),
    [
        ([{"name": "frame_stak", "count": 3}], UnknownName, "did you mean 'frame_stack'(.|\n)*robo_rl.wrappers"),
        ([{"name": "frame_stack", "cout": 3}], UnknownName, "key in the wrapper frame_stack(.|\n)*did you mean 'count'"),
        ([{"name": "frame_stack", "count": "three"}], InvalidSetting, "the wrapper frame_stack: count has the wrong type"),
        ([{"name": "time_limit"}], InvalidSetting, "the wrapper time_limit lacks the key 'steps'"),
        ([{"name": "time_limit", "steps": 0}], InvalidSetting, "'steps' is out of range"),
        ([{"count": 3}], InvalidSetting, "Wrappers are a list"),
        ({"name": "frame_stack"}, InvalidSetting, "Wrappers are a list"),
        ("frame_stack", InvalidSetting, "Wrappers are a list"),
        (["frame_stack"], InvalidSetting, "Wrappers are a list"),
        (3, InvalidSetting, "Wrappers are a list"),
    ],
)
def test_what_is_no_wrapper_is_one_error(entries, kind, said):
    for make in (make_environment, lambda name, **more: make_vector_environment(name, 2, **more)):
        with pytest.raises(kind, match=said):
            make(POINT, wrappers=entries)


def test_a_simulation_stays_batched_in_batched_wrappers():
    stack = [{"name": "frame_stack", "count": 2, "stacks": "vectors"}]
    for around, is_batched in ((stack, True), ([*stack, {"name": "time_limit", "steps": 3}], False)):
        environments = make_vector_environment("gymnasium/InvertedPendulum-v5", 2, wrappers=around)
        assert isinstance(environments.unwrapped, BatchedEnvironment) is is_batched
        assert environments.environment_spec.observation["cart_position"].history == 2
        environments.close()


def test_time_limit_truncates_once_and_never_lengthens():
    environment = make_environment(ARM, max_steps=5, wrappers=[{"name": "time_limit", "steps": 3}])
    assert specification(environment).max_steps == 3
    for _ in range(2):
        environment.reset(seed=0)
        ends = [environment.step(np.zeros(5, np.float32)) for _ in range(3)]
        assert [end[3] for end in ends] == [False, False, True] and ends[-1][4]["stop_reason"] == "time_limit"
    longer = make_environment(ARM, max_steps=5, wrappers=[{"name": "time_limit", "steps": 9}])
    assert specification(longer).max_steps == 5


# what each one says of itself

SETTINGS = {
    "frame_stack": ({"count": 2, "stacks": "vectors"}, POINT),
    "time_limit": ({"steps": 3}, POINT),
    "constrained": ({"limits": {"hazard": 3}, "budgets": ["hazard"]}, POINT),
    "perturbed": ({"noise": 0.01}, ARM),
    "residual": ({}, ARM),
    "labelled": ({"share": 0.5}, ARM),
}
OF_PAPERS = {
    name: row
    for paper in papers().values()
    for name, row in rows_of(paper).items()
    if name in paper.components.get("wrappers", {})
}
SETTINGS |= {name: (row.settings, row.environment or POINT) for name, row in OF_PAPERS.items() if not row.elsewhere}
ELSEWHERE = {
    **{name: row.elsewhere for name, row in OF_PAPERS.items() if row.elsewhere},
    "encoded": "tests/policies/test_encoders.py",
    "instructed": "tests/policies/test_towers.py",
}
"""Wrappers that need files or a server -> the test that makes one."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrapper_says_what_it_changes(name):
    settings, place = SETTINGS[name]
    [wrapper] = read_wrappers([{"name": name, **settings}])
    check_wrapper(wrapper, lambda: make_environment(place))


def test_every_wrapper_is_checked():
    assert known("wrappers").keys() == {*SETTINGS, *ELSEWHERE}


def test_a_wrapper_that_is_silent_about_a_change_is_found():
    @dataclass(frozen=True)
    class Silent(LouderWrapper):
        def wrap(self, environment):
            [stack] = read_wrappers([{"name": "frame_stack", "count": 2, "stacks": "vectors"}])
            return stack.wrap(environment)

    @dataclass(frozen=True)
    class Seen(Silent):
        changes = ("observation",)

    for wrapper, said in ((Silent(), "it does not name"), (Seen(), "policies are evaluated without it")):
        with pytest.raises(ConformanceFailure, match=said):
            check_wrapper(wrapper, lambda: make_environment(POINT))


# in recipes


def recipe(**changes):
    environment = {"name": POINT, "wrappers": [{"name": "frame_stack", "count": 2, "stacks": "vectors"}]}
    return parse_recipe({"name": "mine", "algorithm": "sac", "steps": 10, "environment": environment, **changes}, source="here")


def test_a_strangers_wrapper_of_trainings_is_not_in_evaluations(louder):
    around = [{"name": "louder", "gain": 4.0}, {"name": "time_limit", "steps": 4}]
    trained = recipe(environment={"name": POINT, "wrappers": around})
    loud, plain = RecipeEnvironments(trained)(), judged_environment_of(trained)
    paid = []
    for environment in (loud, plain):
        environment.reset(seed=0)
        paid.append(environment.step(np.ones(2, np.float32))[1])
        assert specification(environment).max_steps == 4
    assert paid[0] == 4.0 * paid[1] != 0.0
    check_wrapper(LouderWrapper(), lambda: make_environment(POINT))


def test_evaluations_change_settings_of_wrappers_by_name():
    around = [{"name": "frame_stack", "count": 3}, {"name": "time_limit", "steps": 7}]
    judged = judged_environment_of(recipe(evaluation={"wrappers": around}))
    assert specification(judged).max_steps == 7 and specification(judged).observation["position"].history == 3


def test_a_change_is_by_name_and_an_empty_list_clears():
    before = [{"name": "a", "x": 1, "y": 2}, {"name": "b"}]
    assert changed(before, [{"name": "a", "x": 3}, {"name": "c"}]) == [
        {"name": "a", "x": 3, "y": 2},
        {"name": "b"},
        {"name": "c"},
    ]
    assert changed(before, []) == [] and before[0]["x"] == 1
    taller = recipe_from(recipe(), {"environment": {"wrappers": [{"name": "frame_stack", "count": 5}]}})
    assert taller.environment.wrappers == ({"name": "frame_stack", "count": 5, "stacks": "vectors"},)
    assert parse_recipe(json.loads(json.dumps(robo_rl_yaml(taller))), source="there") == taller


def robo_rl_yaml(found):
    import yaml

    return yaml.safe_load(to_yaml(found))


@pytest.mark.parametrize(
    ("words", "wrappers"),
    [
        (["--environment.wrappers.cvar.share", "0.2"], [{"name": "cvar", "share": 0.2}]),
        (["--environment.wrappers.frame-stack.count", "3"], [{"name": "frame_stack", "count": 3}]),
        (["--environment.wrappers.prior", "{}"], [{"name": "prior"}]),
        (["--environment.wrappers", "[{name: cvar, share: 0.2}]"], [{"name": "cvar", "share": 0.2}]),
        (["--environment.wrappers.a.b.c", "1", "--environment.wrappers.a.b.d=2"], [{"name": "a", "b": {"c": 1, "d": 2}}]),
    ],
)
def test_an_option_sets_a_setting_of_a_wrapper(words, wrappers):
    assert list(recipe_of(["sac", "--environment", POINT, *words]).environment.wrappers) == wrappers

    @dataclass(frozen=True)
    class Order:
        arguments: EnvironmentArguments

    gathered = gather([*words, "--environment.arguments.max_steps", "4"], groups_of(Order))
    assert json.loads(gathered[1]) == {"wrappers": wrappers, "max_steps": 4}


def test_an_option_for_wrappers_that_is_none_is_one_error():
    with pytest.raises(InvalidSetting, match=r"--environment.wrappers takes a list"):
        recipe_of(["sac", "--environment", POINT, "--environment.wrappers", "frame_stack"])
    with pytest.raises(InvalidSetting, match=r"--environment.wrappers.cvar takes a mapping"):
        recipe_of(["sac", "--environment", POINT, "--environment.wrappers.cvar", "3"])


# as recorded before

BEFORE = {
    ("prior:robo/ArmReach-v0", '{"std": 0.5, "max_steps": 9}'): (
        ARM,
        {"max_steps": 9, "wrappers": [{"name": "prior", "std": 0.5}]},
    ),
    ("constrained:prior:robo/ArmReach-v0", '{"budgets": ["speed"], "frame_stack": 3, "stacks": "all"}'): (
        ARM,
        {
            "wrappers": [
                {"name": "prior"},
                {"name": "constrained", "budgets": ["speed"]},
                {"name": "frame_stack", "count": 3, "stacks": "all"},
            ]
        },
    ),
    ("perturbed:robo/ArmReach-v0", '{"perturbation": {"mass": 2.0}}'): (
        ARM,
        {"wrappers": [{"name": "perturbed", "mass": 2.0}]},
    ),
    ("planned:carla/Town-v0", '{"horizon": 3}'): (
        "carla/Town-v0",
        {"birdseye": 0, "wrappers": [{"name": "planned", "horizon": 3}]},
    ),
    (POINT, '{"objective": {"name": "reward-machine", "settings": {"machine": "m.yaml"}}, "frame_stack": 2}'): (
        POINT,
        {"wrappers": [{"name": "reward_machine", "machine": "m.yaml"}, {"name": "frame_stack", "count": 2}]},
    ),
    ("robot:http://127.0.0.1:5000", '{"max_steps": 3}'): ("robot:http://127.0.0.1:5000", {"max_steps": 3}),
    (POINT, '{"frame_stack": 1}'): (POINT, {}),
}


@pytest.mark.parametrize("recorded", BEFORE)
def test_environments_open_as_they_were_recorded(recorded):
    name, arguments = recorded[0], json.loads(recorded[1])
    assert environment_as_recorded(name, arguments) == BEFORE[recorded]
    assert environment_as_recorded(*BEFORE[recorded]) == BEFORE[recorded]  # and as they are recorded now
    card = card_as_recorded({"environment": name, "arguments": arguments, "policy": "x"})
    assert (card["environment"], card["arguments"]) == BEFORE[recorded]


def test_every_prefix_of_before_is_a_wrapper():
    points: list[EntryPoint] = [*known("wrappers").values()]
    assert {*PREFIXES} <= {point.name for point in points}
    assert not {*PREFIXES} & known("environments").keys()


@pytest.mark.slow
def test_wrappers_are_in_runs_that_go_on_and_are_judged(tmp_path):
    made = {
        "environment": {"name": POINT, "wrappers": [{"name": "maximum"}, {"name": "time_limit", "steps": 6}]},
        "algorithm": "sac",
        "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 10}},
        "evaluation": {"episodes": 2, "videos": 0},
    }
    run = robo_rl.train(made, steps=20, out=tmp_path)
    assert run.spec.max_steps == 6 and "best_reward" in run.spec.observation
    assert robo_rl.resume(run, steps=30).load().step == 30
    shorter = run.evaluate(2, arguments={"wrappers": [{"name": "time_limit", "steps": 3}]}, videos=0)
    assert shorter.lengths == (3, 3) and run.evaluate(2, environment=POINT, videos=0).lengths == (6, 6)
