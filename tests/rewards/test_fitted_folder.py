"""A reward is read from the folder that its fit wrote; without one the error says how to make it."""

import numpy as np
import pytest

from robo_rl.errors import CheckpointCorrupt, InvalidSetting
from robo_rl.rewards.embedded.rewards import EmbeddedProgress
from robo_rl.rewards.fitted_folder import fitted
from robo_rl.rewards.preferences.preference_reward import PreferenceReward
from robo_rl.rewards.success.classifier_reward import ClassifierReward
from robo_rl.runs.checkpoints import Checkpoint, save_checkpoint

KINDS = {"embedded": EmbeddedProgress, "classifier": ClassifierReward, "preference": PreferenceReward}


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_folder_names_the_fit_that_makes_it(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for folder, got in (("none", "no such folder in "), ("empty", "a folder without anything fitted")):
        with pytest.raises(
            CheckpointCorrupt, match=rf"no fitted reward in {folder}[^$]+{got}[^$]+fit {kind} .*--out NEW"
        ) as caught:
            KINDS[kind](folder=folder).identity  # noqa: B018
        assert "train" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_folder_and_one_of_another_kind(kind, tmp_path):
    path = save_checkpoint(tmp_path, Checkpoint(0, {"other": {"arrays": {"a": np.zeros(3)}}}))
    with pytest.raises(InvalidSetting, match=rf"no reward of the kind {kind}[^$]+got:     other[^$]+fit {kind}"):
        KINDS[kind](folder=str(tmp_path)).identity  # noqa: B018
    (path / "other.safetensors").write_bytes(b"x")
    with pytest.raises(CheckpointCorrupt, match=rf"is damaged[^$]+other.safetensors[^$]+fit {kind}"):
        KINDS[kind](folder=str(tmp_path)).identity  # noqa: B018


def test_what_was_saved_comes_back(tmp_path):
    save_checkpoint(tmp_path, Checkpoint(0, {"reward": {"arrays": {"a": np.arange(3.0)}, "facts": {"n": 1}}}))
    state = fitted(tmp_path, "reward", kind="preference")
    assert state["facts"] == {"n": 1} and state["arrays"]["a"].tolist() == [0, 1, 2]
