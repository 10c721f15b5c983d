"""The audit from the command line: doubles and label sets come out as what they are."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from factories import make_dataset, make_episode, make_spec
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import DatasetError, InvalidSetting, UnknownName
from robo_rl.spec.environment import ArraySpec
from robo_rl.types import Episode

SPEC = make_spec("test/Light", ArraySpec("camera_front", (4, 4, 3), "uint8", role="image"), ArraySpec("light", (1,)))


def episode(seed: int, steps: int = 12) -> Episode:
    """Odd seeds fail: the light stays dim."""
    random, success = np.random.default_rng(seed), seed % 2 == 0
    light = np.linspace(0.1, 1.0 if success else 0.3, steps + 1) + random.normal(0, 0.02, steps + 1)
    pictures = np.repeat(np.rint(np.clip(light, 0, 1) * 200).astype(np.uint8), 48).reshape(steps + 1, 4, 4, 3)
    return make_episode(
        {"camera_front": pictures, "light": light[:, None].astype(np.float32)},
        actions=random.uniform(-1, 1, (steps, 1)).astype(np.float32),
        rewards=(np.diff(light) + (np.arange(steps) == steps - 1) * success).astype(np.float32),
        timestamps=np.arange(steps + 1.0) + 100 * seed,
        **{"terminated": success, "success": success, "seed": seed, "spec_fingerprint": SPEC.fingerprint},
        instruction="light it",
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("recorded") / "data", SPEC, map(episode, range(20))).path


@pytest.fixture(autouse=True)
def dataset(recorded, tmp_path, monkeypatch) -> Dataset:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(recorded, "data")
    return Dataset(Path("data"))


def audited(*arguments: str) -> dict:
    assert dispatch(["audit", "--dataset", "data", *arguments, "--out", "audits"]) == 0
    assert "no network" in Path("audits/audit.html").read_text()
    return json.loads(Path("audits/audit.json").read_text())


@pytest.mark.slow
def test_a_model_is_asked_and_what_it_was_told_is_kept(capsys):
    found = audited("oracle", "--progress", "near:light", "--episodes", "16", "--clips", "3")
    assert found["verdict"]["headline"] == "It can be trusted on data like these."
    assert found["facts"]["episodes"] == 16 and found["facts"]["progress"] == "smallness of light"
    assert found["controls"]["as recorded"]["gain"]["n"] == 3 and found["seconds_per_1000"] > 0
    assert "blank pictures" not in found["controls"]  # it does not look at them
    out = capsys.readouterr().out
    assert "oracle (" in out and "It can be trusted on data like these." in out and "audits/audit.html" in out


@pytest.mark.slow
def test_labels_are_audited_as_they_lie_there(capsys):
    dispatch(["label", "data", "--reward", "oracle", "--name", "good"])
    dispatch(["label", "data", "--shuffled", "good", "--name", "control"])
    assert audited("--labels", "good")["verdict"]["color"] == "good"
    control = audited("--labels", "control")
    assert control["verdict"]["color"] == "bad" and control["seconds_per_1000"] is None
    assert "label set control of oracle, shuffled with 0" in control["facts"]["reward"]
    assert "Do not train on it." in capsys.readouterr().out
    assert audited("constant")["verdict"]["color"] == "bad"


def test_a_measure_of_progress_is_proposed(capsys):
    settings = ["--reward.settings.deviation", "1"]
    audited("noisy-oracle", *settings)
    hint = "hint: steps were compared by recorded reward and time to success"
    said = capsys.readouterr().out
    assert hint in said and "--progress near:OBSERVATION[,OBSERVATION] of light\n" in said
    for better in (["noisy-oracle", *settings, "--progress", "near:light"], ["oracle"], ["constant"]):
        audited(*better)
        assert hint not in capsys.readouterr().out, better
    sparse = (replace(episode(seed), rewards=np.float32([0] * 11 + [seed % 2 == 0])) for seed in range(20))
    make_dataset(Path("sparse"), SPEC, sparse)
    audited("oracle", "--dataset", "sparse")  # the recorded reward knows success alone
    assert hint in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------- success classifier
FIT = ["reward", "fit", "classifier", "--dataset", "data", "--out", "fitted"]
SMALL = [f"--settings.{item}" for item in ("image-size=4", "hidden=8", "updates=60", "shift=0", "least=5", "lr=0.003")]


@pytest.mark.slow
def test_success_is_learned_and_the_classifier_can_be_audited(dataset, capsys):
    assert dispatch([*FIT, *SMALL]) == 0
    told = capsys.readouterr().out
    assert "looks at camera_front; learned from 14 episodes, 6 held out" in told and "success counts from" in told
    assert "warning: 3 failed episodes are too few to tell a rate of 1.0%" in told
    page = Path("fitted/classifier.html").read_text()
    assert page.count("<svg") == 1 and "3 successes, 3 failures" in page and "nan" not in page
    found = audited("classifier", "--reward.settings.folder", "fitted")
    assert "blank pictures" in found["controls"] and "--wrong-text" not in str(found["verdict"])  # it reads no words
    assert found["agreement"]["success by last score"]["estimate"] > 0.9 and found["calibration_error"] is not None
    assert "It was fitted to 20 of these 20 episodes" in found["verdict"]["reasons"][-1]
    with pytest.raises(InvalidSetting, match="is not empty"):
        dispatch([*FIT, *SMALL])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["--settings.least=11"], InvalidSetting, "too few episodes to learn"),
        ([*SMALL, "--settings.guard=lihgt=0:1"], UnknownName, "did you mean 'light'"),
        ([*SMALL, "--settings.guard=light"], InvalidSetting, "A guard cannot be read"),
        ([*SMALL, "--settings.camera=wrist"], UnknownName, "camera 'wrist'"),
    ],
)
def test_a_mistake_with_a_classifier_is_one_error(arguments, error, message):
    with pytest.raises(error, match=message):
        dispatch([*FIT, *arguments])
    assert not Path("fitted").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], InvalidSetting, "A model is audited, or labels that are there"),
        (["oracle", "--labels", "x"], InvalidSetting, "got:     both"),
        (["--labels", "x"], UnknownName, "label set"),
        (["--labels", "x", "--wrong-text", "y"], InvalidSetting, "cannot be asked for again"),
        (["orakel"], UnknownName, "did you mean 'oracle'"),
        (["oracle", "--progress", "timetosuccess"], UnknownName, "did you mean 'time-to-success'"),
        (["oracle", "--progress", "reward:reach"], UnknownName, "reward term 'reach'"),
        (["oracle", "--clips", "-1"], InvalidSetting, "'clips' is out of range"),
        (["oracle", "--dataset", "none"], DatasetError, "is not a dataset"),
        (
            [
                "vlm-rm",
                "--reward.settings.model",
                "colours",
                "--reward.settings.goal",
                "[red]",
                "--reward.settings.alpha",
                "0",
                "--wrong-text",
                "go",
            ],
            InvalidSetting,
            "does not hear the instruction",
        ),
    ],
)
def test_a_mistake_is_one_error(arguments, error, message):
    with pytest.raises(error, match=message):
        dispatch(["audit", "--dataset", "data", "--out", "audits", *arguments])
    assert not Path("audits").exists()
