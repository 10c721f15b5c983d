"""Programs read columns in the frames that they were written for, or are refused: in labels, checks and trainings."""

from pathlib import Path

import numpy as np
import pytest

from robo_app.recipes.reward_file import program_file
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidProgram
from robo_rl.rewards.programs.program import FRAMES, RewardProgram
from robo_rl.rewards.programs.reward import ProgramReward
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rollout.episode import rollout
from robo_rl.spec.environment import specification

TASK = "robo/ArmPick-v0"
HEIGHT = '''
def reward(batch):
    """Height.{0}"""
    height = batch["object_position"][:, 2]
    return height, {{"height": height}}
'''


def place(**arguments) -> Place:
    environment = make_environment(TASK, **arguments)
    spec = specification(environment)
    environment.close()
    return Place(spec)


@pytest.fixture(scope="module")
def places() -> dict[str, Place]:
    return {"base": place(), "relative": place(relative_frame=True)}


def written(folder: Path, says: str = "", **provenance) -> str:
    program = RewardProgram.parse(HEIGHT.format(says), provenance=provenance)
    return str(program.save(folder / "program.py"))


@pytest.mark.parametrize(
    ("says", "provenance", "takes"),
    [
        ("", {}, {"base"}),
        ("\n\n    frames: any\n    ", {}, {"base", "relative"}),
        ("\n\n    frames: relative\n    ", {}, {"relative"}),
        ("", {"model": "m"}, {"base"}),
        ("\n\n    frames: any\n    ", {"model": "copied it"}, {"base"}),
        ("", {"model": "m", FRAMES: {"object_position": "start", "action": "end_effector"}}, {"relative"}),
    ],
)
def test_program_is_used_in_its_frames_alone(tmp_path, places, says, provenance, takes):
    reward = ProgramReward(written(tmp_path, says, **provenance))
    for name, where in places.items():
        if name in takes:
            reward.require(where)
            reward.require_recorded(where.spec)
            continue
        for check in (lambda where=where: reward.require(where), lambda where=where: reward.require_recorded(where.spec)):
            with pytest.raises(
                InvalidProgram, match=r"other frames than those of(.*\n)*.*object_position in the frame"
            ) as error:
                check()
            assert error.value.status == "frame"


def test_programs_of_distances_pay_the_same_in_both_frames():
    reward, labels = ProgramReward(str(program_file("arm_reach"))), []
    for arguments in ({}, {"relative_frame": True}):
        environment = make_environment("robo/ArmReach-v0", max_steps=12, **arguments)
        reward.require(Place(specification(environment)))
        expert = environment.get_wrapper_attr("scripted_policy")(seed=0)
        labels.append(reward.label(rollout(environment, expert, seed=3)).values)
        environment.close()
    np.testing.assert_allclose(labels[0], labels[1], atol=2e-3)


def test_shipped_program_of_heights_is_refused_in_a_hands_frame(places):
    reward = ProgramReward(str(program_file("arm_pick")))
    reward.require(places["base"])
    with pytest.raises(InvalidProgram, match=r"other frames(.*\n)*.*object_position in the frame start"):
        reward.require(places["relative"])


def test_label_and_check_refuse_the_other_frame(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    relative = ["--environment.arguments.relative_frame", "True", "--environment.arguments.max_steps", "20"]
    assert dispatch(["record", TASK, "--episodes", "1", "--out", "data", *relative]) == 0
    with pytest.raises(InvalidProgram, match="other frames than those of"):
        dispatch(
            ["label", "data", "--reward", "program", "--reward.settings.path", str(program_file("arm_pick")), "--name", "p"]
        )
    assert not Dataset(Path("data")).path.joinpath("labels", "p").exists()
    capsys.readouterr()
    assert dispatch(["reward", "check", "arm_pick", "--dataset", "data"]) == 1
    assert "failure frame: The program" in capsys.readouterr().out
