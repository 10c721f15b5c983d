"""Conversion of many episodes: HDF5 gets slower with every array that is open, so hardly any may be."""

import h5py
import pytest

import robo_datasets.dataset
from robo_datasets.conversion import export, import_dataset
from robo_datasets.dataset import Dataset
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
