"""robo-rl record and robo-rl data, as typed; and learning from what was recorded."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_datasets.labels import LabelSet
from robo_rl.errors import DatasetError, DatasetNotFound, EpisodeCorrupt, InvalidSetting, SpecMismatch, UnknownName
from robo_rl.types import RewardLabels

TASK = "robo/ArmReach-v0"


@pytest.fixture
def recorded() -> Path:
    path = Path("data/reach")
    assert dispatch(["record", TASK, "--policy", "mix:scripted=0.5,random=0.5", "--episodes", "6", "--out", str(path)]) == 0
    return path


def test_record_info_verify(recorded, capsys):
    assert dispatch(["data", "verify", str(recorded)]) == 0
    assert "6 episodes, all as they were written" in capsys.readouterr().out
    assert dispatch(["data", "info", str(recorded), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["episodes"] == 6 and set(facts["actors"]) == {"scripted", "random"}
    assert facts["card"]["policy"] == "mix:scripted=0.5,random=0.5"
    assert dispatch(["data", "info", str(recorded)]) == 0
    assert "actors       random 4, scripted 2" in capsys.readouterr().out


@pytest.mark.slow
def test_the_same_command_records_the_same(recorded):
    again = Path("data/again")
    dispatch(["record", TASK, "--policy", "mix:scripted=0.5,random=0.5", "--episodes", "6", "--out", str(again)])
    pairs = [*zip(Dataset(recorded), Dataset(again), strict=True)]
    assert all((first.actions == second.actions).all() for first, second in pairs)


@pytest.mark.slow
def test_a_function_of_ones_own_is_recorded(tmp_path, monkeypatch, capsys):
    source = "def forward(seen):\n    return [1.0, 0.0, 0.0, 0.0, seen['gripper_opening'][0] * 0]\n"
    (tmp_path / "my_forward.py").write_text(f"{source}\n\nclass Forward:\n    act = staticmethod(forward)\n")
    monkeypatch.chdir(tmp_path)
    for policy in ("my_forward:forward", "my_forward:Forward", "mix:my_forward:forward=0.5,random=0.5"):
        out = policy.replace(":", "-")
        assert dispatch(["record", TASK, "--policy", policy, "--episodes", "2", "--out", out]) == 0
        entries = Dataset(Path(out)).entries()
        assert {entry.source for entry in entries} <= {policy, "my_forward:forward", "random"}
        if "random" not in policy:
            assert all(np.array_equal(Dataset(Path(out)).read(each).actions[:, 0], np.ones(each.steps)) for each in entries)
    assert dispatch(["data", "info", out]) == 0
    assert "None" not in capsys.readouterr().out


@pytest.mark.slow
def test_append_adds_and_a_full_folder_is_refused(recorded):
    with pytest.raises(DatasetError, match="is not empty"):
        dispatch(["record", TASK, "--out", str(recorded)])
    dispatch(["record", TASK, "--episodes", "2", "--seed", "6", "--out", str(recorded), "--append"])
    assert [entry.seed for entry in Dataset(recorded).entries()] == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.slow
def test_append_goes_on_at_seeds_that_no_episode_has(recorded):
    dispatch(["record", TASK, "--policy", "random", "--episodes", "3", "--out", str(recorded), "--append"])
    dispatch(["record", TASK, "--policy", "random", "--episodes", "1", "--seed", "10", "--out", str(recorded), "--append"])
    dispatch(["record", TASK, "--policy", "random", "--episodes", "2", "--out", str(recorded), "--append"])
    assert [entry.seed for entry in Dataset(recorded).entries()] == [*range(9), 10, 9, 11]


@pytest.mark.slow
def test_append_refuses_the_same_episodes_again(recorded):
    again = ["record", TASK, "--policy", "mix:scripted=0.5,random=0.5", "--out", str(recorded), "--append"]
    with pytest.raises(InvalidSetting, match=r"(?s)2 of these episodes are in .* already.*leave --seed out"):
        dispatch([*again, "--seed", "4", "--episodes", "4"])
    assert len(Dataset(recorded)) == 6
    other = ["record", TASK, "--policy", "scripted", "--out", str(recorded), "--append", "--seed", "0", "--episodes", "6"]
    with pytest.raises(InvalidSetting, match="2 of these episodes"):
        dispatch(other)
    dispatch([*other, "--noise", "0.2"])
    assert len(Dataset(recorded)) == 12, "another noise gives other episodes"


def test_an_interrupted_recording_says_how_it_goes_on(monkeypatch, capsys):
    from robo_app.recording import record

    def interrupted(environment, policy, writer, *, seed, **facts):
        if seed == 2:
            raise KeyboardInterrupt
        return record_episode(environment, policy, writer, seed=seed, **facts)

    record_episode = record.record_episode
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(record, "record_episode", interrupted)
        dispatch(["record", TASK, "--episodes", "5", "--out", "data/cut"])
    said = capsys.readouterr().out
    assert "interrupted: 2 of 5 episodes are kept in data/cut; the same command with --append --episodes 3 goes on" in said
    dispatch(["record", TASK, "--episodes", "3", "--out", "data/cut", "--append"])
    assert [entry.seed for entry in Dataset(Path("data/cut")).entries()] == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_repair_and_exit_status(recorded, capsys):
    victim = next((recorded / "episodes").iterdir())
    os.truncate(victim, 100)
    assert dispatch(["data", "verify", str(recorded)]) == 1
    assert dispatch(["data", "repair", str(recorded)]) == 0
    assert dispatch(["data", "verify", str(recorded)]) == 0
    assert "quarantined" in capsys.readouterr().out


@pytest.mark.slow
def test_split_merge_and_filter_keep_episodes_labels_and_notes(recorded, capsys):
    source = Dataset(recorded)
    for entry in source.entries():
        labels = RewardLabels(_array([0.5] * entry.steps), _array([1.0] * entry.steps) > 0, "m", "w", "p")
        LabelSet(source, "progress").add(entry.identity, labels)
        source.catalogue.note(entry.identity, f"seed {entry.seed}")
    assert dispatch(["data", "split", str(recorded), "--into.train", "0.5", "--into.test", "0.5"]) == 0
    assert dispatch(["data", "merge", f"{recorded}-train", f"{recorded}-test", "--out", "data/all"]) == 0
    merged = Dataset(Path("data/all"))
    assert sorted(entry.seed for entry in merged.entries()) == [0, 1, 2, 3, 4, 5]
    for entry in merged.entries():
        assert len(LabelSet(merged, "progress").read(entry.identity).values) == entry.steps
        assert merged.catalogue.notes(entry.identity) == [f"seed {entry.seed}"]
    assert dispatch(["data", "filter", "data/all", "--out", "data/experts", "--select.source", "scripted"]) == 0
    experts = Dataset(Path("data/experts")).entries()
    assert experts and {entry.source for entry in experts} == {"scripted"}


def _array(values):
    return np.asarray(values, np.float32)


@pytest.mark.slow
def test_a_recipe_learns_from_a_dataset(recorded, capsys):
    Path("bc.yaml").write_text(
        f"environment: {{name: {TASK}}}\nalgorithm: bc\nsteps: 20\ndemonstrations: {{dataset: {recorded}}}\n"
        "evaluation: {episodes: 2, videos: 0}\n"
    )
    assert dispatch(["train", "bc.yaml"]) == 0
    assert f"6 episodes of {recorded}" in capsys.readouterr().out
    slower = f"{{name: {TASK}, arguments: {{action_repeat: 3}}}}"
    Path("slower.yaml").write_text(Path("bc.yaml").read_text().replace(f"{{name: {TASK}}}", slower))
    with pytest.raises(SpecMismatch, match=r"recorded in another environment(.|\n)*control_period"):
        dispatch(["train", "slower.yaml"])


def half_a_run(recorded: Path) -> Path:
    """Returns a run of 20 updates that was stopped after its checkpoint at 10."""
    Path("bc.yaml").write_text(f"""
environment: {{name: {TASK}}}
algorithm: bc
steps: 20
checkpoint_every: 10
evaluation: {{episodes: 2, videos: 0}}
demonstrations: {{dataset: {recorded}}}
""")
    dispatch(["train", "bc.yaml"])
    (run,) = Path("runs").iterdir()
    (run / "evaluation.json").unlink()
    shutil.rmtree(run / "checkpoints" / "0000000020")
    return run


@pytest.mark.slow
def test_a_run_can_be_resumed_after_its_dataset_has_grown(recorded, capsys):
    run = half_a_run(recorded)
    dispatch(["record", TASK, "--episodes", "2", "--seed", "6", "--out", str(recorded), "--append"])
    assert dispatch(["resume", "latest"]) == 0
    assert "resumed at step 10, exact" in capsys.readouterr().out
    (saved,) = {file.stat().st_size for file in (run / "checkpoints").glob("*/replay.safetensors")}
    assert saved < 100, "the episodes stay in the dataset"
    assert len(list((recorded / "cache").glob("*/cache.json"))) == 1
    with pytest.raises(InvalidSetting, match=r"too few episodes(.|\n)*got: +8(.|\n)*9"):
        dispatch(["train", "bc.yaml", "--demonstrations.episodes", "9"])


@pytest.mark.slow
def test_a_run_is_not_resumed_with_other_episodes(recorded):
    half_a_run(recorded)
    dataset = Dataset(recorded)
    dataset.catalogue.remove(dataset.entries()[2].identity)
    dispatch(["record", TASK, "--episodes", "1", "--seed", "6", "--out", str(recorded), "--append"])
    dataset.catalogue.remove(Dataset(recorded).entries()[1].identity)
    dispatch(["record", TASK, "--episodes", "1", "--seed", "7", "--out", str(recorded), "--append"])
    with pytest.raises(InvalidSetting, match="learnt from other recorded episodes than there are now"):
        dispatch(["resume", "latest"])


@pytest.mark.slow
def test_a_run_goes_on_after_its_dataset_was_moved(recorded, capsys):
    run = half_a_run(recorded)
    recorded.rename("moved")
    with pytest.raises(DatasetNotFound, match=r"dataset of the run is not there(.|\n)*data/reach(.|\n)*--dataset PATH"):
        dispatch(["resume", "latest"])
    dispatch(["record", TASK, "--episodes", "6", "--out", "other"])
    with pytest.raises(InvalidSetting, match="does not begin with the episodes that the run learnt from"):
        dispatch(["resume", "latest", "--dataset", "other"])
    recipe = (run / "recipe.yaml").read_text()
    assert dispatch(["resume", "latest", "--dataset", "moved"]) == 0
    assert "resumed at step 10, exact" in capsys.readouterr().out
    assert (run / "recipe.yaml").read_text() == recipe, "the run is the one that it was"


@pytest.mark.slow
def test_statistics_fit_a_terminal(recorded, capsys):
    assert dispatch(["data", "stats", str(recorded)]) == 0
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 120
    for word in ("observations/joint_position", "actions", "at -1 or 1", "scripted", "returns: min", "terminated"):
        assert word in told
    assert dispatch(["data", "stats", str(recorded), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 6


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (["record", TASK, "--policy", "mix:a=2", "--out", "x"], InvalidSetting, "shares do not add up to 1"),
        (["record", TASK, "--policy", "mix:random=nan", "--out", "x"], InvalidSetting, "shares do not add up to 1"),
        (["record", TASK, "--environment.arguments.cameras", "--out", "x"], InvalidSetting, "has no value"),
        (
            ["record", TASK, "--environment.arguments.cameras", "[", "--out", "x"],
            InvalidSetting,
            r"no readable value(.|\n)*as in YAML",
        ),
        (["record", "gymnasium/Hopper-v5", "--out", "x"], InvalidSetting, "no scripted expert"),
        (["data", "inf", "x"], UnknownName, "did you mean 'info'"),
        (["data", "info", "x"], DatasetError, r"is not a dataset(.|\n)*no such folder(.|\n)*robo-rl record"),
        (
            ["data", "info", "."],
            DatasetError,
            r"no dataset.json(.|\n)*robo-rl data convert \. --out DATASET reads other formats",
        ),
        (
            ["record", TASK, "--policy", "nowhere:expert", "--out", "x"],
            InvalidSetting,
            "module of the policy nowhere:expert cannot",
        ),
        (["data", "merge", "x", "--out", "y"], DatasetError, "is not a dataset"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        dispatch(arguments)
    assert not Path("x").exists(), "nothing is left behind"


@pytest.mark.slow
def test_append_refuses_another_way_of_rewarding(recorded):
    """The spec is the same, so that only the card tells."""
    with pytest.raises(DatasetError, match=r"recorded in another environment(.|\n)*dense(.|\n)*same --environment.arguments"):
        dispatch(["record", TASK, "--out", str(recorded), "--append", "--environment.arguments.reward", "dense"])
    assert len(Dataset(recorded)) == 6


@pytest.mark.slow
def test_datasets_that_cannot_be_merged_leave_nothing(recorded):
    dispatch(["record", TASK, "--episodes", "1", "--out", "data/slow", "--environment.arguments.action_repeat", "3"])
    with pytest.raises(SpecMismatch, match=r"data/slow is of another environment than data/reach(.|\n)*one environment"):
        dispatch(["data", "merge", str(recorded), "data/slow", "--out", "data/all"])
    with pytest.raises(InvalidSetting, match="two datasets or more"):
        dispatch(["data", "merge", str(recorded), str(recorded), "--out", "data/all"])
    assert {path.name for path in Path("data").iterdir()} == {"reach", "slow"}


@pytest.mark.slow
def test_a_damaged_episode_leaves_no_half_of_a_dataset(recorded):
    os.truncate(recorded / "episodes" / Dataset(recorded).entries()[-1].file, 100)
    with pytest.raises(EpisodeCorrupt):
        dispatch(["data", "filter", str(recorded), "--out", "data/good"])
    with pytest.raises(EpisodeCorrupt):
        dispatch(["data", "split", str(recorded), "--into.all", "1"])
    assert {path.name for path in Path("data").iterdir()} == {"reach"}


@pytest.mark.slow
def test_present_episodes_get_missing_labels(recorded, capsys):
    shutil.copytree(recorded, "data/labelled")
    labelled = Dataset(Path("data/labelled"))
    for entry in labelled.entries():
        labels = RewardLabels(_array([0.5] * entry.steps), _array([1.0] * entry.steps) > 0, "m", "w", "p")
        LabelSet(labelled, "progress").add(entry.identity, labels)
    assert dispatch(["data", "merge", str(recorded), "data/labelled", "--out", "data/all"]) == 0
    assert "0 episodes of data/labelled; 6 were there already" in capsys.readouterr().out
    assert len(LabelSet(Dataset(Path("data/all")), "progress").labelled) == 6


@pytest.mark.slow
def test_a_selection_of_nothing(recorded):
    with pytest.raises(InvalidSetting, match=r"No episode of data/reach is selected(.|\n)*source nobody(.|\n)*data info"):
        dispatch(["data", "filter", str(recorded), "--out", "data/none", "--select.source", "nobody"])
    assert not Path("data/none").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("into", "message"),
    [
        (["--into.a", "nan", "--into.b", "1"], "do not add up to 1"),
        (["--into.../out", "0.5", "--into.b", "0.5"], r"impossible name(.|\n)*\.\./out"),
        (["--into", "{'': 0.5, b: 0.5}"], "impossible name"),
        (["--into.a", "0.99", "--into.b", "0.01"], r"No episode is left for the part 'b'(.|\n)*0.01 of 6"),
    ],
)
def test_parts_that_cannot_be(recorded, into, message):
    with pytest.raises(InvalidSetting, match=message):
        dispatch(["data", "split", str(recorded), *into])
    assert {path.name for path in Path("data").iterdir()} == {"reach"}


@pytest.mark.slow
def test_a_part_that_is_there_stops_the_split_before_it_begins(recorded):
    Path("data/reach-b").mkdir()
    Path("data/reach-b/mine").write_text("")
    with pytest.raises(DatasetError, match="reach-b is there already"):
        dispatch(["data", "split", str(recorded), "--into.a", "0.5", "--into.b", "0.5"])
    assert not Path("data/reach-a").exists()


@pytest.mark.slow
def test_a_split_from_inside(recorded, monkeypatch):
    monkeypatch.chdir(recorded)
    assert dispatch(["data", "split", ".", "--into.a", "0.5", "--into.b", "0.5"]) == 0
    assert len(Dataset(Path("../reach-a"))) == 3


@pytest.mark.slow
def test_what_a_stranger_wrote_does_not_reach_the_terminal(recorded, capsys):
    dataset = Dataset(recorded)
    episode = dataset.read(dataset.entries()[0])
    with dataset.writer() as writer:
        rewards = np.where(np.arange(len(episode)) == 0, np.nan, episode.rewards)
        writer.add(replace(episode, rewards=rewards, metadata={"source": "\x1b[2Jü"}))
        changes = {"metadata": {"source": "\x1b[3J[bold]x"}, "stop_reason": "\x1b[4J\nends: all good"}
        writer.add(replace(episode, **changes))
    dataset.describe(dataset.card | {"how": "\x1b]0;title\x07"})
    capsys.readouterr()
    dispatch(["data", "info", str(recorded)])
    said = capsys.readouterr().out
    assert "\x1b" not in said and r"how          \x1b]0;title\x07" in said and r"\x1b[2Jü 1" in said
    assert re.search(r"return       least 0, mean 0\.[0-9]+, most 1, not finite 1", said)
    dispatch(["data", "stats", str(recorded)])
    said = capsys.readouterr().out
    assert "\x1b" not in said and r"\x1b[3J[bold]x" in said and r"\x1b[4J\nends: all good 1" in said
    dispatch(["data", "info", str(recorded), "--json"])
    assert "NaN" not in capsys.readouterr().out, "which JSON does not have"


@pytest.mark.slow
def test_learning_from_nothing(recorded):
    dataset = Dataset.create(Path("data/empty"), Dataset(recorded).spec, Dataset(recorded).card)
    with pytest.raises(InvalidSetting, match=r"data/empty has no episodes(.|\n)*--append"):
        dispatch(["train", "offline-iql", "--dataset", str(dataset.path)])


@pytest.mark.slow
def test_shares_that_do_not_add_up(recorded):
    with pytest.raises(InvalidSetting, match="shares do not add up to 1"):
        dispatch(["data", "split", str(recorded), "--into.train", "0.5", "--into.test", "0.6"])
    with pytest.raises(InvalidSetting, match="share is not a number"):
        dispatch(["data", "split", str(recorded), "--into.train", "much"])


def test_help_lists_the_actions(capsys):
    assert dispatch(["data"]) == 0
    page = capsys.readouterr().out
    assert all(name in page for name in ("info", "verify", "repair", "merge", "filter", "split"))


@pytest.mark.parametrize("action", ["convert", "split", "repair"])
def test_help_of_an_action_shows_how_it_is_used(capsys, action):
    with pytest.raises(SystemExit):
        dispatch(["data", action, "--help"])
    examples = [line for line in capsys.readouterr().out.splitlines() if line.startswith("robo-rl ")]
    assert examples and all(line.startswith(f"robo-rl data {action} ") for line in examples)


@pytest.mark.slow
def test_labels_must_fit(recorded):
    dataset = Dataset(recorded)
    entry = dataset.entries()[0]
    short = RewardLabels(_array([1.0]), _array([1.0]) > 0, "m", "w", "p")
    with pytest.raises(InvalidSetting, match="Labels and episode differ in length"):
        LabelSet(dataset, "progress").add(entry.identity, short)
    with pytest.raises(InvalidSetting, match="A valid label is not finite"):
        RewardLabels(_array([float("nan")] * entry.steps), _array([1.0] * entry.steps) > 0, "m", "w", "p")
    with pytest.raises(InvalidSetting, match="impossible name"):
        LabelSet(dataset, "../escape")
    with pytest.raises(UnknownName, match=r"Unknown label set 'progres'(.|\n)*robo-rl label .* --name progres makes it"):
        LabelSet.existing(dataset, "progres")


@pytest.mark.slow
def test_a_damaged_set_does_not_hide_the_rest(recorded, capsys):
    dataset = Dataset(recorded)
    for name in ("sound", "torn"):
        for entry in dataset.entries()[:2]:
            labels = RewardLabels(_array([0.5] * entry.steps), _array([1.0] * entry.steps) > 0, "m", "w", "p")
            LabelSet(dataset, name).add(entry.identity, labels)
    (recorded / "labels" / "torn.sqlite").write_bytes(b"no database at all" * 99)
    (recorded / "preferences" / "old.sqlite").write_bytes(b"no database at all" * 99)
    capsys.readouterr()
    assert dispatch(["data", "info", str(recorded)]) == 0
    said = capsys.readouterr().out
    assert "labels       sound 2 episodes, torn damaged: `robo-rl data verify` says how" in said
    assert "preferences  old damaged" in said and "episodes     6" in said


def test_append_moves_no_episode_away_that_cannot_be_read_now(recorded, monkeypatch, capsys):
    dataset = Dataset(recorded)
    entry = dataset.entries()[-1]
    dataset.catalogue.remove(entry.identity)  # as after a crash
    path = recorded / "episodes" / entry.file

    def closed(file, *arguments, **options):
        if os.fspath(file) == str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(file, *arguments, **options)

    opened = io.open
    again = ["record", TASK, "--policy", "random", "--episodes", "1", "--out", str(recorded), "--append"]
    with monkeypatch.context() as patched:
        patched.setattr(io, "open", closed)
        with pytest.raises(DatasetError, match=r"cannot be read now(.|\n)*PermissionError(.|\n)*look at its permissions"):
            dispatch(again)
    assert path.exists() and not [*(recorded / "quarantine").iterdir()] and len(dataset) == 5
    assert dispatch(again) == 0 and len(dataset) == 7


@pytest.mark.slow
def test_merging_tells_arguments_that_no_spec_has(recorded, capsys):
    """Cameras elsewhere, other light and masses have the same fingerprint; nothing compared them."""
    words = ["--environment.arguments.randomization", "visual", "--environment.arguments.action_repeat", "3", "--seed", "9"]
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "1", "--out", "varied", *words]) == 0
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "1", "--out", "plain", *words[2:]]) == 0
    capsys.readouterr()
    assert dispatch(["data", "merge", "plain", "varied", "--out", "both"]) == 0
    assert "remark: recorded with other randomization: default in plain; visual in varied" in capsys.readouterr().out
    assert dispatch(["data", "merge", "plain", "plain/../plain", "--out", "again"]) == 0
    assert "remark" not in capsys.readouterr().out
