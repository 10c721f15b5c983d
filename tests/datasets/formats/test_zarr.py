"""Zarr replay buffers as diffusion policy and UMI lay them out; stores that run code or lie are refused."""

import json
import zipfile

import numpy as np
import pytest
import zarr
from imagecodecs.numcodecs import Jpegxl, register_codecs
from numcodecs import Blosc, Pickle

from robo_datasets.conversion import import_dataset, recognized
from robo_datasets.dataset import Dataset
from robo_datasets.formats.zarr_buffer import FORMAT
from robo_rl.errors import DatasetError

RANDOM = np.random.default_rng(0)
LENGTHS = (5, 3)
ROWS = sum(LENGTHS)


def written(store, arrays, **codecs):
    """Writes a replay buffer as diffusion policy's ReplayBuffer does: zarr 2, Blosc, episodes one behind the other."""
    root = zarr.open_group(store, mode="w", zarr_format=2)
    data, meta = root.create_group("data"), root.create_group("meta")
    for name, values in arrays.items():
        chunks = (1 if values.ndim == 4 else ROWS, *values.shape[1:])
        packer = codecs.get(name, Blosc("zstd", clevel=5))
        data.create_array(name, shape=values.shape, chunks=chunks, dtype=values.dtype, compressors=packer)[:] = values
    meta.create_array("episode_ends", data=np.cumsum(LENGTHS).astype(np.int64))


def pusht():
    """Returns arrays as in pusht_cchi_v7_replay.zarr: pictures are float32 from 0 to 255."""
    return {
        "img": RANDOM.integers(0, 256, (ROWS, 16, 16, 3)).astype(np.float32),
        "state": RANDOM.normal(size=(ROWS, 5)).astype(np.float32),
        "action": RANDOM.uniform(0, 512, (ROWS, 2)).astype(np.float32),
    }


def test_diffusion_policys_buffer_is_read(tmp_path):
    arrays = pusht()
    written(str(tmp_path / "pusht.zarr"), arrays)
    assert recognized(tmp_path / "pusht.zarr").name == "zarr"
    notes = "\n".join(import_dataset(FORMAT, tmp_path / "pusht.zarr", tmp_path / "back"))
    assert "img: pictures of floating point become uint8" in notes and "declares no limits of actions" in notes
    back = Dataset(tmp_path / "back")
    assert back.spec.observation["img"].role == "image" and back.spec.action.high == tuple(arrays["action"].max(0).tolist())
    episodes = [*back]
    assert [len(each) for each in episodes] == [4, 2], "the last action of each has no observation after it"
    np.testing.assert_array_equal(episodes[1].observations["img"], arrays["img"][5:8].astype(np.uint8))
    np.testing.assert_array_equal(episodes[1].observations["state"], arrays["state"][5:8])
    physical = [back.spec.action.to_physical(action) for action in episodes[1].actions]
    np.testing.assert_allclose(physical, arrays["action"][5:7], atol=1e-4)


def test_umis_zip_is_read(tmp_path):
    """UMI packs pictures in JPEG XL into a zip file, and has poses where others have actions."""
    register_codecs(verbose=False)
    arrays = {
        "camera0_rgb": np.full((ROWS, 32, 32, 3), 90, np.uint8),
        "robot0_eef_pos": RANDOM.normal(size=(ROWS, 3)).astype(np.float32),
        "robot0_eef_rot_axis_angle": RANDOM.normal(size=(ROWS, 3)).astype(np.float32),
        "robot0_gripper_width": RANDOM.uniform(0, 0.08, (ROWS, 1)).astype(np.float32),
    }
    with zarr.storage.ZipStore(tmp_path / "dataset.zarr.zip", mode="w") as store:
        written(store, arrays, camera0_rgb=Jpegxl(level=99))
    assert recognized(tmp_path / "dataset.zarr.zip").name == "zarr"
    notes = "\n".join(import_dataset(FORMAT, tmp_path / "dataset.zarr.zip", tmp_path / "back"))
    assert "the next pose and width of each gripper are the actions" in notes
    back = Dataset(tmp_path / "back")
    first = next(iter(back))
    assert back.spec.action.size == 7 and np.abs(first.observations["camera0_rgb"].astype(int) - 90).max() <= 3
    moved = [back.spec.action.to_physical(action)[:3] for action in first.actions]
    np.testing.assert_allclose(moved, arrays["robot0_eef_pos"][1:5], atol=1e-5)


def changed(tmp_path, path, **changes):
    """Returns a store of which the metadata of an array were changed."""
    written(str(tmp_path / "it.zarr"), pusht())
    file = tmp_path / "it.zarr" / path / ".zarray"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return tmp_path / "it.zarr"


@pytest.mark.parametrize(
    ("path", "changes", "words"),
    [
        ("data/action", {"filters": [Pickle().get_config()]}, "codec that is not taken"),
        ("data/state", {"compressor": {"id": "unknown"}}, "codec that is not taken"),
        ("data/state", {"dtype": "|O"}, "plain numbers"),
        ("data/state", {"shape": [10**12, 5]}, "declares more than it can hold"),
        ("data/state", {"shape": [-1, 5]}, "plain numbers"),
        ("data/state", {"shape": "many"}, "damaged"),
        ("data/state", {"shape": [3, 5]}, "do not fit"),
        ("meta/episode_ends", {"shape": [1, 2]}, r"do not fit|cannot be read"),
    ],
)
def test_stores_that_lie_are_refused(tmp_path, path, changes, words):
    with pytest.raises(DatasetError, match=words):
        FORMAT.read(changed(tmp_path, path, **changes))


def test_a_link_in_a_store_is_refused(tmp_path):
    written(str(tmp_path / "it.zarr"), pusht())
    (tmp_path / "it.zarr" / "data" / "other").symlink_to("/etc")
    with pytest.raises(DatasetError, match="is a link"):
        FORMAT.read(tmp_path / "it.zarr")


def test_a_zip_bomb_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "it.zarr.zip", "w", zipfile.ZIP_BZIP2) as packed:
        packed.writestr("meta/episode_ends/.zarray", "{}")
        packed.writestr("data/action/0.0", bytes(1 << 24))
    with pytest.raises(DatasetError, match="unpacks to more"):
        FORMAT.read(tmp_path / "it.zarr.zip")


def test_a_store_without_actions_says_what_it_needs(tmp_path):
    arrays = pusht()
    del arrays["action"]
    written(str(tmp_path / "it.zarr"), arrays)
    with pytest.raises(DatasetError, match="no actions"):
        FORMAT.read(tmp_path / "it.zarr")
