"""robo-rl data convert, as typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_cli.main import dispatch
from robo_datasets.dataset import Dataset
from robo_rl.errors import DatasetError, DatasetNotFound, InvalidSetting, UnknownName


@pytest.fixture
def recorded() -> Path:
    path = Path("data/reach")
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "2", "--out", str(path)]) == 0
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "out"), [("minari", "reach-v0"), ("robomimic", "r.hdf5"), ("d4rl", "d.hdf5"), ("lerobot", "l")]
)
def test_there_and_back(recorded, capsys, name, out):
    capsys.readouterr()
    assert dispatch(["data", "convert", str(recorded), "--to", name, "--out", out]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{name} cannot hold:\n  - ") and "(sources), interventions included: 2 of 2 episodes" in said
    assert said.index("cannot hold") < said.index("It is kept in") < said.index(f"2 episodes in {out}")
    assert dispatch(["data", "convert", out, "--out", "again"]) == 0
    assert "restored to the bit from the side file: 2 of 2 episodes" in capsys.readouterr().out
    pairs = [*zip(Dataset(recorded), Dataset(Path("again")), strict=True)]
    assert all((one.timestamps == other.timestamps).all() and one.metadata == other.metadata for one, other in pairs)


@pytest.mark.slow
def test_bare_and_an_environment(recorded, capsys):
    assert dispatch(["data", "convert", str(recorded), "--to", "d4rl", "--out", "d.hdf5", "--bare"]) == 0
    assert "It is kept in" not in capsys.readouterr().out and [path.name for path in Path().glob("d.*")] == ["d.hdf5"]
    assert dispatch(["data", "convert", "d.hdf5", "--from", "d4rl", "--environment", "robo/ArmReach-v0", "--out", "back"]) == 0
    said = capsys.readouterr().out
    assert "read as d4rl:" in said and "no real times: steps follow each other at the control period: 2 of 2 episodes" in said
    assert Dataset(Path("back")).spec == Dataset(recorded).spec
    capsys.readouterr()
    assert dispatch(["train", "offline-iql", "--dataset", "back", "--dry-run"]) == 0
    assert "name: robo/ArmReach-v0" in capsys.readouterr().out  # the card says what was given here


def test_what_cannot_be_converted(recorded, capsys):
    with pytest.raises(UnknownName, match=r"Unknown format 'minary'(.|\n)*did you mean 'minari'"):
        dispatch(["data", "convert", str(recorded), "--to", "minary", "--out", "x"])
    with pytest.raises(InvalidSetting, match=r"is a dataset of robo_rl(.|\n)*--to for such a dataset"):
        dispatch(["data", "convert", str(recorded), "--out", "x"])
    Path("elsewhere").mkdir()
    with pytest.raises(InvalidSetting, match="is no dataset of robo_rl"):
        dispatch(["data", "convert", "elsewhere", "--to", "d4rl", "--out", "x"])
    with pytest.raises(DatasetError, match="of no known format"):
        dispatch(["data", "convert", "elsewhere", "--out", "x"])
    with pytest.raises(DatasetNotFound, match="does not exist"):
        dispatch(["data", "convert", "nowhere", "--from", "d4rl", "--out", "x"])
    with pytest.raises(DatasetNotFound, match="nowhere does not exist"):
        dispatch(["data", "convert", "nowhere", "--to", "d4rl", "--out", "x"])
    for out in ("elsewhere", ".", "/", str(recorded)):
        capsys.readouterr()
        with pytest.raises(DatasetError, match="is there already"):
            dispatch(["data", "convert", str(recorded), "--to", "d4rl", "--out", out])
        assert capsys.readouterr().out == "", "before all episodes are read"


@pytest.mark.slow
def test_adjustments_as_typed(recorded, capsys):
    """Ranges, units and clipping are options of an import, and refused on the way out."""
    assert dispatch(["data", "convert", str(recorded), "--to", "robomimic", "--out", "r.hdf5", "--bare"]) == 0
    spec, capsys_before = Dataset(recorded).spec, capsys.readouterr()
    assert "robomimic cannot hold" in capsys_before.out
    name = spec.action.names[0]
    words = ["--action-ranges", name, "0.5", "-0.5", "--clip", "--observation-scales", "joint_position", "2"]
    assert dispatch(["data", "convert", "r.hdf5", "--out", "back", "--environment", "robo/ArmReach-v0", *words]) == 0
    said = capsys.readouterr().out
    assert "clipped in" in said and f"action {name}: 0.5 becomes -1, -0.5 becomes 1" in Dataset(Path("back")).card["remarks"]
    for before, after in zip(Dataset(recorded), Dataset(Path("back")), strict=True):
        assert after.policy_actions[:, 0] == pytest.approx(-2 * before.actions[:, 0], abs=1e-5)
        assert after.actions == pytest.approx(after.policy_actions.clip(-1, 1))
        assert after.observations["joint_position"] == pytest.approx(2 * before.observations["joint_position"], rel=1e-5)
    with pytest.raises(InvalidSetting, match="adjusted when they come in"):
        dispatch(["data", "convert", str(recorded), "--to", "d4rl", "--out", "x", "--clip"])


@pytest.mark.slow
def test_degrees_taken_for_radians_are_told(recorded, capsys):
    """174.8 "rad" of a joint was accepted, and no command said a word."""
    assert dispatch(["data", "convert", str(recorded), "--to", "robomimic", "--out", "r.hdf5", "--bare"]) == 0
    words = ["--environment", "robo/ArmReach-v0", "--out"]
    capsys.readouterr()
    assert dispatch(["data", "convert", "r.hdf5", *words, "sound"]) == 0
    assert "another unit" not in capsys.readouterr().out
    degrees = ["--observation-scales", "joint_position", "57.29578"]
    assert dispatch(["data", "convert", "r.hdf5", *words, "degrees", *degrees]) == 0
    said = capsys.readouterr().out
    assert "observation joint_position reaches" in said and "(unit rad): another unit?" in said
    assert dispatch(["data", "info", "degrees"]) == 0
    assert "observation joint_position reaches" in capsys.readouterr().out


@pytest.mark.slow
def test_pictures_are_exported_without_loss(capsys):
    """There was no option for it."""
    words = ["--environment.arguments.cameras", "[front]", "--environment.arguments.image_size", "64"]
    assert dispatch(["record", "robo/ArmReach-v0", "--episodes", "1", "--out", "seen", *words]) == 0
    assert dispatch(["data", "convert", "seen", "--to", "lerobot", "--out", "l", "--bare", "--exact-pictures"]) == 0
    assert not [*Path("l").glob("videos/**/*.mp4")]
    assert dispatch(["data", "convert", "l", "--out", "back"]) == 0
    (before,), (after,) = Dataset(Path("seen")), Dataset(Path("back"))
    (camera,) = Dataset(Path("seen")).spec.observation.subset("image")
    assert (after.observations[camera][: len(after)] == before.observations[camera][: len(after)]).all()
