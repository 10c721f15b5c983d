"""Peer of `lerobot_training`; runs in LeRobot's environment as a script, so it imports nothing of ours.

python lerobot_rewriting.py videos|pictures SOURCE OUT      read a dataset and write it with LeRobot's own writer
python lerobot_rewriting.py act DATASET RUN                 print an action of the policy that LeRobot's training saved
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def opened(folder: str) -> Any:
    """Return LeRobot's dataset of a folder."""
    datasets: Any = importlib.import_module("lerobot.datasets.lerobot_dataset")
    return datasets.LeRobotDataset("robo_rl/exported", root=folder, video_backend="pyav")


def rewrite(source: str, out: str, *, as_videos: bool) -> None:
    """Write a dataset again, frame by frame: states, actions, tasks and pictures, as a recording of a served robot."""
    given = opened(source)
    names = [name for name in given.features if name.startswith(("observation", "action")) and name != "observation.wall_time"]
    features = {name: dict(given.features[name]) for name in names}
    for name in given.meta.camera_keys:
        features[name]["dtype"] = "video" if as_videos else "image"
    made = type(given).create("robo_rl/written", given.fps, features, root=out, robot_type="robo_rl", vcodec="h264")
    for index in range(len(given)):
        item = given[index]
        cameras = given.meta.camera_keys
        frame = {name: np.asarray(item[name]).reshape(features[name]["shape"]) for name in names if name not in cameras}
        for name in cameras:
            frame[name] = np.asarray(255 * item[name].permute(1, 2, 0)).round().astype(np.uint8)
        made.add_frame({**frame, "task": item["task"]})
        if index + 1 == len(given) or int(given[index + 1]["episode_index"]) != int(item["episode_index"]):
            made.save_episode(parallel_encoding=False)
    made.finalize()


def act(source: str, run: str) -> None:
    """Print the action with which a policy that LeRobot trained answers the first frame of a dataset.

    Args:
        source: Folder of the dataset.
        run: Folder of LeRobot's training.
    """
    torch: Any = importlib.import_module("torch")
    policies: Any = importlib.import_module("lerobot.policies.act.modeling_act")
    factory: Any = importlib.import_module("lerobot.policies.factory")
    folder = Path(run) / "checkpoints" / "last" / "pretrained_model"
    policy = policies.ACTPolicy.from_pretrained(folder)
    before, after = factory.make_pre_post_processors(policy.config, pretrained_path=str(folder))
    item = opened(source)[0]
    with torch.no_grad():
        found = after(policy.select_action(before({name: item[name] for name in policy.config.input_features})))
    print(json.dumps([round(float(value), 4) for value in found.reshape(-1)]))


if __name__ == "__main__":
    what, first, second = sys.argv[1:]
    if what == "act":
        act(first, second)
    else:
        rewrite(first, second, as_videos=what == "videos")
