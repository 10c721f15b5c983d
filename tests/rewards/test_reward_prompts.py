"""What a language model is told when it is asked for reward programs, and what becomes of its answers."""

import ast
import re

import pytest

from robo_rl.rewards.chat.client import ModelClient
from robo_rl.rewards.chat.log import CallLog
from robo_rl.rewards.chat.packs import read_pack
from robo_rl.rewards.chat.question import Answer
from robo_rl.rewards.programs.grammar import MOST_ROUNDS
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.vocabulary import FUNCTIONS, GEOMETRY
from robo_rl.rewards.writing.prompts import (
    FORM,
    Example,
    Feedback,
    RewardTask,
    after_feedback,
    initial_prompt,
    means,
    nearest,
    repair,
)
from robo_rl.rewards.writing.writer import Text2RewardConfig, Writer, write

TASK = RewardTask("push the cube onto the mark", "class Batch:\n    near: (N,)", means(), 50)
GOOD = "```python\ndef reward(batch):\n    return batch['near'], {'near': batch['near']}\n```"
WRONG = "```python\ndef reward(batch):\n    return batch['far'], {'far': batch['far']}\n```"


class Listed:
    """A source that gives its replies one after the other."""

    identity = "listed", "0" * 64

    def __init__(self, *replies):
        self.replies, self.asked = [*replies], []

    def ask(self, questions):
        for number, question in enumerate(questions):
            self.asked.append(question)
            reply = self.replies.pop(0)
            yield number, reply if isinstance(reply, Answer) else Answer("ok", {}, reply, "listed", origin="pack")

    def report(self):
        return "listed"


def writer(source, attempt=lambda program: ("ok", "")):
    return Writer(ModelClient(source, log=CallLog(None)), ["near"], attempt)


# prompts


def test_the_first_prompt_has_its_sections_in_order():
    system, user = initial_prompt(TASK).messages
    assert system.role == "system" and "reward functions" in system.text
    titles = [line.removeprefix("## ") for line in user.text.splitlines() if line.startswith("## ")]
    assert titles == [
        "Task",
        "What the function receives",
        "How it is used",
        "What it may call",
        "Form of the answer",
        "Hints",
    ]
    assert "push the cube onto the mark" in user.text and "near: (N,)" in user.text and "at most 50 steps" in user.text


def test_prompts_list_exactly_what_the_validator_lets_through():
    words = means()
    for name in FUNCTIONS:
        _, _, plain = name.partition(".")
        assert (plain or name) in words, name
    assert f"at most {MOST_ROUNDS};" in words


def test_prompts_say_what_functions_return():
    lines = [line for line in means().splitlines() if line.startswith("- ")]
    assert "- quat_mul(left, right): (..., 4): first the turn `right`, then the turn `left`." in lines
    assert len(lines) == len(GEOMETRY) and all(re.match(r"- \w+\([\w, ]+\): \(\.\.\.", line) for line in lines), lines


def test_few_shot_shows_the_examples_nearest_by_their_words():
    known = [
        Example("open the drawer by its handle", "drawer"),
        Example("lift the red cube from the table", "lift"),
        Example("push the red cube to the wall", "wall"),
        Example("push the cube onto the mark", "this very task"),
    ]
    chosen = nearest(TASK.sentence, known, 2)
    assert [example.program for example in chosen] == ["lift", "wall"]  # the nearest last
    assert nearest(TASK.sentence, known[3:], 2) == []
    words = initial_prompt(TASK, chosen).messages[-1].text
    assert (
        words.index("lift the red cube") < words.index("push the red cube to the wall") < words.index("## Form of the answer")
    )


def test_feedback_goes_through_all_rounds_in_order():
    rounds = [Feedback("def reward(batch): 1", "it does not move"), Feedback("def reward(batch): 2", "it shakes")]
    prompt = after_feedback(initial_prompt(TASK), rounds)
    assert [message.role for message in prompt.messages] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert "it does not move" in prompt.messages[3].text and "it shakes" in prompt.messages[5].text
    assert "def reward(batch): 2" in prompt.messages[4].text and prompt.purpose == "feedback"
    assert after_feedback(initial_prompt(TASK), []) == initial_prompt(TASK)


# Text2Reward


def test_what_is_wrong_goes_back_to_the_model_until_it_is_mended():
    source = Listed(WRONG, "I see.", GOOD)
    found = write(writer(source), TASK, Text2RewardConfig())
    assert found.program is not None and (found.repairs, found.round) == (2, 1)
    second, third = source.asked[1:]
    assert "'far'" in second.messages[-1].text and WRONG in second.messages[-2].text
    assert "There is no program in the answer" in third.messages[-1].text and "I see." in third.messages[-2].text
    assert len(third.messages) == 4  # the last attempt alone: conversations stay short
    assert found.program.provenance["purpose"] == "repair" and found.program.provenance["model"] == "listed"


def test_what_fails_on_recorded_steps_goes_back_to_the_model_too():
    verdicts = iter([("shape", "the total has the shape ()"), ("ok", "")])
    source = Listed(GOOD, GOOD)
    found = write(writer(source, lambda program: next(verdicts)), TASK, Text2RewardConfig())
    assert found.repairs == 1 and "the total has the shape ()" in source.asked[1].messages[-1].text


def test_repairs_are_bounded_and_last_reason_is_kept():
    source = Listed(*[WRONG] * 3)
    found = write(writer(source), TASK, Text2RewardConfig(repairs=2))
    assert found.program is None and (found.status, found.repairs) == ("unknown column", 2) and not source.replies


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer("refused", {}, "I'm sorry"), "refused"),
        (Answer("cut", {}, "```python\ndef rew"), "cut"),
        ("", "no code"),
        ("```python\ndef reward(batch):\n    return 1\n```\n```python\nx = 1\n```", "several programs"),
        ("```python\ndef reward(batch):\n    import os\n    return 1, {}\n```", "forbidden"),
        ("```python\ndef reward(observation, action):\n    return 1, {}\n```", "signature"),
        ("```python\ndef reward(batch):\n    open('x')\n    return batch['near'], {}\n```", "forbidden"),
    ],
)
def test_each_bad_answer_has_one_status_and_a_reason(answer, status):
    found = write(writer(Listed(answer)), TASK, Text2RewardConfig(repairs=0))
    assert found.program is None and found.reason and found.status in (status, "garbage")


# packs


def test_the_pack_of_pushing_is_labelled_and_does_what_it_says():
    source = read_pack("text2reward-push")
    assert source.pack.made == "by hand" and source.pack.task == "robo/ArmPush-v0"
    columns = ["object_from_gripper", "previous_object_from_gripper", "goal_from_object", "previous_goal_from_object", "action"]
    replies = {purpose: lists[0][0] for purpose, lists in source.pack.replies.items()}
    programs = {purpose: RewardProgram.parse(text, columns) for purpose, text in replies.items()}
    assert "axis=1" not in programs["write"].source and "axis=1" in programs["repair"].source
    assert programs["feedback"].terms == ("reach", "push", "arrive")
    assert repair(initial_prompt(TASK), "x", "y").purpose == "repair"


def test_form_of_the_answer_shows_names_that_may_be_copied():
    (program,) = re.findall(r"```python\n(.*?)```", FORM, re.DOTALL)
    keys = [key.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Dict) for key in node.keys]
    assert keys and all(key.isidentifier() for key in keys)
