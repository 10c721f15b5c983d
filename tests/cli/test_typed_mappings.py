"""Keys of a recipe's mappings on the command line, whether the recipe has them or not."""

import json

import pytest

from robo_app.arguments.free_settings import Group, gather, typed_value
from robo_app.arguments.recipe_settings import mappings_in, with_mappings
from robo_app.recipes.recipe import parse_recipe
from robo_app.recipes.reward_file import read_reward
from robo_app.training.train_options import recipe_of
from robo_rl.errors import InvalidSetting

RECIPE = parse_recipe(
    {
        "name": "x",
        "environment": {"name": "robo/ArmReach-v0", "arguments": {"action_repeat": 3}},
        "algorithm": "sac",
        "steps": 9,
    },
    source="test",
)


def test_new_keys_are_added_and_known_ones_are_left_as_options():
    words = ["--steps", "5", "--environment.arguments.action-repeat", "2", "--environment.arguments.max-steps=7"]
    words += ["--reward.arguments.cameras", "front", "wrist", "--reward.completion.settings.folder", "a b"]
    additions, left = mappings_in(RECIPE, words)
    assert left == ["--steps", "5", "--environment.arguments.action-repeat", "2"]
    assert additions == [
        ("environment.arguments", {"max_steps": 7}),
        ("reward.arguments", {"cameras": ["front", "wrist"]}),
        ("reward.completion.settings", {"folder": "a b"}),
    ]
    named = parse_recipe({**as_words(), "reward": {"name": "oracle", "settings": {"mode": "delta"}}}, source="test")
    found = with_mappings(named, [("reward.settings", {"folder": "r"}), *additions])
    assert found.reward.settings == {"mode": "delta", "folder": "r"} and found.reward.completion.settings == {"folder": "a b"}
    assert found.environment.arguments == {"action_repeat": 3, "max_steps": 7}


def as_words() -> dict:
    return {"name": "x", "environment": {"arguments": {"action_repeat": 3}}, "algorithm": "sac", "steps": 9}


def test_key_of_an_inner_mapping_is_an_option_in_every_command():
    inner = {"judge": "endpoint", "judge_settings": {"model": "m", "retries": 1}}
    named = parse_recipe({**as_words(), "reward": {"name": "judge-progress", "settings": inner}}, source="test")
    words = ["--reward.settings.judge_settings.retries", "2", "--reward.settings.judge-settings.timeout-s", "0.5"]
    additions, left = mappings_in(named, words)
    assert left == words[:2], "those that the recipe has are options like others"
    found = with_mappings(named, additions).reward.settings
    assert found == {**inner, "judge_settings": {"model": "m", "retries": 1, "timeout_s": 0.5}}
    assert gather(words, [Group("reward.settings")]) == [
        "--reward.settings.KEY",
        '{"judge_settings": {"retries": 2, "timeout_s": 0.5}}',
    ]
    both = ["--reward.settings", "{judge_settings: {model: k, retries: 1}}", *words[:2]]
    assert json.loads(gather(both, [Group("reward.settings")])[1]) == {"judge_settings": {"model": "k", "retries": 2}}
    names = ["--cameras.front.left", "0"]
    assert gather(names, [Group("cameras", has_names=True)]) == ["--cameras.KEY", '{"front.left": 0}']


def test_key_within_a_value_that_is_no_mapping_is_refused():
    named = parse_recipe({**as_words(), "reward": {"name": "oracle", "settings": {"mode": "delta"}}}, source="test")
    told = r"(?s)--reward\.settings\.mode\.x names a key of a mapping.*got:     mode: 'delta'"
    with pytest.raises(InvalidSetting, match=told):
        with_mappings(named, mappings_in(named, ["--reward.settings.mode.x", "1"])[0])
    with pytest.raises(InvalidSetting, match=told):
        gather(["--reward.settings.mode", "delta", "--reward.settings.mode.x", "1"], [Group("reward.settings")])


@pytest.mark.parametrize("nothing", ["None", "null", ""])
def test_none_is_no_value_however_it_is_typed(nothing):
    assert typed_value(nothing) is None and typed_value("none") == "none"
    assert mappings_in(RECIPE, ["--reward.settings.goal", nothing])[0] == [("reward.settings", {"goal": None})]
    for name in ("path", "limits"):
        with pytest.raises(
            InvalidSetting, match=r"(?s)the reward program: (path|limits) has no value.*null.*leave the key out"
        ):
            read_reward("program", {"path": "x.py", name: typed_value(nothing)})


def test_the_word_none_in_a_file_is_told_from_null(tmp_path):
    (tmp_path / "mine.yaml").write_text("reward: program\nsettings: {path: x.py, every: None}\n")
    with pytest.raises(InvalidSetting, match=r"(?s)every has the wrong type.*got:     'None'.*write null for no value"):
        read_reward(str(tmp_path / "mine.yaml"), {})
    for empty in ("settings:", "settings: {}"):
        (tmp_path / "mine.yaml").write_text(f"reward: episodic\n{empty}\n")
        assert read_reward(str(tmp_path / "mine.yaml"), {}).identity[0] == "episodic"
    (tmp_path / "mine.yaml").write_text("reward: episodic\nsettings: [1]\n")
    with pytest.raises(InvalidSetting, match=r"mine.yaml: settings must be a mapping"):
        read_reward(str(tmp_path / "mine.yaml"), {})


def test_a_whole_mapping_at_once_in_json_or_yaml():
    for text in ('{"folder": "rewards/x", "discount": 0.9}', "{folder: rewards/x, discount: 0.9}"):
        assert mappings_in(RECIPE, ["--reward.settings", text]) == (
            [("reward.settings", {"folder": "rewards/x", "discount": 0.9})],
            [],
        )


def test_command_line_adds_reward_to_recipe():
    words = ["--reward.settings.folder", "rewards/x", "--reward.name", "embedded-progress", "--steps", "4"]
    words += ["--reward.arguments", "{cameras: [front], image_size: 64}", "--environment.arguments.action-repeat", "2"]
    recipe = recipe_of(["arm-reach-sac", *words])
    assert recipe.reward.name == "embedded-progress" and recipe.reward.settings == {"folder": "rewards/x"}
    assert recipe.reward.arguments == {"cameras": ["front"], "image_size": 64} and recipe.steps == 4
    assert recipe.environment.arguments["action_repeat"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reward.settings", "folder"], r"takes a mapping[^$]+NAME: VALUE[^$]+--reward.settings.NAME VALUE"),
        (["--reward.settings.folder"], "--reward.settings.folder has no value"),
        (["--reward.settings", "{a: ["], "no readable value"),
    ],
)
def test_what_cannot_be_read_is_one_error(words, message):
    with pytest.raises(InvalidSetting, match=message):
        mappings_in(RECIPE, words)
