"""A foreign file is data, never trusted: what leads elsewhere, unpacks absurdly or contradicts itself is refused."""

from __future__ import annotations

import json
import os

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from robo_datasets.conversion import export, import_dataset
from robo_datasets.formats.side_file import side_path
from robo_rl.entry_points import load
from robo_rl.errors import DatasetError, MissingExtra

HDF5 = {"d4rl": "rewards", "robomimic": "data/demo_0/rewards", "minari": "episode_0/rewards"}


@pytest.fixture
def exported(make, tmp_path):
    """Returns a function that exports a small dataset in a format and returns the format and the file or folder."""

    def export_as(name, *, keep_losses=False):
        form = load("formats", name)
        out = tmp_path / f"out{form.suffix}"
        export(form, make(), out, keep_losses=keep_losses)
        return form, out

    return export_as


def link_outside(file, path):
    del file[path]
    file[path] = h5py.ExternalLink("/etc/hostname", "/rewards")


def link_softly(file, path):
    file[f"{path}_too"] = h5py.SoftLink("/elsewhere")


def store_outside(file, path):
    del file[path]
    file.create_dataset(path, (4,), "f4", external=[("/dev/zero", 0, 16)])


def store_virtually(file, path):
    del file[path]
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource("/tmp/elsewhere.h5", "rewards", (4,))
    file.create_virtual_dataset(path, layout)


def declare_absurdly(file, path):
    del file[path]
    file.create_dataset(path, (1 << 50,), "f4", chunks=(1 << 20,), compression="gzip")


def hold_compounds(file, path):
    del file[path]
    file[path] = np.zeros(4, [("a", "f4"), ("b", "i4")])


def hold_references(file, path):
    file[f"{path}_too"] = np.array([file.ref] * 4, h5py.ref_dtype)


def hold_itself(file, path):
    group = file.create_group("loop")
    for index in range(200):
        group[f"again{index}"] = group


@pytest.mark.parametrize("name", HDF5)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (link_outside, "is a link"),
        (link_softly, "is a link"),
        (store_outside, "stored in other files"),
        (store_virtually, "stored in other files"),
        (declare_absurdly, "declares more data than it can hold"),
        (hold_compounds, "not of plain numbers"),
        (hold_references, "not of plain numbers"),
        (hold_itself, "more groups or arrays than it may"),
    ],
)
def test_a_hostile_hdf5_file(exported, tmp_path, name, change, message):
    form, out = exported(name)
    with h5py.File(out / "data" / "main_data.hdf5" if out.is_dir() else out, "a") as file:
        change(file, HDF5[name])
    with pytest.raises(DatasetError, match=message):
        import_dataset(form, out, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def edit_info(out, **changes):
    path = out / "meta" / "info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rename_feature(out, name):
    (out / "meta" / "robo_rl.json").unlink()
    features = json.loads((out / "meta" / "info.json").read_text())["features"]
    edit_info(out, features=features | {name: {"dtype": "video", "shape": [64, 64, 3], "names": None}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda out: edit_info(out, data_path="../../etc/passwd"), "has an unknown data_path"),
        (lambda out: edit_info(out, video_path="{video_key.__class__}/x.mp4"), "has an unknown video_path"),
        (lambda out: edit_info(out, codebase_version="v2.1"), "Only LeRobotDataset v3 is read"),
        (lambda out: edit_info(out, fps=0), "impossible frame rate"),
        (lambda out: rename_feature(out, "../../etc/passwd"), "impossible name"),
        (lambda out: rename_feature(out, "observation..images"), "impossible name"),
        (lambda out: rename_feature(out, "observation/images"), "impossible name"),
    ],
)
def test_a_lerobot_folder_cannot_lead_out_of_itself(exported, tmp_path, change, message):
    form, out = exported("lerobot")
    change(out)
    with pytest.raises(DatasetError, match=message):
        import_dataset(form, out, tmp_path / "back")


def test_a_linked_file_of_a_lerobot_folder(exported, tmp_path):
    form, out = exported("lerobot")
    data = out / "data" / "chunk-000" / "file-000.parquet"
    os.rename(data, tmp_path / "elsewhere.parquet")
    data.symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DatasetError, match="leads out of the folder"):
        import_dataset(form, out, tmp_path / "back")


def rewrite(out, change):
    path = out / "data" / "chunk-000" / "file-000.parquet"
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)


def repeated(table):
    """Ten million rows that are all the same, in a few kilobytes."""
    row = table.slice(0, 1).drop_columns(["observation.images.camera_wrist", "observation.images.camera_top"])
    return pyarrow.table({name: pyarrow.repeat(row.column(name)[0], 10_000_000) for name in ("action", "episode_index")})


def with_picture(table, content):
    name = "observation.images.camera_top"
    pictures = [{"bytes": content, "path": "frame.png"}] * len(table)
    return table.set_column(table.column_names.index(name), name, pyarrow.array(pictures, table.schema.field(name).type))


def with_texts(table):
    return table.set_column(table.column_names.index("next.reward"), "next.reward", pyarrow.array(["a"] * len(table)))


HUGE = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (60_000).to_bytes(4) * 2 + b"\x08\x02\x00\x00\x00"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(repeated, "declares more data than it can hold", marks=pytest.mark.slow),
        (lambda table: with_picture(table, HUGE), r"another size(.|\n)*60000 x 60000"),
        (lambda table: with_picture(table, b"\xff\xd8\xff"), "is not a PNG"),
        (with_texts, "contradicts meta/info.json"),
        (lambda table: table.drop_columns(["action"]), "cannot be read as lerobot"),
    ],
)
def test_a_hostile_parquet_file(exported, tmp_path, change, message):
    form, out = exported("lerobot")
    rewrite(out, change)
    with pytest.raises(DatasetError, match=message):
        import_dataset(form, out, tmp_path / "back")


def test_a_film_of_another_size(cells, tmp_path):
    from robo_datasets.formats.lerobot_video import Film, read_film

    with Film(tmp_path / "film.mp4", 10, 64, 64) as film:
        film.add(np.zeros((3, 64, 64, 3), np.uint8))
    assert read_film(tmp_path / "film.mp4", np.array([0.1, 0.2]), 10, (64, 64, 3)).shape == (2, 64, 64, 3)
    with pytest.raises(DatasetError, match=r"has another size(.|\n)*64 x 64"):
        read_film(tmp_path / "film.mp4", np.array([0, 0.1, 0.2]), 10, (32, 32, 3))
    with pytest.raises(DatasetError, match=r"has not all frames(.|\n)*2 from 0.100 s on"):
        read_film(tmp_path / "film.mp4", np.array([0.1, 0.2, 0.3]), 10, (64, 64, 3))


def forget_rows(file):
    del file["episodes/000000000/rows/policy_actions"]


def point_beyond(file):
    header = json.loads(bytes(file["episodes/000000000/header"][()]))
    header["first"]["policy_actions"] = 10**6
    del file["episodes/000000000/header"]
    file["episodes/000000000/header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)


def name_another_schema(file):
    header = json.loads(bytes(file["header"][()]))
    del file["header"]
    file["header"] = np.frombuffer(json.dumps(header | {"schema": "other"}).encode(), np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: link_outside(file, "header"), r"The side file(.|\n)*is a link(.|\n)*move out.hdf5.robo_rl.h5 away"),
        (lambda file: declare_absurdly(file, "header"), "declares more data than it can hold"),
        (name_another_schema, "another schema"),
        (forget_rows, r"is not a side file(.|\n)*policy_actions"),
        (point_beyond, "differ in length"),
        (lambda file: file.__delitem__("header"), "is not a side file"),
    ],
)
def test_a_hostile_side_file(exported, tmp_path, change, message):
    form, out = exported("robomimic", keep_losses=True)
    with h5py.File(side_path(out), "a") as file:
        change(file)
    with pytest.raises((DatasetError, Exception), match=message) as caught:
        import_dataset(form, out, tmp_path / "back")
    assert type(caught.value).__module__ == "robo_rl.errors"
    assert not (tmp_path / "back").exists()
    side_path(out).unlink()
    import_dataset(form, out, tmp_path / "back")


def test_without_pyarrow(make, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r'needs the package \'pyarrow\'(.|\n)*pip install "robo-rl\[formats\]"'):
        export(load("formats", "lerobot"), make(), tmp_path / "out")
