"""Packs of replies: read strictly, labelled wherever their replies go, and never taken for a model's."""

import json
import re
from pathlib import Path

import pytest
import yaml

from robo_rl.errors import BudgetReached, InvalidSetting, OutOfReplies, UnknownName
from robo_rl.rewards.chat.opening import language_model, require_task
from robo_rl.rewards.chat.packs import pack_files, read_pack
from robo_rl.rewards.chat.question import Form, prompt

HEAD = {"pack": 1, "made": "by hand", "author": "somebody", "about": "a test", "method": "test", "task": "robo/ArmReach-v0"}
ROUNDS = {
    "write": [["first", {"text": "second", "status": "cut"}, {"status": "unreachable"}], ["third"]],
    "difference": [["it is denser"]],
    "annotate": [{"when": "key", "samples": ["yes"]}, {"when": "", "samples": ["no", "never"]}],
}
WRITE = prompt("Write a reward.", purpose="write")


class Factors(Form):
    names: list[str]


def pack(replies=ROUNDS, name="test.yaml", **head) -> str:
    found = {**HEAD, "replies": replies, **head}
    Path(name).write_text(json.dumps(found) if name.endswith(".json") else yaml.safe_dump(found))
    return f"pack:{name}"


@pytest.mark.parametrize("name", ["test.yaml", "test.json"])
def test_each_purpose_has_its_rounds_and_samples(name):
    model = language_model(pack(name=name))
    first, second, third = model.sample(WRITE, 3)
    assert [(each.status, each.text) for each in (first, second, third)] == [
        ("ok", "first"),
        ("cut", "second"),
        ("unreachable", ""),
    ]
    assert model.sample(prompt("Compare.", purpose="difference"))[0].text == "it is denser"
    assert model.sample(WRITE.then("first", "better"))[0].text == "third"
    assert model.sample(WRITE)[0] == first, "a prompt that was asked before is no new round"
    assert model.sample(WRITE, 1, first=1)[0] == second


def test_rules_answer_by_the_words_of_the_last_message():
    model = language_model(pack())
    found = [
        model.sample(prompt(words, purpose="annotate"))[0].text for words in ("a key", "a door", "the key again", "a wall")
    ]
    assert found == ["yes", "no", "yes", "no"]
    assert model.sample(prompt("a door", purpose="annotate"), 2)[1].text == "never"


def test_replies_are_labelled_wherever_they_go():
    log = Path("calls.jsonl")
    model = language_model(pack(), log=log)
    assert model.identity[0] == "pack test (made by hand)" and model.sample(WRITE)[0].model == "made by hand"
    record = json.loads(log.read_text())
    assert (record["llm"], record["model"], record["origin"]) == ("pack test (made by hand)", "made by hand", "pack")
    assert "replies made by hand, not by a model (somebody)" in model.report()
    model.close()
    assert language_model("endpoint", replay=log).identity == model.identity
    assert language_model(pack(made="by rule")).identity[0] == "pack test (made by rule)"
    assert language_model(pack(about="other")).identity[1] != model.identity[1]


def test_a_run_with_a_pack_goes_on_where_it_was_killed():
    log = Path("calls.jsonl")
    with language_model(pack(), log=log) as model:
        model.sample(WRITE, 2)
    with language_model(pack(), log=log) as model:
        assert model.sample(WRITE.then("first", "better"))[0].text == "third"
        assert model.sample(WRITE)[0].text == "first"


def test_exhausted_samples_and_rounds_end_the_run():
    log = Path("calls.jsonl")
    with language_model(pack(), log=log) as model:
        replies = model.sample(WRITE, 5)
        assert [each.status for each in replies[3:]] == ["out of replies"] * 2 and not replies[4].content
        assert replies[4].text == "the pack test has 3 replies to this prompt"
        model.sample(WRITE.then("first", "better"))
        with pytest.raises(
            OutOfReplies, match=r"The pack test is at its end.\n.*prompt 2 .*'best' for 'write'\n.*2 prompts"
        ) as error:
            model.sample(WRITE.then("first", "best"))
        assert isinstance(error.value, BudgetReached), "it ends a search as a budget does"
    with language_model("", replay=log) as model:
        assert model.sample(WRITE, 5) == replies
        with pytest.raises(BudgetReached, match="The run that is replayed ended here"):
            model.sample(WRITE.then("first", "best"))


def test_unknown_purpose_is_error_and_repair_only_missing():
    model = language_model(pack({"factors": [["no JSON", '{"names": ["near"]}']]}))
    asked = prompt("Name them.", purpose="factors", form=Factors)
    wrong, right = model.sample(asked, 2)
    assert (wrong.status, wrong.text) == ("garbage", "no JSON") and right.content == {"names": ["near"]}
    with pytest.raises(UnknownName, match=r"Unknown purpose of the pack test: 'factor'(.*\n)*.*factors"):
        model.sample(prompt("Name them.", purpose="factor"))


def test_a_pack_may_have_repairs():
    repairs = {"factors": [["no JSON"]], "factors repair": [['{"names": ["near"]}']]}
    found = language_model(pack(repairs)).sample(prompt("Name them.", purpose="factors", form=Factors))[0]
    assert (found.status, found.content) == ("ok", {"names": ["near"]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"made": "by a model"}, "made: Input should be 'by hand' or 'by rule'"),
        ({"author": ""}, "author: String should have at least 1 character"),
        ({"pack": 2}, "pack: Input should be 1"),
        ({"licence": "x"}, "licence: Extra inputs are not permitted"),
        ({"replies": {"write": ["first"]}}, r"replies\.write"),
        ({"replies": {"write": [[""]]}}, r"replies\.write"),
        ({"replies": {"write": [[{"text": "x", "status": "fine"}]]}}, r"replies\.write"),
        ({"replies": {"write": [{"if": "x", "samples": []}]}}, r"replies\.write"),
        ({"replies": None}, "replies: Input should be a valid dictionary"),
    ],
)
def test_a_wrong_pack_is_named(change, message):
    with pytest.raises(InvalidSetting, match=rf"test.yaml is not a pack of replies.\n  got:     {message}"):
        language_model(pack(**change))


@pytest.mark.parametrize(
    ("words", "message"), [("[", "is not YAML"), ("- x", "is not a pack"), ("\x00", "is not YAML"), ("", "is not a pack")]
)
def test_a_file_that_is_no_pack_is_one_error(words, message):
    Path("bad.yaml").write_text(words)
    with pytest.raises(InvalidSetting, match=message):
        read_pack("bad.yaml")
    with pytest.raises(InvalidSetting, match="cannot be read"):
        read_pack("none.yaml")
    with pytest.raises(UnknownName, match="or name a file"):
        read_pack("none")


def test_foreign_pack_error_names_both_environments():
    with pytest.raises(InvalidSetting, match=r"(?s)The pack test .*got:     robo/ArmPush-v0.*allowed: robo/ArmReach-v0.*copy"):
        require_task(pack(), "robo/ArmPush-v0")
    require_task(pack(), "robo/ArmReach-v0")
    require_task("endpoint", "robo/ArmPush-v0")


# ---------------------------------------------------------------------------------------------- those that come along
@pytest.mark.parametrize("name", pack_files())
def test_shipped_packs_are_complete_and_described(name):
    found = read_pack(name).pack
    assert re.fullmatch(r"[a-z0-9-]+", name) and all(found.replies.values())
    assert len(found.about) > 20 and len(found.author) > 10
