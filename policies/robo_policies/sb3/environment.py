"""Adapters between robo_rl and Stable-Baselines3: environments for SB3, and policies from SB3."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from typing_extensions import override

from robo_policies.export.acting import ActingNetwork
from robo_policies.sb3.acting import SB3Step
from robo_policies.sb3.policy_input import Input, PolicyInput
from robo_policies.sb3.rewards import LIMIT, SEEN
from robo_policies.sb3.state import PrivateRandom
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.rollout.vector import Environments, VectorRollout
from robo_rl.spec.environment import EnvironmentSpec, Observation
from robo_rl.training.vector_steps import make_vector
from robo_rl.types import Array, StateDict, info_of

ENDED = "ended_episode"
"""Key of the EndedEpisode, the summary of an episode, in the `info` of its last step."""

Environment = gymnasium.Env[Any, Any]


class SB3Environments(VecEnv):
    """SB3's VecEnv made of robo_rl's environments, which step together; same results as SB3's DummyVecEnv, bit for bit.

    `info` has SB3's keys, the executed action, and at the end of an episode its EndedEpisode.
    """

    def __init__(self, environments: Environments, spec: EnvironmentSpec, reward: OnlineRewards | None = None) -> None:
        """Wrap environments.

        Args:
            environments: Vector environment of the workbench.
            spec: Spec of one environment.
            reward: Rewards of a model. The policy then does not see entries that only the reward reads, and `info` holds the
                whole observation for the reward.
        """
        self._rollout, self._tells = VectorRollout(environments), reward is not None
        self.policy_spec = spec if reward is None else reward.visible(spec)
        """Spec of the environment as the policy sees it."""
        self._input = PolicyInput(self.policy_spec.observation)
        self._actions = np.zeros(0)
        super().__init__(environments.num_envs, self._input.space, environments.single_action_space)

    def reset(self) -> Any:
        """Begin an episode in each environment, with the seeds that SB3 set, if any; returns the policy's input."""
        first = self._rollout.begin(self._seeds)
        self.reset_infos = [self._told(self._rollout.infos, first, place) for place in range(self.num_envs)]
        self._reset_seeds()
        return self._input(first)

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Store the actions that `step_wait` will execute."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Take a step with the stored actions; an environment whose episode ends begins the next one at once."""
        steps = self._rollout.step(self._actions)
        infos = [self._told(steps.infos, steps.next_observations, place) for place in range(self.num_envs)]
        for info in infos:
            info[LIMIT] = False
        for ended in self._rollout.ended:
            place = ended.place
            self.reset_infos[place] = self._told(steps.infos, steps.following, place)
            last = {name: values[place] for name, values in steps.next_observations.items()}
            infos[place] = self._told(steps.infos["final_info"], steps.next_observations, place) | {
                LIMIT: bool(steps.truncated[place]),
                "terminal_observation": self._input(last),
                "episode": {"r": ended.episode_return, "l": ended.length},
                ENDED: ended,
            }
        return self._input(steps.following), steps.rewards.astype(np.float32), steps.ended, infos

    def _told(self, infos: Mapping[str, Any], observations: Observation, place: int) -> dict[str, Any]:
        """Return the info of the environment number `place`, with its observation if a reward model reads it."""
        seen = {SEEN: {name: values[place] for name, values in observations.items()}} if self._tells else {}
        return info_of(infos, place) | seen

    def close(self) -> None:
        """Close all environments."""
        self._rollout.environments.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute that all environments share, as a list with one entry for each of `indices`."""
        return [getattr(self._rollout.environments, attr_name)] * len([*self._get_indices(indices)])

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Raise AttributeError, because environments stay as their recipe says."""
        raise AttributeError(attr_name)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Raise AttributeError, because SB3 needs no method of the environments."""
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False for each environment: SB3 asks whether its own wrappers are present."""
        return [False] * len([*self._get_indices(indices)])


def vectorize(factory: Callable[[], Environment], count: int, reward: OnlineRewards | None = None) -> SB3Environments:
    """Make SB3's vector environment of `count` environments, as one batched simulation if the factory has one."""
    environments, spec = make_vector(factory, count)
    return SB3Environments(environments, spec, reward)


class SB3Policy(Stateful):
    """Policy that acts with the current networks of an SB3 model.

    Acting does not use the global random generators with which SB3 learns, so that more evaluations do not change a run.
    """

    def __init__(self, model: BaseAlgorithm, spec: EnvironmentSpec, *, seed: int) -> None:
        self.environment_spec = spec
        self._model = model
        self._input = PolicyInput(spec.observation)
        self._random = PrivateRandom(seed)
        self._choices = spec.action.space  # DQN explores by sampling it
        self._choices.seed(seed)

    def reset(self) -> None:
        """Do nothing: the policy has no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return an action (A,) float32 in [-1, 1], or an int64 choice; without `deterministic` DQN also explores."""
        value = self._input(observation)
        if (normalizer := self._model.get_vec_normalize_env()) is not None:
            value = normalizer.normalize_obs(value)
        return self._predict(value, deterministic=True) if deterministic else self._drawn(value)

    def acting_network(self) -> ActingNetwork:
        """Return a copy of the network that computes the deterministic actions, for an export."""
        return ActingNetwork(SB3Step(self._model, self._input))

    def _drawn(self, value: Input) -> Array:
        """Return a random action, or several, by the policy's own generators."""
        actions, self._model.action_space = self._model.action_space, self._choices
        try:
            with self._random.in_place():
                return self._predict(value, deterministic=False)
        finally:
            self._model.action_space = actions

    def parameters(self) -> StateDict:
        """Return copies of the parameters of the network that acts."""
        return {name: value.detach().cpu().clone() for name, value in self._network.state_dict().items()}

    def load_parameters(self, parameters: StateDict) -> None:
        """Load parameters that `parameters` returned; the policy acts with them from now on."""
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
