"""A reward program is tried before anything is trained with it, wherever in a reward it stands."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from robo_app.recipes.environments import RecipeEnvironments
from robo_app.recipes.online_reward import reward_of
from robo_app.recipes.recipe import RewardSettings, parse_recipe
from robo_app.training.program_validation import require_sound_programs
from robo_cli.main import dispatch
from robo_rl.errors import InvalidSetting
from robo_rl.rewards.programs.runner import end_workers

RECIPE = {
    "name": "tiny",
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 60, "action_repeat": 3}},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8]}, "batch_size": 8, "replay": {"learning_starts": 4}},
    "steps": 10,
    "evaluation": {"episodes": 1, "videos": 0},
}
NEXT = """def reward(batch):
    distance = np.linalg.norm(batch["goal_from_gripper"], axis=1)
    following = np.concatenate([distance[1:], distance[-1:]])
    return distance - following, {"gain": distance - following}
"""
SOUND = """def reward(batch):
    distance = np.linalg.norm(batch["goal_from_gripper"], axis=1)
    return 1 - distance, {"closeness": 1 - distance, "constant": np.full_like(distance, 2.0)}
"""


@pytest.fixture(autouse=True)
def _programs():
    Path("next.py").write_text(NEXT)
    Path("sound.py").write_text(SOUND)
    yield
    end_workers()


def recipe(reward=None, **changes):
    return parse_recipe({**RECIPE, **changes, "reward": reward or {"name": "program:next.py"}}, source="the test")


def require(found) -> None:
    require_sound_programs(found, reward_of(found, RecipeEnvironments(found)))


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["following", "np.cumsum(distance)", "np.full_like(distance, distance.mean())"])
def test_train_refuses_a_program_of_other_rows(rows):
    """Of the next ones a policy knows nothing, and how many there are depends on how often it is asked."""
    Path("next.py").write_text(NEXT.replace("- following,", f"- {rows},"))
    Path("tiny.yaml").write_text(yaml.safe_dump({**RECIPE, "reward": {"name": "program:next.py"}}))
    with pytest.raises(
        InvalidSetting, match=r"(?s)next.py fails its probation.*other rows of the batch.*--reward.no-probation"
    ):
        dispatch(["train", "tiny.yaml"])
    assert not Path("runs").exists(), "nothing was begun"


@pytest.mark.slow
def test_train_skips_probation_if_told_so():
    Path("tiny.yaml").write_text(yaml.safe_dump({**RECIPE, "steps": 80, "reward": {"name": "program:next.py"}}))
    assert dispatch(["train", "tiny.yaml", "--reward.no-probation"]) == 0


@pytest.mark.slow
def test_train_refuses_a_program_that_ranks_failure_higher():
    Path("next.py").write_text(SOUND.replace("return 1 - distance", "return distance"))
    with pytest.raises(InvalidSetting, match="Failure earns as much as success or more"):
        require(recipe())


@pytest.mark.slow
def test_train_tries_programs_inside_of_rewards():
    sound = {"reward": "program:sound.py"}
    phi = {"stage": "potential", "settings": {"program": "next.py"}}
    pipelines = [{"sources": [{"reward": "program:next.py"}]}, {"sources": [sound | {"stages": [phi]}]}]
    for settings in pipelines:
        with pytest.raises(InvalidSetting, match=r"next.py fails its probation"):
            require(recipe({"name": "pipeline", "settings": settings}))
    phi["settings"]["program"] = "sound.py"
    require(recipe({"name": "pipeline", "settings": {"sources": [sound], "stages": [phi]}}))
    with pytest.raises(InvalidSetting, match=r"next.py fails its probation"):
        require(recipe({"name": "lare", "settings": {"path": "next.py"}}))
    require(recipe({"name": "lare", "settings": {"path": "sound.py"}}))


@pytest.mark.slow
def test_train_tries_factors_beside_a_total_that_says_nothing():
    """Of a decoder's program only the terms count, so that a total of 0 is no fault, and a term of other rows is one."""
    total = "return np.zeros_like(distance), "
    Path("sound.py").write_text(SOUND.replace("return 1 - distance, ", total))
    require(recipe({"name": "lare", "settings": {"path": "sound.py"}}))
    Path("next.py").write_text(NEXT.replace("return distance - following, ", total))
    with pytest.raises(InvalidSetting, match="other rows of the batch"):
        require(recipe({"name": "lare", "settings": {"path": "next.py"}}))


@pytest.mark.slow
def test_train_moves_no_robot_for_a_probation(monkeypatch):
    """Only recorded steps will do: a random policy is not for robots."""
    monkeypatch.setattr(
        "robo_app.training.program_validation.drawn_environment", lambda _: pytest.fail("an environment was made")
    )
    found = recipe()
    reward = reward_of(found, RecipeEnvironments(found))
    served = replace(found, environment=replace(found.environment, name="robot:http://127.0.0.1:9"))
    with pytest.raises(InvalidSetting, match="a robot is not moved for that"):
        require_sound_programs(served, reward)
    require_sound_programs(replace(served, reward=RewardSettings("program:next.py", probation=False)), reward)
    dispatch(
        [
            "record",
            "robo/ArmReach-v0",
            "--episodes",
            "2",
            "--environment.arguments.max_steps",
            "60",
            "--environment.arguments.action_repeat",
            "3",
            "--out",
            "data",
        ]
    )
    recorded = replace(served, demonstrations=replace(served.demonstrations, dataset="data"))
    with pytest.raises(InvalidSetting, match="other rows of the batch"):
        require_sound_programs(recorded, reward)
