"""Runs where lerobot is installed: `read FOLDER` says what LeRobotDataset finds, `write FOLDER` lets it make a dataset."""

import importlib.util
import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
if importlib.util.find_spec("torchvision_without_operators"):  # docs/data/dataset-formats.md says why
    importlib.import_module("torchvision_without_operators")

import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset


def read(folder: Path) -> None:
    dataset = LeRobotDataset("test/exported", root=folder, video_backend="pyav")
    frames = []
    for index in range(len(dataset)):
        item = dataset[index]
        numbers = {
            key: np.asarray(item[key]).reshape(-1).tolist()
            for key in item
            if not hasattr(item[key], "ndim") or item[key].ndim < 3
        }
        numbers |= {key: np.asarray(item[key]).mean((1, 2)).tolist() for key in dataset.meta.camera_keys}
        frames.append(numbers)
    windows = LeRobotDataset(
        "test/exported", root=folder, video_backend="pyav", delta_timestamps={"action": [0, 1 / dataset.fps]}
    )
    facts = {"frames": frames, "fps": dataset.fps, "episodes": dataset.num_episodes, "stats": sorted(dataset.meta.stats)}
    facts |= {"mean": dataset.meta.stats["action"]["mean"].tolist(), "window": list(windows[0]["action"].shape)}
    facts |= {"task_types": sorted({type(item["task"][0]).__name__ for item in frames})}
    print(json.dumps(facts))


def write(folder: Path) -> None:
    features = {
        "observation.state": {"dtype": "float32", "shape": (3,), "names": ["Shoulder.pos", "elbow.pos", "wrist.pos"]},
        "observation.images.Top": {"dtype": "video", "shape": (64, 96, 3), "names": ["height", "width", "channels"]},
        "observation.images.side": {"dtype": "image", "shape": (16, 20, 3), "names": ["height", "width", "channels"]},
        "action": {"dtype": "float32", "shape": (2,), "names": ["x", "y"]},
        "next.reward": {"dtype": "float32", "shape": (1,), "names": None},
        "next.done": {"dtype": "bool", "shape": (1,), "names": None},
        "next.success": {"dtype": "bool", "shape": (1,), "names": None},
    }
    dataset = LeRobotDataset.create("test/written", 10, features, root=folder, robot_type="arm", vcodec="h264")
    for episode in range(3):
        for step in range(4 + episode):
            is_last = step == 3 + episode
            frame = {
                "observation.state": np.array([episode, step, 0.5], np.float32),
                "observation.images.Top": np.full((64, 96, 3), 60 * episode + 10 * step, np.uint8),
                "observation.images.side": np.full((16, 20, 3), [episode, step, 7], np.uint8),
                "action": np.array([10.0 * step, -5.0 * episode], np.float32),
                "next.reward": np.array([float(is_last)], np.float32),
                "next.done": np.array([is_last]),
                "next.success": np.array([is_last and episode > 0]),
                "task": "stack the blöcks" if episode else "push",
            }
            dataset.add_frame(frame)
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()


if __name__ == "__main__":
    {"read": read, "write": write}[sys.argv[1]](Path(sys.argv[2]))
