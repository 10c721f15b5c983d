"""Labels from the command line, and a training that learns from them and from nothing else."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from robo_app.recipes.reward_file import program_file
from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet, label_sets
from robo_rl.errors import DatasetError, InvalidSetting, RewardUnavailable, RoboRLError, UnknownName
from robo_rl.rewards.preferences.preference_reward import BradleyTerryConfig, RewardEnsemble, inputs_of, save
from robo_rl.runs.run import find_run

TASK = "robo/ArmReach-v0"
TINY = """
environment: {}
algorithm: iql
learner: {network: {hidden: [8]}, batch_size: 16}
steps: 40
log_every: 20
checkpoint_every: 20
evaluation: {episodes: 1, videos: 0}
"""


@pytest.fixture(autouse=True)
def dataset(tmp_path, monkeypatch) -> Dataset:
    monkeypatch.chdir(tmp_path)
    arguments = [
        "--environment.arguments.max_steps",
        "20",
        "--environment.arguments.action_repeat",
        "2",
        "--environment.arguments.reward",
        "dense",
    ]
    dispatch(["record", TASK, "--episodes", "4", "--out", "data", *arguments])
    Path("tiny.yaml").write_text(TINY)
    return Dataset(Path("data"))


def trained(*options: str) -> dict[str, np.ndarray]:
    assert dispatch(["train", "tiny.yaml", "--dataset", "data", *options]) == 0
    newest = sorted((find_run("latest", Path("runs")).path / "checkpoints").iterdir())[-1]
    return load_file(newest / "learner.safetensors")


def are_equal(one, other) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_oracle_labels_train_same_policy_as_rewards(dataset, capsys):
    dispatch(["label", "data", "--reward", "oracle", "--name", "oracle"])
    dispatch(["label", "data", "--reward", "constant", "--reward.settings.value", "1", "--name", "flat"])
    own = trained()
    assert are_equal(own, trained("--labels", "oracle"))
    assert not are_equal(own, trained("--labels", "flat"))
    facts = find_run("latest", Path("runs")).description["dataset"]
    assert facts["labels"] == "flat" and len(facts["labels_content"]) == 16 and "constant (" in facts["labels_of"][0]
    assert "rewards of the label set flat" in capsys.readouterr().out


@pytest.mark.slow
def test_labelled_run_resumes_only_with_its_labels(dataset):
    dispatch(["label", "data", "--reward", "noisy-oracle", "--name", "noisy"])
    whole = trained("--labels", "noisy")
    run = find_run("latest", Path("runs"))
    (run.path / "evaluation.json").unlink()
    newest = sorted((run.path / "checkpoints").iterdir())[-1]
    for file in sorted(newest.iterdir()):
        file.unlink()
    newest.rmdir()  # as if it had been stopped at step 20
    assert dispatch(["resume", str(run.path)]) == 0
    assert are_equal(whole, load_file(sorted((run.path / "checkpoints").iterdir())[-1] / "learner.safetensors"))
    labels = LabelSet(dataset, "noisy")
    first = dataset.entries()[0].identity
    found = labels.read(first)
    labels.add(first, type(found)(**{**found.__dict__, "values": found.values + 1}))
    (run.path / "evaluation.json").unlink()
    with pytest.raises(InvalidSetting, match=r"The labels 'noisy' are others than those[^$]+of noisy-oracle[^$]+--name"):
        dispatch(["resume", str(run.path)])


@pytest.mark.slow
def test_steps_without_a_label_are_told_of(dataset, capsys):
    dispatch(["label", "data", "--reward", "noisy-oracle", "--reward.settings.missing", "0.5", "--name", "half"])
    trained("--labels", "half")
    steps = sum(entry.steps for entry in dataset.entries())
    known = LabelSet(dataset, "half").count(dataset.entries())
    assert f"({known} of {steps} steps have one, the others are left out)" in capsys.readouterr().out
    with pytest.raises(RewardUnavailable, match=f"0 of {steps} steps have a label"):
        dispatch(["label", "data", "--reward", "noisy-oracle", "--reward.settings.missing", "1", "--name", "none"])
    with pytest.raises(InvalidSetting, match="No step has a label of the set 'none'"):
        trained("--labels", "none")


@pytest.mark.slow
def test_a_reward_from_a_file_and_settings_over_it(dataset):
    Path("mine.yaml").write_text("reward: constant\nsettings: {value: 2}\n")
    dispatch(["label", "data", "--reward", "mine.yaml", "--name", "two"])
    dispatch(["label", "data", "--reward", "mine.yaml", "--reward.settings.value", "3", "--name", "three"])
    identity = dataset.entries()[0].identity
    assert [LabelSet(dataset, name).read(identity).values[0] for name in ("two", "three")] == [2, 3]
    dispatch(["label", "data", "--shuffled", "two", "--name", "control"])
    assert dispatch(["label", "data", "--shuffled", "two", "--name", "control"]) == 0


@pytest.mark.slow
def test_the_model_may_be_deleted_but_the_cache_kept(dataset, capsys):
    config = BradleyTerryConfig(hidden=(4,))
    size = inputs_of(dataset.spec, next(iter(dataset))).shape[1]
    save(Path("reward"), RewardEnsemble(size, config), config, dataset.spec, {})
    Path("mine.yaml").write_text("reward: preference\nsettings: {folder: reward}\n")
    command = ["label", "data", "--reward", "mine.yaml", "--name"]
    dispatch([*command, "first"])
    before = trained("--labels", "first")
    shutil.rmtree("reward")
    with pytest.raises(RoboRLError, match="There is no fitted reward in reward"):
        dispatch([*command, "second", "--cache", "none"])
    with pytest.raises(RoboRLError, match="There is no fitted reward in reward"):
        dispatch([*command, "second", "--cache", "elsewhere"])
    capsys.readouterr()
    with pytest.raises(InvalidSetting, match="Without a cache nothing can be replayed"):
        dispatch([*command, "second", "--cache", "none", "--replay"])
    dispatch([*command, "second", "--replay"])
    assert "4 episodes were in the cache" in capsys.readouterr().out
    one, other = (LabelSet(dataset, name).digest(dataset.entries()) for name in ("first", "second"))
    assert one == other
    assert are_equal(before, trained("--labels", "second"))


def test_damaged_labels_in_the_cache_are_told_of(dataset, capsys):
    command = ["label", "data", "--reward", "noisy-oracle", "--cache", "mine", "--name"]
    dispatch([*command, "first"])
    with closing(sqlite3.connect("mine/labels.sqlite")) as connection, connection:
        connection.execute("UPDATE labels SET valid = x'00' WHERE rowid = 1")
    capsys.readouterr()
    dispatch([*command, "second"])
    told = capsys.readouterr().out
    assert "3 episodes were in the cache mine/labels.sqlite" in told
    assert "labels of 1 episodes in mine/labels.sqlite were damaged; they were dropped and asked for again" in told


def test_what_there_is_can_be_listed(capsys):
    dispatch(["reward", "list"])
    dispatch(["reward", "show", "noisy-oracle"])
    told = capsys.readouterr().out
    assert "recorded rewards" in told and "deviation" in told and "in units of the reward" in " ".join(told.split())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["label", "data", "--name", "x"], InvalidSetting, "from a model or from another set"),
        (["label", "data", "--name", "x", "--reward", "oracle", "--shuffled", "y"], InvalidSetting, "both"),
        (["label", "data", "--name", "x", "--reward", "orakel"], UnknownName, "did you mean 'oracle'"),
        (["label", "data", "--name", "../x", "--reward", "oracle"], InvalidSetting, "impossible name"),
        (["label", "data", "--name", "x", "--reward", "constant", "--reward.settings.valu", "1"], UnknownName, "'value'"),
        (
            ["label", "data", "--name", "x", "--reward", "constant", "--reward.settings.value", "a"],
            InvalidSetting,
            "wrong type",
        ),
        (["label", "data", "--name", "x", "--reward", "constant", "--reward.settings.value", ".nan"], InvalidSetting, "finite"),
        (["label", "data", "--name", "x", "--reward", "none.yaml"], InvalidSetting, "cannot be read"),
        (["label", "data", "--name", "x", "--reward", "tiny.yaml"], InvalidSetting, "is not a reward"),
        (["label", "nothing", "--name", "x", "--reward", "oracle"], DatasetError, "is not a dataset"),
        (["reward", "lst"], UnknownName, "'list'"),
        (["train", "tiny.yaml", "--dataset", "data", "--labels", "mine"], UnknownName, "label set"),
        (["train", "arm-pick-rlpd", "--labels", "mine"], InvalidSetting, "none is named"),
    ],
)
def test_a_mistake_is_one_error_and_leaves_nothing(dataset, arguments, error, message):
    with pytest.raises(error, match=message):
        dispatch(arguments)
    assert not [*(dataset.path / "labels").glob("*.sqlite")] and not Path("runs").exists()


# ---------------------------------------------------------------------------------------------- preferences
@pytest.mark.slow
def test_from_comparisons_to_labels(dataset, capsys):
    assert dispatch(["prefer", "data", "--name", "noisy", "--pairs", "60", "--rater.settings.mistakes", "0.1"]) == 0
    assert dispatch(["prefer", "data", "--name", "noisy", "--pairs", "60", "--rater.settings.mistakes", "0.1"]) == 0
    assert "\n0 pairs compared now" in capsys.readouterr().out
    fitting = ["reward", "fit", "preference", "--dataset", "data", "--preferences", "noisy", "--out", "fitted"]
    assert dispatch([*fitting, "--settings.epochs", "3", "--settings.hidden", "8"]) == 0
    told = capsys.readouterr().out
    assert "usable of" in told and "of those held out" in told and "warning: with less than 1000 comparisons" in told
    assert dispatch(["label", "data", "--reward", "preference", "--reward.settings.folder", "fitted", "--name", "learned"]) == 0
    values = np.concatenate([LabelSet(dataset, "learned").read(entry.identity).values for entry in dataset.entries()])
    assert values.mean() == pytest.approx(0, abs=1e-3) and values.std() == pytest.approx(1, abs=0.05)
    with pytest.raises(InvalidSetting, match="is not empty"):
        dispatch([*fitting, "--settings.epochs", "1"])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["prefer", "data", "--name", "x", "--length", "500"], InvalidSetting, "not two segments"),
        (["prefer", "data", "--name", "x", "--rater", "orakel"], UnknownName, "did you mean 'oracle'"),
        (["prefer", "data", "--name", "x", "--rater.settings.mistakes", "2"], InvalidSetting, "0 to 1"),
        (["reward", "fit", "preference", "--dataset", "data", "--preferences", "x", "--out", "f"], UnknownName, "set of pref"),
        (["label", "data", "--reward", "preference", "--name", "x"], InvalidSetting, "Which fitted reward"),
    ],
)
def test_a_mistake_with_preferences_is_one_error(dataset, arguments, error, message):
    with pytest.raises(error, match=message):
        dispatch(arguments)


def test_annotations_need_describable_steps_and_own_replies(dataset, monkeypatch):
    words = [
        "label",
        str(dataset.path),
        "--reward",
        "oni-retrieval",
        "--reward.settings.llm",
        "pack:beacons-doorkey",
        "--name",
        "never",
    ]
    with pytest.raises(InvalidSetting, match="The captioner minigrid cannot describe"):
        dispatch(words)
    monkeypatch.setattr("robo_sims.minigrid_captions.MiniGridCaptioner.require", lambda self, spec: None)
    with pytest.raises(InvalidSetting, match=r"(?s)another environment.*got:     robo/ArmReach-v0.*allowed: minigrid"):
        dispatch(words)
    assert "never" not in label_sets(dataset)


@pytest.mark.parametrize(
    ("reward", "name", "also"),
    [
        (["rrd"], "rrd", ""),
        (["return-decomposition"], "return-decomposition", ""),
        (["lare", "--reward.settings.path", f"{program_file('arm_reach')}"], "lare", r"program:PATH"),
    ],
)
def test_online_rewards_are_refused_for_recorded_episodes(dataset, reward, name, also):
    data, told = str(dataset.path), "learned while a policy acts, and has no labels for recorded episodes"
    for words in (
        ["label", data, "--reward", *reward, "--name", "never"],
        ["audit", *reward, "--dataset", data, "--out", "never"],
        ["reward", "references", *reward, "--dataset", data, "--out", "never"],
    ):
        with pytest.raises(InvalidSetting, match=rf"{told}(.|\n)*robo-rl train RECIPE --reward.name {name};(.|\n)*{also}"):
            dispatch(words)
    assert "never" not in label_sets(dataset) and not Path("never").exists()
