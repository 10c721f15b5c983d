"""Fitting a reward from the command line: each kind has its own options."""

from pathlib import Path

import pytest

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_datasets.preferences import PreferenceSet
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.rewards.embedded.model import EmbeddedModel

TINY = ["--pictures", "80", "--image-size", "32", "--settings.see-steps", "2", "--settings.read-steps", "2"]
TASK = "robo/ArmReach-v0"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_model_is_fitted_and_labels_and_compares(capsys):
    dispatch(["reward", "fit", "embedded", "--environment", TASK, "--out", "model", *TINY])
    told = capsys.readouterr().out
    for line in (
        "rank correlation of progress",
        "close pairs in the right order",
        "wrong colour",
        "without training",
        "80 pictures",
    ):
        assert line in told
    facts = EmbeddedModel.load(Path("model")).origin.facts
    assert facts["pictures"] == 80 and facts["settings"]["see_steps"] == 2 and "progress_order" in facts["measures"]
    arguments = [
        "--environment.arguments.cameras",
        "[front]",
        "--environment.arguments.image_size",
        "32",
        "--environment.arguments.max_steps",
        "4",
    ]
    dispatch(["record", TASK, "--episodes", "2", "--out", "data", *arguments])
    dispatch(["label", "data", "--reward", "embedded-progress", "--reward.settings.folder", "model", "--name", "seen"])
    dispatch(["prefer", "data", "--rater", "embedded", "--rater.settings.folder", "model", "--name", "seen", "--pairs", "4"])
    dataset = Dataset(Path("data"))
    labels = LabelSet(dataset, "seen").read(dataset.entries()[0].identity)
    assert labels.valid.all() and labels.model == "embedded-progress" and ((labels.values > 0) & (labels.values < 1)).all()
    assert {each.rater.split(":")[0] for each in PreferenceSet(dataset, "seen")} == {"embedded"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (["--environment", TASK, "--out", "there"], InvalidSetting, "there is not empty"),
        (["--environment", "robo/ArmFold-v0", "--out", "x"], UnknownName, "Unknown task of family"),
        (["--environment", "rob/ArmReach-v0", "--out", "x"], UnknownName, "Unknown environment"),
        (["--environment", "gymnasium/Ant-v5", "--out", "x"], InvalidSetting, "Nothing is known to be true"),
        (["--environment", TASK, "--out", "x", "--camera", "top"], UnknownName, "Unknown camera 'top'"),
        (["--environment", TASK, "--out", "x", "--pictures", "8"], InvalidSetting, "pictures"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_the_work(options, error, message):
    Path("there").mkdir()
    Path("there/file").touch()
    with pytest.raises(error, match=message):
        dispatch(["reward", "fit", "embedded", *options])


def test_each_kind_has_its_own_options(capsys):
    with pytest.raises(SystemExit):
        dispatch(["reward", "fit", "preference", "--help"])
    told = capsys.readouterr().out
    assert "--preferences" in told and "--settings.members" in told and "--environment" not in told
