"""robo-rl export: a run's policy as a folder, compared on observations that the run has."""

import json

import pytest

import robo_rl
from robo_cli.main import dispatch
from robo_rl.errors import DatasetNotFound, InvalidSetting

RECIPE = {
    "environment": {"name": "robo/ArmReach-v0", "arguments": {"max_steps": 20}},
    "log_every": 10,
    "checkpoint_every": 20,
    "record_episodes": True,
    "evaluation": {"episodes": 2, "every": 30, "episodes_during": 1, "videos": 0},
    "algorithm": "sac",
    "learner": {"network": {"hidden": [8, 8]}, "batch_size": 16, "replay": {"learning_starts": 10}},
    "steps": 45,
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return robo_rl.train(RECIPE, out=tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_a_run_is_exported(trained, tmp_path, capsys):
    order = ["export", str(trained.path), "--to", "torchscript", "--out", str(tmp_path / "out")]
    assert dispatch(order) == 0
    said = capsys.readouterr().out
    assert "largest difference" in said and "exported     " in said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["policy.json", "policy.pt", "run_exported.py"]
    description = json.loads((tmp_path / "out" / "policy.json").read_text())
    assert description["checked_on"] == "recorded observations" and description["check"]["observations"] == 40
    assert (description["run"], description["learner"], description["step"]) == (trained.path.name, "sac", 45)
    assert [each["name"] for each in description["inputs"]] == [*trained.policy().environment_spec.observation.visible]
    with pytest.raises(InvalidSetting, match="exists"):
        dispatch(order)


def test_a_step_of_the_run_is_exported(trained, tmp_path, capsys):
    order = ["export", str(trained.path), "--to", "safetensors", "--out", str(tmp_path / "out"), "--step", "30", "--json"]
    assert dispatch(order) == 0
    assert json.loads(capsys.readouterr().out)["difference"] <= 1e-5
    assert json.loads((tmp_path / "out" / "policy.json").read_text())["step"] == 30


def test_observations_of_another_environment_are_refused(trained, tmp_path):
    with pytest.raises(DatasetNotFound, match="is not a dataset"):
        dispatch(
            ["export", str(trained.path), "--to", "safetensors", "--out", str(tmp_path / "o"), "--data", str(tmp_path / "no")]
        )
