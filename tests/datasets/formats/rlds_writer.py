"""Writes a tiny dataset in RLDS with TensorFlow Datasets itself, for rlds_fixture; needs an environment of its own.

    python -m venv tfds && tfds/bin/pip install tensorflow-cpu tensorflow-datasets
    tfds/bin/python tests/datasets/formats/rlds_writer.py tests/datasets/formats/rlds_fixture

It writes expected.npz, too: what TensorFlow Datasets reads from its own files.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

LENGTHS = (4, 3, 5)
FEATURES = tfds.features
STEP = FEATURES.FeaturesDict({
    "observation": FEATURES.FeaturesDict({
        "image": FEATURES.Image(shape=(8, 10, 3), dtype=np.uint8, encoding_format="png"),
        "wrist_image": FEATURES.Image(shape=(8, 10, 3), dtype=np.uint8, encoding_format="jpeg"),
        "state": FEATURES.Tensor(shape=(4,), dtype=np.float32),
        "pose": FEATURES.Tensor(shape=(2, 3), dtype=np.float64),
        "packed": FEATURES.Tensor(shape=(3,), dtype=np.float32, encoding=FEATURES.Encoding.ZLIB),
        "gripper_open": FEATURES.Scalar(dtype=np.bool_),
        "depth": FEATURES.Image(shape=(8, 10, 1), dtype=np.uint16, encoding_format="png"),
        "natural_language_instruction": FEATURES.Text(),
    }),
    "action": FEATURES.FeaturesDict({
        "world_vector": FEATURES.Tensor(shape=(3,), dtype=np.float32),
        "gripper": FEATURES.Scalar(dtype=np.float32),
        "terminate": FEATURES.Tensor(shape=(2,), dtype=np.int32),
    }),
    "reward": FEATURES.Scalar(dtype=np.float32),
    "discount": FEATURES.Scalar(dtype=np.float32),
    "is_first": FEATURES.Scalar(dtype=np.bool_),
    "is_last": FEATURES.Scalar(dtype=np.bool_),
    "is_terminal": FEATURES.Scalar(dtype=np.bool_),
})  # fmt: skip


def step(random, index, count, episode):
    flat = random.integers(0, 256, (2, 2, 3), np.uint8).repeat(4, 0).repeat(5, 1)  # large cells, so that JPEG is near
    return {
        "observation": {
            "image": random.integers(0, 256, (8, 10, 3), np.uint8),
            "wrist_image": flat,
            "state": random.normal(size=4).astype(np.float32),
            "pose": random.normal(size=(2, 3)),
            "packed": random.normal(size=3).astype(np.float32),
            "gripper_open": bool(index % 2),
            "depth": random.integers(0, 1 << 16, (8, 10, 1), np.uint16),
            "natural_language_instruction": f"pick up cube {episode}",
        },
        "action": {
            "world_vector": random.uniform(-1, 1, 3).astype(np.float32),
            "gripper": np.float32(random.uniform()),
            "terminate": np.array([index == count - 1, 7], np.int32),
        },
        "reward": np.float32(index == count - 2),
        "discount": np.float32(1.0),
        "is_first": index == 0,
        "is_last": index == count - 1,
        "is_terminal": index == count - 1 and episode == 0,
    }


class Tiny(tfds.core.GeneratorBasedBuilder):
    """Three episodes."""

    VERSION = tfds.core.Version("1.0.0")
    name = "tiny"

    def _info(self):
        features = FEATURES.FeaturesDict({
            "steps": FEATURES.Dataset(STEP),
            "episode_metadata": FEATURES.FeaturesDict({"file_path": FEATURES.Text()}),
        })  # fmt: skip
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        random = np.random.default_rng(0)
        for episode, count in enumerate(LENGTHS):
            steps = [step(random, index, count, episode) for index in range(count)]
            yield episode, {"steps": steps, "episode_metadata": {"file_path": f"episode {episode}"}}


def flat(value, name=""):
    if isinstance(value, dict):
        return {key: each for part, inner in value.items() for key, each in flat(inner, f"{name}/{part}".strip("/")).items()}
    return {name: value}


if __name__ == "__main__":
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        builder = Tiny(data_dir=folder)
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=2))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(builder.data_dir, out)
        expected = {}
        for number, episode in enumerate(tfds.as_numpy(builder.as_dataset(split="train", shuffle_files=False))):
            rows = [flat(each) for each in episode["steps"]]
            for name in rows[0]:
                expected[f"{number}/{name}"] = np.array([row[name] for row in rows])
                if expected[f"{number}/{name}"].dtype == object:
                    expected[f"{number}/{name}"] = expected[f"{number}/{name}"].astype("S")
        np.savez_compressed(out / "expected.npz", **expected)
