"""Act with a policy that `robo-rl export` wrote. It needs numpy and onnxruntime (or torch), but not robo-rl.

policy = ExportedPolicy("exported"); policy.reset(); action = policy.act({"joint_positions": ..., "camera_front": ...})
"""

import json
from pathlib import Path
from typing import Any

import numpy as np


def load(path: Path) -> Any:
    """Load an exported network from its file, as a function from named arrays to a list of arrays."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, inputs)
    import torch

    network = torch.jit.load(path)
    return lambda inputs: [each.numpy() for each in network({name: torch.from_numpy(value) for name, value in inputs.items()})]


def read(observation: Any, name: str, shape: tuple[int, ...], dtype: str) -> Any:
    """Return the entry `name` of an observation; raises ValueError if it is missing or has another shape."""
    got = np.shape(observation[name]) if name in observation else f"no such name in {list(observation)}"
    if got != shape:
        raise ValueError(f"observation {name!r}: got {got}, wanted {shape} of {dtype} (policy.json, inputs)")
    return np.array(observation[name], dtype)


class ExportedPolicy:
    """Policy that acts from a folder that `robo-rl export` wrote.

    `spec`, the content of policy.json, has names, shapes, units, frames and the control period.
    """

    def __init__(self, folder: Path | str, seed: int = 0) -> None:
        self.spec = json.loads((Path(folder) / "policy.json").read_text())
        self.network, self.random = load(Path(folder) / self.spec["file"]), np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Begin an episode: clear the memory and the remaining actions of a chunk."""
        self.memory = {each["name"]: np.zeros(each["shape"], np.float32) for each in self.spec["memory"]}
        self.plans: list[Any] = []
        self.left = 0

    def act(self, observation: Any) -> Any:
        """Return the next action (A,) in physical units, or the number of a choice. Call it once in each control period.

        observation: array of each entry by name. Raises ValueError if one is missing or has another shape, and if the network
        returns NaN or infinity.
        """
        loop = self.spec["loop"]
        if self.left == 0:
            inputs = {
                each["name"]: read(observation, each["name"], (*each["shape"],), each["dtype"]) for each in self.spec["inputs"]
            }
            noise = {each["name"]: self.random.standard_normal(each["shape"], np.float32) for each in self.spec["noise"]}
            plan, *memory = self.network({**inputs, **noise, **self.memory})
            self.memory, self.left = dict(zip(self.memory, memory, strict=True)), loop["executed"]
            self.plans = [*(self.plans if loop["overlaps"] else []), plan.reshape(loop["chunk"], -1)]
        weights = np.exp(-loop["rate"] * np.arange(len(self.plans)))  # the oldest plan first
        action = np.average([plan[0] for plan in self.plans], axis=0, weights=weights)
        self.plans, self.left = [plan[1:] for plan in self.plans if len(plan) > 1], self.left - 1
        if not np.isfinite(action).all():
            raise ValueError(f"the network returned {action}: look at the observation, and command nothing")
        return int(action[0]) if self.spec["action"]["mode"] == "discrete" else action.astype(np.float32)
