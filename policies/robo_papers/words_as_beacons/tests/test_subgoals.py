"""Teachers of subgoals: plans on hand-drawn levels, published errors by their statistics, language models; the bonus."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from factories import make_spec
from robo_papers.words_as_beacons.forms import WORDS, count_words
from robo_papers.words_as_beacons.level import GridObject, Level, Place, Subgoal
from robo_papers.words_as_beacons.reward import BONUS, SubgoalReward
from robo_papers.words_as_beacons.teachers import PUBLISHED, PURPOSE, LanguageTeacher, NoisyTeacher, PerfectTeacher
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.spec.environment import ActionSpec, ArraySpec

MARKS = {"k": "key", "o": "ball", "b": "box", "G": "goal", "v": "lava", "D": "door", "L": "door"}


def drawn(picture: str, *, inside: GridObject | None = None, target: str = "") -> Level:
    """Returns the level of a picture: A agent, D closed door, L locked door, k key, o ball, b box, G goal, v lava, all red."""
    rows = picture.split()
    cells = {(x, y): mark for y, row in enumerate(rows) for x, mark in enumerate(row)}
    walls = frozenset(place for place, mark in cells.items() if mark == "#")
    things = [_thing(place, mark, inside, target) for place, mark in sorted(cells.items()) if mark in MARKS]
    agent = next(place for place, mark in cells.items() if mark == "A")
    return Level(len(rows[0]), len(rows), walls, tuple(things), agent, "up", "get there")


def _thing(place: Place, mark: str, inside: GridObject | None, target: str) -> GridObject:
    state = {"D": "closed", "L": "locked"}.get(mark, "")
    content = None if inside is None or mark != "b" else GridObject(place, inside.kind, inside.colour)
    return GridObject(place, MARKS[mark], "red", state, content, mark == target)


def words(subgoals: Sequence[Subgoal]) -> list[str]:
    return [subgoal.words for subgoal in subgoals]


KEY = GridObject((0, 0), "key", "red")


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ("####### #A.#..# #k.L.G# #######", ["pick up the red key", "open the locked red door", "go to the red goal"]),
        ("####### #A.D.D# ###.#G# #######", ["open the closed red door"] * 2 + ["go to the red goal"]),
        ("##### #AvG# #...# #####", ["go to the red goal"]),
        ("##### #A#G# #####", []),
        ("####### #A.L.G# #######", []),  # no key anywhere
        ("####### #A.LkG# #######", []),  # the key behind its own door
        ("##### #A..# #####", []),  # nothing to reach
        (
            "######### #A.#.L.G# #.D..#### #.#k##### #########",
            ["open the closed red door", "pick up the red key", "open the locked red door", "go to the red goal"],
        ),
    ],
)
def test_plans(picture: str, expected: list[str]) -> None:
    assert words(PerfectTeacher().subgoals(drawn(picture))) == expected


def test_obstacle_of_locked_door_precedes_boxed_key() -> None:
    level = drawn("######## #A.oL..# #b..#.k# ########", inside=KEY, target="k")
    # the key that is the target lies behind the door: that in the box is fetched
    plan = PerfectTeacher().subgoals(level)
    assert words(plan) == [
        "pick up the red ball",
        "open the red box",
        "pick up the red key",
        "open the locked red door",
        "pick up the red key",
    ]
    assert [subgoal.place for subgoal in plan] == [(3, 1), (1, 2), (1, 2), (4, 1), (6, 2)]


def test_door_opened_for_key_is_not_opened_again() -> None:
    plan = PerfectTeacher().subgoals(drawn("####### #k.D.A# #####.# #G.L..# #######"))
    assert words(plan) == ["open the closed red door", "pick up the red key", "open the locked red door", "go to the red goal"]


def test_of_several_keys_the_cheapest_to_get_at_is_fetched() -> None:
    plan = PerfectTeacher().subgoals(drawn("########### #k.L.D.A.k# #######.### #######L### #######G###"))
    assert words(plan) == ["pick up the red key", "open the locked red door", "go to the red goal"]
    assert plan[0].place == (9, 1)


def test_the_text_of_a_level_shows_everything() -> None:
    level = drawn("##### #Ab# #.L# #####", inside=KEY)
    assert level.text.splitlines() == [
        "mission: get there",
        "grid: 5 columns (x from 0), 4 rows (y from 0, downwards); # wall, . free, A agent, ? a thing",
        "#####",
        "#A?#.",
        "#.?#.",
        "#####",
        "agent: x=1 y=1 looking up",
        "red box: x=2 y=1, with a red key in it",
        "locked red door: x=2 y=2",
    ]


ROOM = drawn("########### #A........# #....k....# #.........# #....o....# #........G# ###########")


def errors(teacher_of, levels: int) -> tuple[float, list[int]]:
    """Returns the share of right subgoals, and the Manhattan distances of the wrong ones."""
    right, distances = 0, []
    for number in range(levels):
        (told,) = teacher_of(number).subgoals(ROOM)
        right += told.place == (9, 5)
        distances += [] if told.place == (9, 5) else [abs(told.place[0] - 9) + abs(told.place[1] - 5)]
    return right / levels, distances


def test_position_errors_have_requested_statistics() -> None:
    share, distances = errors(lambda seed: NoisyTeacher(accuracy=0.7, distance=3.0, deviation=1.0, seed=seed), 300)
    assert abs(share - 0.7) < 0.05 and abs(np.mean(distances) - 3.0) < 0.3 and abs(np.std(distances) - 1.0) < 0.2
    _, near = errors(lambda seed: NoisyTeacher(accuracy=0.0, distance=0.0, deviation=0.5, seed=seed), 200)
    assert min(near) == 1  # a wrong place is another one
    assert errors(lambda seed: NoisyTeacher(accuracy=1.0, seed=seed), 50) == (1.0, [])


@pytest.mark.parametrize("model", sorted(PUBLISHED))
def test_published_models_err_as_published(model: str) -> None:
    for kind, accuracy in (("position", PUBLISHED[model][0]), ("object", PUBLISHED[model][3])):
        share, _ = errors(lambda seed, kind=kind: NoisyTeacher(model=model, errors=kind, seed=seed), 300)
        assert abs(share - accuracy) < 0.07, kind


def test_wrong_things_are_other_things_of_the_level() -> None:
    told = {NoisyTeacher(accuracy=0.0, errors="object", seed=seed).subgoals(ROOM)[0].words for seed in range(40)}
    assert told == {"pick up the red key", "pick up the red ball"}


def test_a_level_always_meets_the_same_errors() -> None:
    teachers = [NoisyTeacher(accuracy=0.5, distance=2.0, deviation=1.0, seed=seed) for seed in (0, 0, 1, 2, 3, 4)]
    plans = [teacher.subgoals(drawn("####### #A.DDD# ######G #######")) for teacher in teachers]
    assert plans[0] == plans[1]
    assert len({tuple(plan) for plan in plans}) > 1 or not plans[0]


def test_settings_of_the_noisy_teacher_are_checked() -> None:
    with pytest.raises(UnknownName, match=r"Unknown model with published errors 'keycorridor-s3r3-lama'(.|\n)*llama"):
        NoisyTeacher(model="keycorridor-s3r3-lama")
    with pytest.raises(InvalidSetting, match=r"The errors of a published model are known\."):
        NoisyTeacher(model="keycorridor-s3r3-llama", accuracy=0.5)
    with pytest.raises(InvalidSetting, match=r"Setting 'accuracy' is out of range\.\n  got:     1\.5\n  allowed: 0 to 1"):
        NoisyTeacher(accuracy=1.5)


def test_sentences_are_counts_of_known_words() -> None:
    found = count_words("open the locked red door")
    assert found.dtype == np.float32 and found.shape == (len(WORDS),)
    assert {word: round(float(value), 4) for word, value in zip(WORDS, found, strict=True) if value} == dict.fromkeys(
        ("open", "locked", "red", "door"), 0.5
    )
    assert not count_words("hello").any()


# language models


def teacher(folder: Path, *replies: str) -> LanguageTeacher:
    """Returns a teacher that asks a pack whose replies, made by hand, are for one level after the other."""
    facts = {"pack": 1, "made": "by hand", "author": "a test", "about": "subgoals", "method": "beacons", "task": "none"}
    path = folder / "replies.yaml"
    path.write_text(yaml.safe_dump({**facts, "replies": {PURPOSE: [[reply] for reply in replies]}}))
    return LanguageTeacher(llm=f"pack:{path}", log=str(folder / "subgoals.jsonl"))


def reply(*places: Place) -> str:
    return json.dumps({"subgoals": [{"x": x, "y": y} for x, y in places]})


def test_language_model_is_asked_once_per_level_then_replayed(tmp_path: Path) -> None:
    level = drawn("##### #Ab# #.L# #####", inside=KEY)
    asked = teacher(tmp_path, reply((2, 1), (2, 1), (2, 2), (1, 2)))
    expected = ["open the red box", "pick up the red key", "open the locked red door", "go to the free cell"]
    for _ in range(3):
        assert words(asked.subgoals(level)) == expected
    asked.close()
    asked.close()
    log = tmp_path / "subgoals.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert len([record for record in records if record.get("purpose") == PURPOSE]) == 1
    assert "red box: x=2 y=1, with a red key in it" in str(records)
    replayed = LanguageTeacher(replay=str(log))
    assert words(replayed.subgoals(level)) == expected
    replayed.close()


@pytest.mark.parametrize("words", ["I cannot help with that.", '{"subgoals": [{"x": 1}]}', reply((1, 1), (99, 1)), reply()])
def test_an_answer_that_cannot_be_used_is_no_subgoal(tmp_path: Path, words: str) -> None:
    asked = teacher(tmp_path, words)
    assert list(asked.subgoals(ROOM)) == [] and asked.unanswered == 1
    asked.close()


def test_foreign_level_replies_are_refused_at_creation() -> None:
    teaching = {"teacher": "llm", "settings": {"llm": "pack:beacons-doorkey"}}
    with pytest.raises(InvalidSetting, match=r"(?s)another environment.*DoorKey-6x6-v0.*allowed: minigrid/.*-5x5-v0"):
        make_environment("minigrid/MiniGrid-DoorKey-6x6-v0", encoding="one-hot", subgoals="position", teaching=teaching)


def test_a_teacher_of_words_needs_a_model_or_a_log() -> None:
    for settings in ({}, {"llm": "endpoint", "replay": "log"}):
        with pytest.raises(InvalidSetting, match=r"needs a language model or a log to replay"):
            LanguageTeacher(**settings)


# the bonus


TURNS = ActionSpec(("left", "right"), (0, 0), (0, 0), ("1", "1"), mode="discrete")
PAID = make_spec("test/Paid", ArraySpec(BONUS, (1,)), action=TURNS)


def running(weight: float) -> DelayedRewards:
    rewards = SubgoalReward(0.2).online(PAID, weight=weight, discount=None).running(2)
    for index in range(2):
        rewards.begin(index, {BONUS: np.zeros(1, np.float32)}, None)
    return rewards


def step(rewards: DelayedRewards, index: int, reward: float, earned: float, *, ends: bool = False) -> None:
    seen = {BONUS: np.array([earned], np.float32)}
    rewards.add(index, seen, action=np.array(0), reward=reward, terminated=ends, truncated=False)


def test_the_reward_is_the_environments_and_the_bonus() -> None:
    rewards = running(2.0)
    step(rewards, 0, 0.0, 0.5)
    step(rewards, 1, 0.0, 0.0)
    step(rewards, 0, 0.9, 1.0, ends=True)
    found = rewards.score()
    assert found.labels.values.tolist() == pytest.approx([0.2, 0.0, 2.2]) and found.labels.valid.all() and not found.ends.any()
    told = {"subgoals_completed": 2.0, "bonus_return": 0.3, "model_return": 2.4, "missing": 0.0}
    assert rewards.metrics == pytest.approx({f"reward/{name}": value for name, value in told.items()})
    assert len(rewards.score().labels) == 0


def test_settings_of_the_bonus() -> None:
    with pytest.raises(InvalidSetting, match=r"Setting 'bonus' is out of range"):
        SubgoalReward(bonus=float("nan"))
    assert SubgoalReward().identity != SubgoalReward(bonus=0.3).identity
