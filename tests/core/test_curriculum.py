"""Curricula around environments: levels, variants, hints, outcomes, state in checkpoints, evaluations without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import robo_rl
from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.recipe import parse_recipe
from robo_app.recording.record import Record, record
from robo_cli.data.info import summary_of
from robo_datasets.dataset import Dataset
from robo_datasets.recorder import record_episode
from robo_rl.environments.curriculum import CurriculumEnv, CurriculumRule, CurriculumTasks
from robo_rl.environments.lasting import lasting_state, load_lasting_state
from robo_rl.environments.levels import KEPT_APART, level_seed, training_levels
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, SpecMismatch, UnknownName
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification

ROOMS = "minigrid/MiniGrid-MultiRoom-N2-S4-v0"
HARDER = "minigrid/MiniGrid-MultiRoom-N4-S5-v1"
REACH = "robo/ArmReach-v0"


def first(observation):
    return {name: np.array(value) for name, value in observation.items()}


def around(rule, *names, teacher=(), recorded=None):
    tasks = CurriculumTasks(rule, len(names), teacher, recorded)
    return CurriculumEnv([make_environment(name) for name in names], tasks)


@pytest.mark.slow
def test_levels_are_those_of_the_training_pool():
    environment = around(CurriculumRule(sampler="uniform", levels=3), ROOMS)
    levels = [first(make_environment(ROOMS).reset(seed=level_seed("train", level))[0]) for level in range(3)]
    found = set()
    for seed in range(20):
        observation, info = environment.reset(seed=seed)
        level = info["metadata"]["level"]
        found.add(level)
        assert info["metadata"]["split"] == "train"
        for name, value in levels[level].items():
            np.testing.assert_array_equal(observation[name], value)
    assert found == {0, 1, 2}
    for _ in range(20):  # without a seed, as after an episode of a vector
        assert environment.reset()[1]["metadata"]["level"] in found


DOOR = "minigrid/MiniGrid-DoorKey-6x6-v0"


@pytest.mark.slow
def test_equal_layouts_are_taken_once_and_none_of_the_tests():
    """A room of 4 by 4, in which two seeds often draw one layout."""
    small = make_environment(DOOR)

    def layout(split, level):
        small.reset(seed=level_seed(split, level))
        return small.get_wrapper_attr("layout")

    tested = {layout("test", level) for level in range(KEPT_APART)}
    levels = training_levels(small, 40)
    chosen = [layout("train", level) for level in levels]
    assert len({*chosen}) == 40 and not tested & {*chosen} and levels != [*range(40)]
    environment = around(CurriculumRule(sampler="uniform", levels=5), DOOR)
    for seed in range(20):
        environment.reset(seed=seed)
        assert environment.get_wrapper_attr("layout") in chosen
    with pytest.raises(InvalidSetting, match="There are not as many levels"):
        training_levels(make_environment("minigrid/MiniGrid-Empty-5x5-v0"), 1)
    assert training_levels(make_environment(REACH), 3) == [0, 1, 2], "drawn from a range, no two are alike"


def test_variants_change_the_environment():
    environment = around(CurriculumRule(sampler="frontier", uniform_share=0.0), ROOMS, HARDER)
    assert specification(environment).name == HARDER
    assert environment.reset(seed=5)[1]["metadata"]["variant"] == 0
    same = first(make_environment(ROOMS).reset(seed=5)[0])
    for name, value in same.items():
        np.testing.assert_array_equal(environment.reset(seed=5)[0][name], value)
    environment.curriculum.sampler.position = 1
    harder = first(make_environment(HARDER).reset(seed=5)[0])
    observation, info = environment.reset(seed=5)
    assert info["metadata"]["variant"] == 1
    for name, value in harder.items():
        np.testing.assert_array_equal(observation[name], value)


@pytest.fixture(scope="module")
def teacher():
    """Return a spec and episodes of the arm's script."""
    environment = make_environment(REACH, action_repeat=3)
    spec = specification(environment)
    return spec, [rollout(environment, environment.get_wrapper_attr("scripted_policy")(seed), seed=seed) for seed in range(3)]


def test_hints_begin_in_the_teachers_states_with_the_time_left(teacher):
    spec, episodes = teacher
    rule = CurriculumRule(sampler="frontier", uniform_share=0.0, hints=(0.6, 0.0))
    tasks = CurriculumTasks(rule, 1, episodes, spec)
    environment = CurriculumEnv([make_environment(REACH, action_repeat=3)], tasks)
    observation, info = environment.reset(seed=1)
    facts = info["metadata"]
    episode = next(each for each in episodes if each.seed == facts["teacher_seed"])
    steps = int(0.6 * len(episode))
    assert facts["hint"] == steps and tasks.kind == "hints"
    np.testing.assert_array_equal(observation["joint_position"], episode.observations["joint_position"][steps])
    taken, over = 0, False
    while not over:
        *_, terminated, truncated, _ = environment.step(np.zeros(spec.action.shape, np.float32))
        taken, over = taken + 1, terminated or truncated
    assert truncated and taken == spec.max_steps - steps
    tasks.sampler.position = 1
    assert "hint" not in environment.reset(seed=1)[1]["metadata"]


def test_hinted_episodes_are_of_no_level(teacher):
    spec, episodes = teacher
    rule = CurriculumRule(sampler="uniform", hints=(0.5, 0.0), levels=3)
    environment = CurriculumEnv([make_environment(REACH, action_repeat=3)], CurriculumTasks(rule, 1, episodes, spec))
    facts = [environment.reset(seed=seed)[1]["metadata"] for seed in range(20)]
    assert {("hint" in each, "level" in each) for each in facts} == {(True, False), (False, True)}


def test_teachers_on_levels_of_the_test_are_refused(teacher):
    spec, episodes = teacher
    leaked = [*episodes, replace(episodes[0], seed=level_seed("test", 3))]
    with pytest.raises(InvalidSetting, match="kept apart"):
        CurriculumTasks(CurriculumRule(sampler="frontier", hints=(0.5, 0.0)), 1, leaked, spec)


def test_hints_are_refused_for_a_robot(teacher):
    spec, episodes = teacher
    environment = make_environment(REACH, action_repeat=3)
    environment.unwrapped.replays = False
    tasks = CurriculumTasks(CurriculumRule(sampler="uniform", hints=(0.5, 0.0)), 1, episodes, spec)
    with pytest.raises(InvalidSetting, match="States of a robot cannot be restored"):
        CurriculumEnv([environment], tasks)


def test_outcomes_reach_the_sampler(teacher):
    spec, _ = teacher
    tasks = CurriculumTasks(CurriculumRule(sampler="uniform", levels=2, rate=1.0), 1, (), None)
    environment = CurriculumEnv([make_environment(REACH, action_repeat=3)], tasks)
    played = rollout(environment, RandomPolicy(spec, 0), seed=0)
    level = played.metadata["level"]
    assert tasks.sampler.success[level] == float(bool(played.success)) and tasks.sampler.seen.sum() == 1
    expert = environment.get_wrapper_attr("scripted_policy")(0)
    again = rollout(environment, expert, seed=0)
    assert again.success and tasks.sampler.success[again.metadata["level"]] == 1.0


@pytest.mark.slow
def test_state_leads_to_the_same_task():
    environment = around(CurriculumRule(sampler="learnability", levels=50), ROOMS)
    spec = specification(environment)
    for seed in range(8):
        rollout(environment, RandomPolicy(spec, seed), seed=seed)
    observation, info = environment.reset(seed=99)
    other = around(CurriculumRule(sampler="learnability", levels=50), ROOMS)
    load_lasting_state(other, lasting_state(environment))
    again, facts = other.reset(seed=99)
    assert facts["metadata"] == info["metadata"]
    for name, value in observation.items():
        np.testing.assert_array_equal(again[name], value)


RECIPE = {
    "environment": {"name": REACH, "arguments": {"action_repeat": 3, "max_steps": 8}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8]}, "replay": {"learning_starts": 10}, "batch_size": 8},
    "curriculum": {"sampler": "replay", "levels": 24, "uniform_share": 0.0},
    "evaluation": {"episodes": 2, "videos": 0},
    "checkpoint_every": 77,
    "log_every": 20,
}


@pytest.mark.slow
def test_resume_goes_on_with_the_same_tasks(tmp_path):
    whole = robo_rl.train(RECIPE, steps=154, out=tmp_path / "whole", record_episodes=True)
    half = robo_rl.train(RECIPE, steps=77, out=tmp_path / "half", record_episodes=True)
    rest = robo_rl.resume(half.path, steps=154)
    levels = [[each.metadata["level"] for each in Dataset(run.path / "episodes")] for run in (whole, rest)]
    assert levels[0] == levels[1] and len(set(levels[0])) > 5
    assert any("curriculum/seen" in line for line in whole.metrics())


@pytest.mark.slow
def test_splits_keep_the_arguments_of_the_evaluation(tmp_path):
    recipe = {**RECIPE, "evaluation": {"episodes": 1, "videos": 0, "arguments": {"max_steps": 3}}}
    run = robo_rl.train(recipe, steps=20, out=tmp_path)
    assert run.evaluate(2, split="test").lengths == run.evaluate(2).lengths == (3, 3)


@pytest.mark.slow
def test_evaluations_have_no_curriculum(tmp_path):
    run = robo_rl.train({**RECIPE, "curriculum": {"sampler": "uniform", "levels": 1}}, steps=40, out=tmp_path)
    assert run.evaluate(episodes=3).seeds == (1_000_000, 1_000_001, 1_000_002)


def test_ppo_shares_one_sampler_between_environments():
    recipe = parse_recipe({**RECIPE, "algorithm": "ppo", "learner": {}, "steps": 10, "name": "x"}, source="a test")
    environments = RecipeEnvironments(recipe).make_vector(3)
    environments.reset(seed=[1, 2, 3])
    for _ in range(9):
        environments.step(np.zeros((3, 5), np.float32))
    assert [each.curriculum.sampler.seen.sum() for each in environments.envs] == [3, 3, 3]
    assert lasting_state(environments)["CurriculumEnv"]["seen"].sum() == 3


@pytest.mark.slow
def test_hints_from_a_dataset_and_bad_curricula_by_recipe(tmp_path):
    environment = make_environment(REACH, action_repeat=3, max_steps=60)
    dataset = Dataset.create(tmp_path / "teacher", specification(environment), {})
    with dataset.writer() as writer:
        for seed in range(2):
            record_episode(
                environment, environment.get_wrapper_attr("scripted_policy")(seed), writer, seed=seed, source="teacher"
            )
    base = {**RECIPE, "environment": {"name": REACH, "arguments": {"action_repeat": 3, "max_steps": 60}}, "steps": 40}
    hinted = {"sampler": "ladder", "hints": [0.5, 0.0], "dataset": str(dataset.path), "uniform_share": 0.5}
    run = robo_rl.train({**base, "steps": 300, "curriculum": hinted}, out=tmp_path / "runs", record_episodes=True)
    hints = {"hint" in each.metadata for each in Dataset(run.path / "episodes")}
    assert hints == {True, False}
    refused = {
        "no sampler": {"levels": 3},
        "teacher's episodes": {"sampler": "frontier", "hints": [0.5, 0.0]},
        "no order of difficulty": {"sampler": "frontier", "levels": 3},
        "one kind": {"sampler": "frontier"},
        "hints": {"sampler": "frontier", "hints": [0.0, 0.5], "dataset": str(dataset.path)},
    }
    for words, curriculum in refused.items():
        with pytest.raises(InvalidSetting, match=words):
            robo_rl.train({**base, "curriculum": curriculum}, out=tmp_path / "refused")
    other = {"sampler": "frontier", "variants": [{"name": "robo/ArmPush-v0"}]}
    with pytest.raises(SpecMismatch, match="variant of the curriculum"):
        robo_rl.train({**base, "curriculum": other}, out=tmp_path / "refused")


@pytest.mark.slow
def test_episodes_of_variants_are_recorded(tmp_path):
    """An easier variant may have another time limit; its episodes belong to the run all the same."""
    variants = [{"arguments": {"max_steps": 4}}]
    recipe = {**RECIPE, "curriculum": {"sampler": "uniform", "variants": variants}}
    run = robo_rl.train(recipe, steps=77, out=tmp_path, record_episodes=True)
    lengths = {each.metadata["variant"]: len(each) for each in Dataset(run.path / "episodes") if each.truncated}
    assert lengths == {0: 4, 1: 8}


def test_loops_without_it_refuse_a_curriculum(tmp_path):
    with pytest.raises(InvalidSetting, match="curriculum"):
        robo_rl.train({**RECIPE, "algorithm": "sb3-sac", "learner": {}}, steps=20, out=tmp_path)


@pytest.mark.slow
def test_levels_are_recorded_and_played_by_split(tmp_path):
    dataset = record(Record(REACH, tmp_path / "data", episodes=7, levels=3, noise=0.3, arguments={"action_repeat": 3}))
    assert [entry.seed for entry in dataset.entries()] == [level_seed("train", level % 3) for level in range(7)]
    one, other = (dataset.read(dataset.entries()[number]) for number in (0, 3))  # the same level, played in another way
    np.testing.assert_array_equal(one.observations["joint_position"][0], other.observations["joint_position"][0])
    assert not np.array_equal(one.actions[:3], other.actions[:3])
    assert dataset.card["levels"] == 3 and dataset.card["split"] == "train"
    run = robo_rl.train("offline-bc", steps=30, dataset=dataset.path, out=tmp_path, evaluation={"episodes": 2, "videos": 0})
    assert run.evaluate(50, split="train").seeds == tuple(level_seed("train", level) for level in range(3))
    assert run.evaluate(2, split="validation").seeds == (level_seed("validation", 0), level_seed("validation", 1))
    assert run.evaluate(2, split="test").seeds == run.evaluate(2).seeds
    assert (run.path / "evaluations" / "levels-train.json").exists()
    note = next(note for note in run.evaluate(50, split="train").notes if "gap" in note)
    assert "2 levels of the test: success +" in note and "return +" in note
    few = robo_rl.train("offline-bc", steps=30, dataset=dataset.path, out=tmp_path, demonstrations={"episodes": 2})
    assert len(few.evaluate(50, split="train")) == 2  # those that it saw
    assert not any("gap" in note for note in run.evaluate(2, split="train", stochastic=True).notes)
    with pytest.raises(UnknownName, match="exam"):
        run.evaluate(2, split="exam")
    assert summary_of(dataset)["levels"] == {"train": 3}
    tested = record(Record(REACH, tmp_path / "test", episodes=1, seed=level_seed("test", 7)))
    assert summary_of(tested)["levels"] == {"test": 1}
    with pytest.raises(InvalidSetting, match="kept apart"):
        robo_rl.train("offline-bc", steps=30, dataset=tested.path, out=tmp_path)
    plain = robo_rl.train({**RECIPE, "curriculum": {}}, steps=30, out=tmp_path)
    with pytest.raises(InvalidSetting, match="no levels of its own"):
        plain.evaluate(2, split="train")
    with pytest.raises(InvalidSetting, match="into a new dataset"):
        Record(REACH, tmp_path / "data", levels=3, seed=4)
