"""Foreign files that contradict themselves, are cut, or would take too much: said or refused, by file and episode."""

import json
import os
import shutil
from contextlib import suppress

import av
import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from robo_datasets.conversion import export, import_dataset, losses, recognized
from robo_datasets.dataset import Dataset
from robo_datasets.formats.lerobot_video import read_film
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError

LEROBOT, ROBOMIMIC, MINARI, D4RL = (load("formats", name) for name in ("lerobot", "robomimic", "minari", "d4rl"))


@pytest.fixture
def exported(make, tmp_path):
    """Returns a function that exports three small episodes of 4, 1 and 6 steps without a side file."""

    def export_as(form, **settings):
        out = tmp_path / f"out{form.suffix}"
        export(form, make(**settings), out, keep_losses=False)
        return out

    return export_as


@pytest.fixture
def filmed(cells, tmp_path):
    """A LeRobotDataset with a film: one episode of 8 steps, 64 x 64 pixels."""
    camera = cells["CAMERAS"][0]
    spec = cells["spec"]((*cells["FLAT"], cells["replace"](camera, shape=(64, 64, 3))))
    dataset = cells["dataset"](tmp_path / "seen", spec, [cells["episode"](spec, 0, 8)])
    export(LEROBOT, dataset, tmp_path / "film", keep_losses=False)
    return tmp_path / "film"


def notes_of(form, out, tmp_path):
    return "\n".join(import_dataset(form, out, tmp_path / "back"))


# ------------------------------------------------------------------------------------------------ contradictions


def robomimic_changes(change):
    def changed(path):
        with h5py.File(path, "r+") as file:
            change(file["data/demo_0"])

    return changed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda demo: demo["next_obs/joint_position"].__setitem__((1, 0), 7.0),
            "next_obs/joint_position is not the observation",
        ),
        (lambda demo: demo["dones"].__setitem__(1, 1), "`dones` is set before the last step"),
        (lambda demo: demo.attrs.__setitem__("num_samples", 9), "`num_samples` is not the number of actions"),
    ],
)
def test_robomimic_contradictions_are_said(exported, tmp_path, change, said):
    out = exported(ROBOMIMIC)
    robomimic_changes(change)(out)
    notes = notes_of(ROBOMIMIC, out, tmp_path)
    assert said in notes and "1 of 3 episodes" in notes
    assert [len(episode) for episode in Dataset(tmp_path / "back")] == [4, 1, 6]


@pytest.mark.slow
def test_a_sound_robomimic_file_has_no_contradiction(exported, tmp_path):
    notes = notes_of(ROBOMIMIC, exported(ROBOMIMIC), tmp_path)
    assert not any(word in notes for word in ("next_obs", "is set before", "num_samples"))


def test_d4rl_rows_that_do_not_join_are_said(exported, tmp_path, cells):
    out = exported(D4RL, spec=cells["spec"](cells["FLAT"]))
    with h5py.File(out, "r+") as file:
        file["next_observations"][1] = 9.0
    assert "cut where `next_observations` is not the observation of the next row: 2 of 4" in notes_of(D4RL, out, tmp_path)


def test_an_early_end_in_minari_is_said(exported, tmp_path):
    out = exported(MINARI)
    with h5py.File(out / "data" / "main_data.hdf5", "r+") as file:
        file["episode_2/terminations"][1] = True
    assert "an end is marked before the last step: the episode goes on: 1 of 3" in notes_of(MINARI, out, tmp_path)


def test_float64_that_becomes_float32_is_said(exported, tmp_path):
    out = exported(MINARI)
    with h5py.File(out / "data" / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            values = episode["rewards"][()].astype(np.float64)
            del episode["rewards"]
            episode["rewards"] = values
    assert "rewards are float64 in the file, and kept as float32: 3 of 3" in notes_of(MINARI, out, tmp_path)


@pytest.mark.slow
def test_a_lerobot_folder_without_tasks_says_so(exported, tmp_path):
    out = exported(LEROBOT)
    (out / "meta" / "robo_rl.json").unlink()
    (out / "meta" / "tasks.parquet").unlink()
    assert "meta/tasks.parquet is missing: the episodes have no instructions" in notes_of(LEROBOT, out, tmp_path)


def test_a_wrong_number_of_frames_is_said(exported, tmp_path):
    out = exported(LEROBOT)
    info = json.loads((out / "meta" / "info.json").read_text())
    assert info["total_frames"] == 11
    (out / "meta" / "info.json").write_text(json.dumps(info | {"total_frames": 99}))
    assert "says 99 frames, the data has 11: all of the data is taken" in notes_of(LEROBOT, out, tmp_path)


@pytest.mark.parametrize("missing", ["data/demo_2/obs", "data/demo_2/obs/joint_position"])
def test_a_demonstration_without_an_observation_is_named(exported, tmp_path, missing):
    """It ended with KeyError: 'data/demo_2/obs/joint_position'."""
    out = exported(ROBOMIMIC)
    with h5py.File(out, "r+") as file:
        del file[missing]
    with pytest.raises(DatasetError, match=r"^data/demo_2 has no obs/\w+, as other episodes of the file have\.(.|\n)*leave"):
        import_dataset(ROBOMIMIC, out, tmp_path / "back")


@pytest.mark.parametrize("missing", ["observations/joint_position", "rewards", "truncations", "actions"])
def test_a_minari_episode_without_an_array_is_named(exported, tmp_path, missing):
    out = exported(MINARI)
    with h5py.File(out / "data" / "main_data.hdf5", "r+") as file:
        del file["episode_1"][missing]
    with pytest.raises(DatasetError, match=rf"^episode_1 has no {missing}, as other episodes"):
        import_dataset(MINARI, out, tmp_path / "back")


def test_observations_that_the_first_demonstration_lacks(exported, tmp_path):
    out = exported(ROBOMIMIC)
    with h5py.File(out, "r+") as file:
        del file["data/demo_0/obs/joint_position"]
    assert "not read: obs/joint_position, which data/demo_0 lacks" in notes_of(ROBOMIMIC, out, tmp_path)


def test_hdf5_metadata_that_promise_more_are_told(exported, tmp_path):
    out = exported(ROBOMIMIC)
    with h5py.File(out, "r+") as file:
        del file["data/demo_2/actions"]
    notes = notes_of(ROBOMIMIC, out, tmp_path)
    assert "`total` says 11 steps, the data has 5" in notes and "demonstrations without an action are left out: 1" in notes


def test_minari_metadata_that_promise_more_are_told(exported, tmp_path):
    out = exported(MINARI)
    with h5py.File(out / "data" / "main_data.hdf5", "r+") as file:
        del file["episode_2"]
        file["episode_0"].attrs["total_steps"] = 9
    notes = notes_of(MINARI, out, tmp_path)
    assert "metadata.json says 3 episodes, the data has 2" in notes and "says 11 steps, the data has 5" in notes
    assert "`total_steps` says another length of 1 episodes than the data has" in notes


def test_several_texts_in_an_episode_of_minari_are_told(exported, tmp_path):
    out = exported(MINARI, instruction=None)
    with h5py.File(out / "data" / "main_data.hdf5", "r+") as file:
        for episode in file.values():
            words = ["push"] * (len(episode["actions"]) + 1)
            words[-1] = "pull" if len(words) > 5 else "push"
            episode["observations/mission"] = words
            episode.attrs["robo_rl"] = "{}"
    assert "several tasks in one episode: the first is taken as its instruction: 1 of 3" in notes_of(MINARI, out, tmp_path)


@pytest.mark.parametrize("form", [ROBOMIMIC, D4RL], ids=lambda form: form.name)
def test_actions_of_another_shape_are_refused_by_name(exported, tmp_path, cells, form):
    out = exported(form, spec=cells["spec"](cells["FLAT"]))
    with h5py.File(out, "r+") as file:
        for group in [file] if form is D4RL else file["data"].values():
            values = group["actions"][:, 0].astype(np.float32)
            del group["actions"]
            group["actions"] = values
    with pytest.raises(DatasetError, match="Actions are not a vector for each step"):
        import_dataset(form, out, tmp_path / "back")


# ------------------------------------------------------------------------------------------------ damage


@pytest.mark.parametrize("size", [0, 30, 300, 600, 1000, 1500])
def test_a_film_that_is_cut_is_one_error(filmed, tmp_path, size):
    (film,) = filmed.glob("videos/*/*/*.mp4")
    os.truncate(film, min(size, film.stat().st_size - 1))
    with pytest.raises(DatasetError, match=r"file-000\.mp4 (cannot be decoded|has not all frames|has another size)"):
        import_dataset(LEROBOT, filmed, tmp_path / "back")


def test_a_film_that_names_another_film_is_refused(filmed, tmp_path):
    (film,) = filmed.glob("videos/*/*/*.mp4")
    other = tmp_path / "elsewhere.mp4"
    shutil.move(film, other)
    (film.parent / "link.mp4").symlink_to(other)
    film.write_text("ffconcat version 1.0\nfile link.mp4\n")
    with av.open(str(film), format="concat"):
        pass
    with pytest.raises(DatasetError, match="cannot be decoded"):
        read_film(film, np.arange(8) / 20, 20, (64, 64, 3))


@pytest.mark.parametrize("name", ["data/chunk-000/file-000.parquet", "meta/tasks.parquet", "meta/info.json"])
def test_a_pipe_in_a_lerobot_folder_is_refused(exported, tmp_path, name):
    out = exported(LEROBOT)
    (out / name).unlink()
    os.mkfifo(out / name)
    with pytest.raises(DatasetError, match=rf"{name.rsplit('/')[-1]} is not a file"):
        import_dataset(LEROBOT, out, tmp_path / "back")


def test_an_unfinished_lerobot_recording_names_file_and_remedy(exported, tmp_path):
    out = exported(LEROBOT)
    data = out / "data" / "chunk-000" / "file-000.parquet"
    os.truncate(data, data.stat().st_size - 9)
    with pytest.raises(DatasetError, match=r"(?s)file-000\.parquet is not a whole Parquet file.*finalize\(\)"):
        import_dataset(LEROBOT, out, tmp_path / "back")


def test_films_without_their_places_name_the_remedy(filmed, tmp_path):
    shutil.rmtree(filmed / "meta" / "episodes")
    with pytest.raises(DatasetError, match=r"(?s)has no meta/episodes.*finalize\(\)"):
        import_dataset(LEROBOT, filmed, tmp_path / "back")


def test_a_cut_hdf5_file_is_called_so(exported):
    out = exported(ROBOMIMIC)
    os.truncate(out, out.stat().st_size // 2)
    with pytest.raises(DatasetError, match=r"(?s)is an HDF5 file that cannot be read.*truncated.*copy it again"):
        recognized(out)


@pytest.mark.slow
def test_no_flipped_byte_of_hdf5_is_a_traceback(exported, tmp_path):
    out = exported(ROBOMIMIC)
    content = out.read_bytes()
    for place in range(0, min(len(content), 4096), 29):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        out.write_bytes(changed)
        with suppress(DatasetError):
            recognized(out)


@pytest.mark.parametrize(
    ("form", "change", "said"),
    [
        (ROBOMIMIC, lambda f: f["data/demo_2/actions"].__setitem__((3, 0), np.nan), "demo_2, row 3"),
        (MINARI, lambda f: f["episode_1/actions"].__setitem__((0, 0), np.nan), "episode_1, row 0"),
        (ROBOMIMIC, lambda f: shorten(f["data/demo_2"], "rewards"), r"Episode demo_2 of .*out\.hdf5"),
        (MINARI, lambda f: shorten(f["episode_2"], "rewards"), r"Episode episode_2 of .*out"),
    ],
)
def test_a_bad_episode_is_named(exported, tmp_path, form, change, said):
    out = exported(form)
    with h5py.File(out if form.suffix else out / "data" / "main_data.hdf5", "r+") as file:
        change(file)
    with pytest.raises(DatasetError, match=said):
        import_dataset(form, out, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def shorten(group, name):
    values = group[name][:-1]
    del group[name]
    group[name] = values


# ------------------------------------------------------------------------------------------------ too much


@pytest.mark.slow
def test_a_table_of_very_many_tasks_is_refused(exported, tmp_path):
    out = exported(LEROBOT)
    same = pyarrow.array(np.zeros(20_000_000, np.int64))
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(20_000_000, np.int32)), ["reach"])
    table = pyarrow.table({"task_index": same, "__index_level_0__": words})
    pyarrow.parquet.write_table(table, out / "meta" / "tasks.parquet")
    with pytest.raises(DatasetError, match=r"tasks\.parquet declares more data than it can hold"):
        import_dataset(LEROBOT, out, tmp_path / "back")


@pytest.mark.slow
def test_lists_longer_than_described_are_refused(exported, tmp_path):
    out = exported(LEROBOT)
    path = out / "data" / "chunk-000" / "file-000.parquet"
    table = pyarrow.parquet.read_table(path)
    values = pyarrow.array(np.zeros(11 * 200_000, np.float32))
    lists = pyarrow.ListArray.from_arrays(pyarrow.array(np.arange(12, dtype=np.int32) * 200_000), values)
    pyarrow.parquet.write_table(table.set_column(table.column_names.index("action"), "action", lists), path)
    with pytest.raises(DatasetError, match=r"(?s)holds longer lists than it may.*2200000 values of action.* in 11 rows"):
        import_dataset(LEROBOT, out, tmp_path / "back")


# ------------------------------------------------------------------------------------------------ times


def test_wall_time_counts_from_the_beginning_of_an_episode(make, tmp_path):
    times = 2.6e6 + 0.008 * np.arange(5)
    dataset, out = make(steps=(4,), timestamps=times), tmp_path / "out"
    assert any("the clock's time at the start of an episode" in line for line in losses(LEROBOT, dataset))
    export(LEROBOT, dataset, out)
    column = pyarrow.parquet.read_table(out / "data" / "chunk-000" / "file-000.parquet").column("observation.wall_time")
    as_their_loader = column.to_numpy().astype(np.float32)
    np.testing.assert_allclose(as_their_loader, [0, 0.008, 0.016, 0.024], atol=1e-6)
    import_dataset(LEROBOT, out, tmp_path / "back")
    (episode,) = Dataset(tmp_path / "back")
    assert episode.timestamps.tobytes() == times.tobytes()
