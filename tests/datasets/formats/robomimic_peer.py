"""Runs where robomimic is installed: says what its SequenceDataset finds in a file."""

import contextlib
import importlib.util
import io
import json
import sys

if importlib.util.find_spec("torchvision_without_operators"):  # docs/data/dataset-formats.md says why
    importlib.import_module("torchvision_without_operators")

with contextlib.redirect_stdout(io.StringIO()):
    import robomimic.utils.file_utils as files
    import robomimic.utils.obs_utils as observations
    from robomimic.utils.dataset import SequenceDataset

    path, numbers, cameras = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")
    observations.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": numbers, "rgb": cameras}})
    shapes = files.get_shape_metadata_from_dataset(path)
    settings = files.get_env_metadata_from_dataset(path)
    keys = (*numbers, *cameras)
    dataset = SequenceDataset(path, keys, ("actions", "rewards", "dones"), hdf5_cache_mode="all", seq_length=2)
    items = [dataset[index] for index in range(len(dataset))]
    found = {
        "length": len(dataset),
        "action_size": shapes["ac_dim"],
        "shapes": {name: list(shape) for name, shape in shapes["all_shapes"].items()},
        "environment": settings["env_name"],
        "actions": [item["actions"][0].tolist() for item in items],
        "dones": [float(item["dones"][0]) for item in items],
        "next": [item["next_obs"][numbers[0]][0].tolist() for item in items],
    }
print(json.dumps(found))
