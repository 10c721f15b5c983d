"""Conversion of many episodes: HDF5 gets slower with every array that is open, so hardly any may be."""

import h5py
import pyarrow.parquet as pq
import pytest

import robo_datasets.dataset
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
from robo_datasets.formats import lerobot_writer
from robo_rl.entry_points import load

MOST_OPEN = 40
"""Arrays and groups of one episode, in two files."""


@pytest.fixture
def open_nodes(monkeypatch):
    """Counts what is open in HDF5 whenever an episode of ours is read or written."""
    counts = []

    def counted(name):
        function = getattr(robo_datasets.dataset, name)

        def counting(*values, **named):
            counts.append(h5py.h5f.get_obj_count(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_DATASET | h5py.h5f.OBJ_GROUP))
            return function(*values, **named)

        monkeypatch.setattr(robo_datasets.dataset, name, counting)

    counted("read_episode")
    counted("write_episode")
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minari", "robomimic"])
def test_conversion_keeps_few_arrays_open(make, tmp_path, open_nodes, name):
    form, dataset = load("formats", name), make(steps=(2,) * 30)
    out = tmp_path / f"out{form.suffix}"
    open_nodes.clear()
    export(form, dataset, out)
    assert len(open_nodes) == 60 and max(open_nodes) <= MOST_OPEN
    open_nodes.clear()
    import_dataset(form, out, tmp_path / "back")
    assert len(open_nodes) == 30 and max(open_nodes) <= MOST_OPEN
    assert len(Dataset(tmp_path / "back")) == 30


@pytest.mark.slow
def test_lerobot_export_holds_few_rows_of_episodes(make, tmp_path, monkeypatch):
    """Each has 80 KB of statistics in memory."""
    form, dataset = load("formats", "lerobot"), make(steps=(2,) * 10)
    export(form, dataset, tmp_path / "whole")
    monkeypatch.setattr(lerobot_writer, "ROWS_HELD", 3)
    export(form, dataset, tmp_path / "parts")
    (whole,), (parts,) = ([*(tmp_path / name).glob("meta/episodes/*/*.parquet")] for name in ("whole", "parts"))
    assert pq.read_table(parts).equals(pq.read_table(whole)) and pq.read_table(parts).num_rows == 10
    assert [pq.ParquetFile(parts).metadata.row_group(number).num_rows for number in range(4)] == [3, 3, 3, 1]
    import_dataset(form, tmp_path / "parts", tmp_path / "back")
    assert [entry.steps for entry in Dataset(tmp_path / "back").entries()] == [2] * 10
