"""robo-rl reward write and compare, on trainings of a few steps: what they leave, and that nothing is done twice."""

from pathlib import Path

import pytest

from robo_app.arguments.free_settings import option_words
from robo_cli.main import dispatch
from robo_rl.errors import InvalidProgram, InvalidSetting, JudgeError, RunError, UnknownName
from robo_rl.rewards.chat.log import read_log
from robo_rl.rewards.programs.program import RewardProgram

RECIPE = """
environment: {name: robo/ArmReach-v0, arguments: {max_steps: 8, action_repeat: 3}}
algorithm: sac
learner: {network: {hidden: [8]}, batch_size: 8, replay: {learning_starts: 4}}
steps: 30
log_every: 8
checkpoint_every: 15
evaluation: {every: 15, episodes: 2, episodes_during: 1, videos: 0}
"""


@pytest.fixture(autouse=True)
def few_steps_to_try_on(monkeypatch):
    Path("tiny.yaml").write_text(RECIPE)
    monkeypatch.setattr("robo_app.training.program_validation.ROWS", 20)
    for name in ("SINGLE_ROWS", "EVERY_SIZE"):
        monkeypatch.setattr(f"robo_rl.rewards.programs.validation.{name}", 2)


@pytest.mark.slow
def test_a_program_is_written_mended_and_improved_by_feedback(capsys):
    write = ["reward", "write", "robo/ArmPush-v0", "--llm", "pack:text2reward-push", "--out", "push"]
    assert dispatch(write) == 0
    told = capsys.readouterr().out
    assert "round 1, mended after 1 error(s)" in told and "made by hand, not by a model" in told
    first = RewardProgram.read(Path("push/program.py"))
    assert first.terms == ("near_cube", "near_mark", "effort") and first.provenance["repairs"] == 1
    for _ in range(2):  # the same command goes on, and asks nothing twice
        assert dispatch([*write, "--feedback", "it waits beside the mark"]) == 0
        assert RewardProgram.read(Path("push/program.py")).provenance["round"] == 2
    assert len(read_log(Path("push/calls.jsonl"))[0]) == 3
    assert Path("push/rounds/2/feedback.md").read_text() == "it waits beside the mark"
    assert RewardProgram.read(Path("push/rounds/1/program.py")).hash == first.hash
    capsys.readouterr()
    assert dispatch(write) == 0  # round 1 again: the newest program is not lost
    assert RewardProgram.read(Path("push/program.py")).provenance["round"] == 2
    assert "push/program.py stays the newest program" in capsys.readouterr().out


@pytest.mark.slow
def test_what_cannot_be_done_is_said_before_anything_is_asked():
    with pytest.raises(InvalidSetting, match="Who answers") as told:
        dispatch(["reward", "write", "robo/ArmPush-v0", "--out", "push"])
    assert "--llm pack:NAME" in str(told.value)
    with pytest.raises(InvalidSetting, match="holds no program that feedback could be about"):
        dispatch(["reward", "write", "robo/ArmPush-v0", "--llm", "pack:text2reward-push", "--out", "push", "--feedback", "no"])
    assert not list(Path().glob("*/calls.jsonl"))


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        (["--llm", "endpont"], UnknownName, "did you mean 'endpoint'"),
        (["--llm", "endpoint"], InvalidSetting, "Which model"),
        (
            ["--llm", "endpoint", "--llm.settings.model", "m", "--llm.settings.key_variable", "NO_SUCH_KEY"],
            JudgeError,
            "NO_SUCH_KEY is empty",
        ),
        (["--llm", "pack:beacons-doorkey"], InvalidSetting, "(?s)got:     robo/Arm.*allowed: minigrid/MiniGrid-DoorKey-5x5-v0"),
        (["--replay", "no.jsonl"], JudgeError, "no.jsonl cannot be read"),
    ],
)
@pytest.mark.parametrize(
    "command", ["write robo/ArmPush-v0 --out x", "search tiny.yaml --out x", "latent robo/ArmPush-v0 --out x.py"]
)
def test_who_answers_is_known_before_anything_is_simulated(command, words, error, told, monkeypatch):
    def simulated(*arguments, **more):
        raise AssertionError("a step was simulated")

    for module in ("robo_app.training.program_validation", "robo_papers.lare.latent_steps"):
        monkeypatch.setattr(f"{module}.rollout", simulated)
    with pytest.raises(error, match=told):
        dispatch(["reward", *command.split(), *words])


@pytest.mark.slow
def test_a_command_that_asked_in_vain_does_not_bind_its_folder():
    write = ["reward", "write", "robo/ArmPush-v0", "--out", "push", "--llm"]
    with pytest.raises(InvalidSetting, match="Which model"):
        dispatch([*write, "endpoint"])
    nobody = option_words("llm.settings", {"base_url": "http://127.0.0.1:9/v1", "retries": 0, "deadline_s": 5})
    with pytest.raises(JudgeError, match="has not answered even once"):
        dispatch([*write, "endpoint", "--llm.settings.model", "some", *nobody])
    assert dispatch([*write, "pack:text2reward-push"]) == 0
    with pytest.raises(RunError, match="holds a search with other settings"):
        dispatch([*write, "endpoint", "--llm.settings.model", "some"])


@pytest.mark.slow
def test_programs_are_compared_with_the_own_reward(capsys):
    words = ["reward", "compare", "tiny.yaml", "--programs.mine", "arm_reach", "--seeds", "0", "--out", "compared"]
    assert dispatch(words) == 0
    table = Path("compared/table.md").read_text()
    assert "| own | 0% | 0% | – |" in table and "| mine | 0% | 0% |" in table
    assert Path("compared/report.html").exists()
    runs = len([*Path("compared").rglob("recipe.yaml")])
    assert dispatch(words) == 0 and len([*Path("compared").rglob("recipe.yaml")]) == runs == 2
    with pytest.raises(InvalidProgram, match="cannot be read"):
        dispatch([*words[:3], "--programs.mine", "none.py", "--out", "other"])
