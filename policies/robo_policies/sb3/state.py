"""Save and restore the whole state of an SB3 model as tensors, arrays and JSON values; SB3's own files hold pickles."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from torch import Tensor
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.types import StateDict

COUNTERS = ("_n_updates", "_episode_num", "_current_progress_remaining", "_n_calls", "exploration_rate")
"""Counters of an algorithm that a resume needs; the last two are DQN's."""
REPLAY_ARRAYS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


@dataclass(frozen=True)
class GlobalRandom:
    """States of the random generators of the process from which SB3 draws: torch (CPU and CUDA), numpy and Python.

    Numpy's is the legacy generator `np.random`, which SB3 uses.
    """

    torch_cpu: Tensor
    numpy: dict[str, Any]
    python: tuple[Any, ...]
    torch_cuda: tuple[Tensor, ...] = ()

    @classmethod
    def current(cls) -> GlobalRandom:
        """Copy the present states of the process's generators."""
        numpy = np.random.get_state(legacy=False)  # noqa: NPY002
        cuda = torch.cuda.get_rng_state_all() if _uses_cuda() else []
        return cls(torch.get_rng_state(), numpy, random.getstate(), tuple(cuda))

    @classmethod
    def seeded(cls, seed: int) -> GlobalRandom:
        """Compute the states to which a seed would lead, without changing the generators of the process."""
        cuda = [torch.Generator(f"cuda:{i}") for i in range(torch.cuda.device_count() if _uses_cuda() else 0)]
        return cls(
            torch.Generator().manual_seed(seed).get_state(),
            np.random.RandomState(seed).get_state(legacy=False),
            random.Random(seed).getstate(),
            tuple(generator.manual_seed(seed).get_state() for generator in cuda),
        )

    def restore(self) -> None:
        """Set the generators of the process to these states."""
        torch.set_rng_state(self.torch_cpu)
        np.random.set_state(self.numpy)  # noqa: NPY002
        random.setstate(self.python)
        if self.torch_cuda:
            torch.cuda.set_rng_state_all(list(self.torch_cuda))

    def state_dict(self) -> StateDict:
        """Return the states as tensors, arrays and JSON values."""
        version, words, gauss = self.python
        python = {"version": version, "words": np.asarray(words, np.int64), "gauss": gauss}
        cuda = {str(i): state for i, state in enumerate(self.torch_cuda)}
        return {"torch": self.torch_cpu, "numpy": self.numpy, "python": python, "cuda": cuda}

    @classmethod
    def from_state_dict(cls, state: StateDict) -> GlobalRandom:
        """Return the states that `state_dict` saved."""
        python = state["python"]
        words = tuple(int(word) for word in python["words"])
        cuda = tuple(torch.as_tensor(state["cuda"][str(i)]) for i in range(len(state["cuda"])))
        python_state = (int(python["version"]), words, python["gauss"])
        return cls(torch.as_tensor(state["torch"]), state["numpy"], python_state, cuda)


class PrivateRandom(Stateful):
    """Random states of one SB3 model, which replace the process's only while the model acts or learns."""

    def __init__(self, seed: int) -> None:
        self._state = GlobalRandom.seeded(seed)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within this context, replace the process's random states by those of this model."""
        others = GlobalRandom.current()
        self._state.restore()
        try:
            yield
        finally:
            self._state = GlobalRandom.current()
            others.restore()

    @override
    def state_dict(self) -> StateDict:
        return self._state.state_dict()

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._state = GlobalRandom.from_state_dict(state)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())


def model_state(model: BaseAlgorithm) -> StateDict:
    """Return copies of networks, optimisers, counters, replay, normalisation and recent episodes."""
    parameters = {name: _plain(state) for name, state in model.get_parameters().items()}
    replay = getattr(model, "replay_buffer", None)
    normalizer = model.get_vec_normalize_env()
    return {
        "parameters": parameters,
        "variables": {name: getattr(model, name).detach().cpu().clone() for name in model._get_torch_save_params()[1]},
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
        "action_space": model.action_space.np_random.bit_generator.state,
        "recent_episodes": {
            "episodes": [{key: float(value) for key, value in episode.items()} for episode in model.ep_info_buffer or ()],
            "successes": [bool(success) for success in model.ep_success_buffer or ()],
        },
        "replay": _replay_state(replay) if isinstance(replay, ReplayBuffer) else {},
        "normalization": _normalizer_state(normalizer) if normalizer is not None else {},
    }


def load_model_state(model: BaseAlgorithm, state: StateDict) -> None:
    """Restore the state returned by `model_state` into a model of the same settings."""
    parameters = {name: _with_integer_keys(_tensors(value)) for name, value in state["parameters"].items()}
    model.set_parameters(parameters, exact_match=True)  # type: ignore[arg-type]  # a dict of state_dicts, as SB3 itself gives it
    for name, value in state["variables"].items():
        getattr(model, name).data.copy_(torch.as_tensor(value))
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model.action_space.np_random.bit_generator.state = state["action_space"]
    recent, window = state["recent_episodes"], model._stats_window_size
    model.ep_info_buffer = deque(recent["episodes"], maxlen=window)
    model.ep_success_buffer = deque(recent["successes"], maxlen=window)
    if state["replay"]:
        assert isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None
        _load_replay(model.replay_buffer, state["replay"])
    if state["normalization"]:
        normalizer = model.get_vec_normalize_env()
        assert normalizer is not None
        _load_normalizer(normalizer, state["normalization"])


def _plain(value: Any) -> Any:
    """Return a copy with tensors on the CPU and all keys as strings, because JSON has no integer keys."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.detach().cpu().clone() if isinstance(value, Tensor) else value


def _tensors(value: Any) -> Any:
    """Turn the arrays of a saved state into tensors."""
    if isinstance(value, dict):
        return {key: _tensors(item) for key, item in value.items()}
    return torch.as_tensor(value) if isinstance(value, np.ndarray) else value


def _with_integer_keys(value: StateDict) -> StateDict:
    if set(value) != {"state", "param_groups"}:  # a network, not an optimiser
        return value
    return {"state": {int(key): item for key, item in value["state"].items()}, "param_groups": value["param_groups"]}


def _replay_state(replay: ReplayBuffer) -> StateDict:
    rows = replay.buffer_size if replay.full else replay.pos
    arrays = {name: map_arrays(lambda array: array[:rows].copy(), getattr(replay, name)) for name in REPLAY_ARRAYS}
    return arrays | {"position": replay.pos}


def _load_replay(replay: ReplayBuffer, state: StateDict) -> None:
    rows = len(state["rewards"])
    if rows > replay.buffer_size:
        raise InvalidSetting("buffer_size is smaller than the saved replay.", got=replay.buffer_size, allowed=f"{rows} or more")
    for name in REPLAY_ARRAYS:
        target, source = getattr(replay, name), state[name]
        pairs = [(target[key], source[key]) for key in target] if isinstance(target, dict) else [(target, source)]
        for array, values in pairs:
            array[:rows] = values
    replay.full = rows == replay.buffer_size  # a larger buffer than the saved one has room again
    replay.pos = int(state["position"]) % replay.buffer_size if replay.full else rows


def map_arrays(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to an array, or to each array of a dict, and return the results in the same form."""
    return {key: function(item) for key, item in value.items()} if isinstance(value, dict) else function(value)


def _normalizer_state(normalizer: VecNormalize) -> StateDict:
    moments = {name: _moments(value) for name, value in _statistics(normalizer).items()}
    return {"moments": moments, "returns": normalizer.returns.copy()}


def _load_normalizer(normalizer: VecNormalize, state: StateDict) -> None:
    for name, statistics in _statistics(normalizer).items():
        saved = state["moments"][name]
        statistics.mean, statistics.var = saved["mean"].copy(), saved["var"].copy()
        statistics.count = float(saved["count"])
    normalizer.returns = state["returns"].copy()


def _statistics(normalizer: VecNormalize) -> dict[str, RunningMeanStd]:
    found = {"return": normalizer.ret_rms}
    if normalizer.norm_obs:
        observation = normalizer.obs_rms if isinstance(normalizer.obs_rms, dict) else {"observation": normalizer.obs_rms}
        found |= {f"observation.{key}": value for key, value in observation.items()}
    return found


def _moments(statistics: RunningMeanStd) -> StateDict:
    return {"mean": np.array(statistics.mean), "var": np.array(statistics.var), "count": float(statistics.count)}
