"""Adapters: environments for Stable-Baselines3, and its policies for the workbench."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from typing_extensions import override

from robo_policies.sb3.rewards import SEEN
from robo_policies.sb3.state import PrivateRandom
from robo_rl.environments import stepping
from robo_rl.environments.step_info import success_so_far
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.spec.cost import costs_of
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, Observation, ObservationSpec, specification
from robo_rl.types import Array, StateDict

SMALLEST_CAMERA = 36
"""[px] The strided convolutions of SB3's NatureCNN leave nothing of a smaller image."""
EPISODE_COSTS = "episode_costs"
"""Key of the sums of the constraint costs of the episode so far in `info`."""
STATE = "state"
"""Key of the joined vectors in an observation with cameras."""

Environment = gymnasium.Env[Any, Any]
Input = npt.NDArray[Any] | dict[str, npt.NDArray[Any]]


class PolicyInput:
    """Turns an observation into one float32 vector, or with cameras into a dict of that vector and the images.

    Arrays are joined in the order of the spec; privileged ones are left out. An image that is too small for a
    convolution (MiniGrid's 7 x 7 cells) joins the vector with its raw values.
    """

    def __init__(self, spec: ObservationSpec) -> None:
        visible = [array for array in spec.arrays if array.role != "privileged"]
        self._cameras = [array for array in visible if _is_camera(array)]
        self._vectors = [array for array in visible if not _is_camera(array)]
        if not visible:
            raise InvalidSetting("A policy sees nothing of this environment.", got=list(spec), allowed="a role but privileged")

    @property
    def policy_name(self) -> str:
        """SB3's name for the policy class that takes this input."""
        return "MultiInputPolicy" if self._cameras else "MlpPolicy"

    @property
    def has_vectors(self) -> bool:
        """True unless the policy sees images alone."""
        return bool(self._vectors)

    @property
    def space(self) -> spaces.Box | spaces.Dict:
        """Box of the joined vectors, or a Dict of it and the cameras."""
        if not self._cameras:
            return self._vector_space
        state: dict[str, spaces.Space[Any]] = {STATE: self._vector_space} if self._vectors else {}
        return spaces.Dict(state | {camera.name: camera.space for camera in self._cameras})

    @property
    def _vector_space(self) -> spaces.Box:
        limits = [(array.space.low.ravel(), array.space.high.ravel()) for array in self._vectors]
        low, high = (np.concatenate(side).astype(np.float32) for side in zip(*limits, strict=True))
        return spaces.Box(low, high, dtype=np.float32)

    def __call__(self, observation: Observation) -> Input:
        """Returns the input for one observation, or for arrays with a leading axis."""
        if not self._cameras:
            return self._join(observation)
        state = {STATE: self._join(observation)} if self._vectors else {}
        return state | {camera.name: observation[camera.name] for camera in self._cameras}

    def _join(self, observation: Observation) -> npt.NDArray[np.float32]:
        return np.concatenate([_flat(array, observation[array.name]) for array in self._vectors], axis=-1, dtype=np.float32)


class SB3Environment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of the workbench with SB3's observations and SB3's spelling of success."""

    def __init__(self, environment: Environment, reward: OnlineRewards | None = None) -> None:
        """With a `reward` the policy sees its visible entries, and `info` holds the whole observation for the reward."""
        super().__init__(environment)
        self._input = PolicyInput(_visible(environment, reward).observation)
        self._tells, self._name = reward is not None, specification(environment).name
        self.observation_space = self._input.space
        self._success: bool | None = None
        self._costs: dict[str, float] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Passes SB3's seed on: it seeds the first reset only, the generator of the environment goes on from there."""
        self._success, self._costs = None, {}
        observation, info = stepping.reset(self.env, self._name, seed=seed, options=options)
        return self._input(observation), self._with_observation(dict(info), observation)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Tells the success of the episode so far, also as `is_success`, which SB3 knows, and its costs."""
        observation, reward, terminated, truncated, found = stepping.step(self.env, self._name, action)
        self._success = success_so_far(self._success, found)
        info = dict(found) if self._success is None else {**found, "success": self._success, "is_success": self._success}
        for name, cost in costs_of(info).items():
            self._costs[name] = self._costs.get(name, 0.0) + float(cost)
        info |= {EPISODE_COSTS: dict(self._costs)}
        return self._input(observation), reward, terminated, truncated, self._with_observation(info, observation)

    def _with_observation(self, info: dict[str, Any], observation: Observation) -> dict[str, Any]:
        return info | {SEEN: dict(observation)} if self._tells else info


def vectorize(
    factory: Callable[[], Environment], count: int, reward: OnlineRewards | None = None
) -> tuple[VecEnv, EnvironmentSpec]:
    """Returns `count` environments that step one after the other in this process, and the spec of the policy."""
    environments = [factory() for _ in range(count)]

    def wrap(environment: Environment) -> Callable[[], Environment]:
        return lambda: Monitor(SB3Environment(environment, reward))

    return DummyVecEnv([wrap(environment) for environment in environments]), _visible(environments[0], reward)


def _visible(environment: Environment, reward: OnlineRewards | None) -> EnvironmentSpec:
    spec = specification(environment)
    return spec if reward is None else reward.visible(spec)


class SB3Policy(Stateful):
    """Policy of an SB3 model; follows every update of the model.

    Acting never moves the global random generators that SB3 learns with, so that evaluating more often does not
    change a run.
    """

    def __init__(self, model: BaseAlgorithm, spec: EnvironmentSpec, *, seed: int) -> None:
        self.environment_spec = spec
        self._model = model
        self._input = PolicyInput(spec.observation)
        self._random = PrivateRandom(seed)
        self._choices = spec.action.space  # DQN explores by sampling it
        self._choices.seed(seed)

    def reset(self) -> None:
        """Does nothing: these policies remember nothing."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Returns an action in [-1, 1]^A (float32) or an int64 choice; DQN explores unless `deterministic`."""
        value = self._input(observation)
        if (normalizer := self._model.get_vec_normalize_env()) is not None:
            value = normalizer.normalize_obs(value)
        if deterministic:
            return self._predict(value, deterministic=True)
        actions, self._model.action_space = self._model.action_space, self._choices
        try:
            with self._random.in_place():
                return self._predict(value, deterministic=False)
        finally:
            self._model.action_space = actions

    def parameters(self) -> StateDict:
        """Returns copies of the network that acts."""
        return {name: value.detach().cpu().clone() for name, value in self._network.state_dict().items()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Acts with those from now on."""
        self._network.load_state_dict({name: torch.as_tensor(value) for name, value in parameters.items()})

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.state_dict(), "choices": self._choices.np_random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.load_state_dict(state["random"])
        self._choices.np_random.bit_generator.state = state["choices"]

    @property
    def _network(self) -> torch.nn.Module:
        network: torch.nn.Module = getattr(self._model, "actor", self._model.policy)
        return network

    def _predict(self, value: Input, *, deterministic: bool) -> Array:
        action, _ = self._model.predict(value, deterministic=deterministic)
        return np.asarray(action, self.environment_spec.action.dtype)


def _is_camera(array: ArraySpec) -> bool:
    return array.role == "image" and min(array.shape[:2]) >= SMALLEST_CAMERA


def _flat(array: ArraySpec, value: Array) -> Array:
    leading = value.shape[: value.ndim - len(array.shape)]
    return value.reshape(*leading, -1)
