"""Contrasting language goals: the values of the authors' interval, and an interval that fits what it is used for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from factories import make_spec, picture_spec
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_papers.vlm_rl.reward import ContrastingLanguageGoals, interval, safety, synthesis
from robo_rl.errors import InvalidSetting
from robo_rl.types import Episode

SPEC = make_spec("road", picture_spec("camera_front", (6, 6, 3)))
CLG = ContrastingLanguageGoals(model="colours", undesired="red", desired="green")


def drive(seed: int, steps: int = 20, *, is_still: bool = False) -> Episode:
    """An episode that turns from green to red."""
    share = np.zeros(steps + 1) if is_still else np.linspace(0, 1, steps + 1) ** (1 + seed % 3)
    pictures = np.full((steps + 1, 6, 6, 3), 60, np.uint8)
    pictures[..., 0] = (60 + 180 * share[:, None, None]).astype(np.uint8)
    pictures[..., 1] = (240 - 180 * share[:, None, None]).astype(np.uint8)
    zeros = np.zeros((steps, 1), np.float32)
    return Episode(
        {"camera_front": pictures}, zeros, zeros, np.zeros(steps, np.float32), np.zeros(steps, np.int8),
        np.arange(steps + 1, dtype=np.float64), False, True, "time_limit", None, seed, SPEC.fingerprint,
    )  # fmt: skip


def test_safety_and_speed_have_the_values_of_the_authors_code():
    """With their interval of 0 to 0.03 and their top speed of 25 km/h."""
    z = np.array([-0.01, 0.0, 0.01, 0.02, 0.03, 0.05])
    c, top = safety(z, 0.0, 0.03), 25 / 3.6
    np.testing.assert_allclose(c, [1, 1, 2 / 3, 1 / 3, 0, 0], atol=1e-12)
    np.testing.assert_allclose(c * 25, [25, 25, 16.7, 8.3, 0, 0], atol=0.05)
    np.testing.assert_allclose(synthesis(c, np.full(6, top), top), [1, 1, 2 / 3, 1 / 3, 0, 0], atol=1e-12)
    np.testing.assert_allclose(synthesis(c, np.zeros(6), top), [0, 0, 1 / 3, 2 / 3, 1, 1], atol=1e-12)
    centring, steadiness = np.array([1.0, 0.5, 1, 1, 1, 1]), np.array([0.0, 0.5, 1, 1, 1, 1])
    found = synthesis(c, np.full(6, top), top, centring, steadiness)
    np.testing.assert_allclose(found, [0, 0.25, 2 / 3, 1 / 3, 0, 0], atol=1e-12)


def test_z_is_the_difference_of_the_cosines_in_this_order():
    embedder = CLG.embedder
    pictures = drive(0).observations["camera_front"]
    red, green = embedder.embed_texts(["red", "green"])
    expected = embedder.embed_pictures(pictures) @ red - embedder.embed_pictures(pictures) @ green
    z = CLG.contrast(embedder.embed_pictures(pictures).astype(np.float64))
    np.testing.assert_allclose(z, expected, atol=1e-6)
    assert z[0] < 0 < z[-1]


def test_calibrated_score_is_1_at_goal_and_0_at_opposite():
    found, noise = CLG.calibrated(drive(seed) for seed in range(8))
    assert found.low < found.high and 0 < noise < (found.high - found.low) / 2
    labels = found.label(drive(0))
    assert labels.valid.all() and labels.values[0] > 0.95 and labels.values[-1] == 0
    assert (np.diff(labels.values) <= 0).all()


def test_the_interval_is_of_two_percentiles_of_all_pictures():
    episodes = [np.random.default_rng(seed).normal(size=50) for seed in range(20)]
    low, high, noise = interval(episodes)
    np.testing.assert_allclose((low, high), np.percentile(np.concatenate(episodes), (5, 95)))
    assert 0.02 < noise < 0.3
    low, high, _ = interval(episodes, (50.0, 95.0))
    np.testing.assert_allclose((low, high), np.percentile(np.concatenate(episodes), (50, 95)))


def test_sentences_that_say_nothing_are_refused():
    with pytest.raises(
        InvalidSetting, match=r"say nothing about these pictures.\n.*percentiles 5 and 95\n.*three standard errors"
    ):
        CLG.calibrated(drive(seed, is_still=True) for seed in range(8))
    one_outlier = [np.zeros(20)] * 12 + [np.ones(20)]
    with pytest.raises(InvalidSetting, match="say nothing about these pictures"):
        interval(one_outlier)
    with pytest.raises(InvalidSetting, match="Too few episodes"):
        CLG.calibrated(drive(seed) for seed in range(4))
    with pytest.raises(InvalidSetting, match="does not tell the two sentences apart"):
        replace(CLG, desired="red").calibrated(drive(seed) for seed in range(8))


def test_missing_or_foreign_interval_labels_nothing():
    with pytest.raises(InvalidSetting, match=r"are not calibrated.\n.*robo-rl reward calibrate"):
        CLG.label(drive(0))
    found, _ = CLG.calibrated(drive(seed) for seed in range(8))
    for other in (replace(found, desired="blue"), replace(found, camera="camera_front")):
        with pytest.raises(InvalidSetting, match="was found for another model, other sentences or another camera"):
            other.label(drive(0))
    by_hand = replace(CLG, low=0.0, high=0.03)
    assert by_hand.label(drive(0)).values[-1] == 0
    assert len({CLG.identity, found.identity, by_hand.identity}) == 3
    for low, high in ((0.1, None), (None, 0.1), (0.2, 0.1), (0.1, 0.1)):
        with pytest.raises(InvalidSetting, match="The interval is none"):
            replace(CLG, low=low, high=high)


def test_from_the_command_line(capsys):
    dataset = Dataset.create(Path("data"), SPEC)
    with dataset.writer() as writer:
        for seed in range(6):
            writer.add(drive(seed))
    Path("safe.yaml").write_text("reward: clg\nsettings: {model: colours, undesired: red, desired: green}\n")
    assert dispatch(["reward", "calibrate", "safe.yaml", "--dataset", "data", "--out", "ready.yaml"]) == 0
    told = capsys.readouterr().out
    settings = yaml.safe_load(Path("ready.yaml").read_text())["settings"]
    assert f"safety is 1 at {settings['low']:.4g} and below" in told and settings["found_for"]
    assert dispatch(["label", "data", "--reward", "ready.yaml", "--name", "safety"]) == 0
    narrow = ["reward", "calibrate", "safe.yaml", "--dataset", "data", "--out", "narrow.yaml", "--percentiles"]
    assert dispatch([*narrow, "50", "95"]) == 0
    assert yaml.safe_load(Path("narrow.yaml").read_text())["settings"]["low"] > settings["low"]
    with pytest.raises(InvalidSetting, match=r"'percentiles' is out of range"):
        dispatch([*narrow, "95", "50"])
    with pytest.raises(InvalidSetting, match=r"ready.yaml is there already"):
        dispatch(["reward", "calibrate", "safe.yaml", "--dataset", "data", "--out", "ready.yaml"])
    Path("other.yaml").write_text("reward: oracle\n")
    with pytest.raises(InvalidSetting, match="This reward needs no calibration"):
        dispatch(["reward", "calibrate", "other.yaml", "--dataset", "data", "--out", "x.yaml"])


def test_calibrate_counts_episodes_before_it_reads_any(monkeypatch):
    with Dataset.create(Path("data"), SPEC).writer() as writer:
        for seed in range(4):
            writer.add(drive(seed))
    Path("safe.yaml").write_text("reward: clg\nsettings: {model: colours, undesired: red, desired: green}\n")
    monkeypatch.setattr(Dataset, "read", None)
    with pytest.raises(InvalidSetting, match=r"Too few episodes to calibrate with.\n.*4"):
        dispatch(["reward", "calibrate", "safe.yaml", "--dataset", "data", "--out", "ready.yaml"])
