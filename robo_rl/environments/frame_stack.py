"""Frame stacks: a policy observes the newest observations, concatenated, so that it sees motion (Mnih et al. 2015).

Pictures are concatenated along their channels, vectors along their elements, the newest last; an episode starts with copies of
its first observation. The spec has the number of observations (`ArraySpec.history`), so that a replay memory stores each one
only once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.protocols.components import Policy, Stateful
from robo_rl.spec.environment import EnvironmentSpec, Observation, ObservationSpec, Role, specification
from robo_rl.types import Array, Episode, StateDict

VECTORS: tuple[Role, ...] = ("proprioception", "object", "goal")
STACKS: dict[str, tuple[Role, ...]] = {"pictures": ("image",), "vectors": VECTORS, "all": ("image", *VECTORS)}
"""Value of the setting `stacks` -> roles of the entries that are stacked."""


def stacked_spec(spec: EnvironmentSpec, count: int, stacks: str = "pictures") -> EnvironmentSpec:
    """Return the spec with entries that hold the newest `count` observations.

    Args:
        spec: Spec without stacks.
        count: Number of observations, 1 or more.
        stacks: "pictures", "vectors" or "all".

    Raises:
        UnknownName: Unknown value of `stacks`.
        InvalidSetting: `count` is out of range, there is no such entry, or the environment stacks its observations itself.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidSetting("The count of frame_stack is out of range.", got=repr(count), allowed="integer from 1")
    if stacks not in STACKS:
        raise UnknownName("value of stacks", stacks, STACKS)
    chosen = spec.observation.subset(*STACKS[stacks])
    if not chosen:
        raise InvalidSetting(
            f"{spec.name} has nothing to stack.",
            got=f"stacks: {stacks}, entries {', '.join(spec.observation)}",
            fix="name a camera if the environment takes cameras, or set stacks: vectors",
        )
    if spec.single != spec:
        raise InvalidSetting(
            f"{spec.name} stacks its observations itself.", got=f"frame_stack, count {count}", fix="leave it out"
        )
    arrays = (array.with_history(count) if array.name in chosen else array for array in spec.observation.arrays)
    return replace(spec, observation=ObservationSpec(tuple(arrays)))


def stacked_episode(spec: EnvironmentSpec, episode: Episode) -> Episode:
    """Return a recorded episode with its observations stacked as in `spec`; unchanged if `spec` has no stacks."""
    if spec.single == spec:
        return episode
    stacks, single = Stacks(spec), spec.observation.newest(episode.observations)
    steps = [{name: values[step] for name, values in single.items()} for step in range(len(episode) + 1)]
    seen = [stacks.begin(steps[0]), *map(stacks.push, steps[1:])]
    observations = {name: np.stack([each[name] for each in seen]) for name in seen[0]}
    is_of_it = episode.spec_fingerprint == spec.single.fingerprint
    fingerprint = spec.fingerprint if is_of_it else episode.spec_fingerprint
    return replace(episode, observations=observations, spec_fingerprint=fingerprint)


class Stacks:
    """Memory of the newest observations of one environment or of N environments, from which frame stacks are made.

    The numbers of observations come from `ArraySpec.history`.
    """

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.held: dict[str, Array] = {}
        self._counts = {name: array.history for name, array in spec.observation.items() if array.history > 1}

    def begin(self, observation: Mapping[str, Any], mask: npt.NDArray[np.bool_] | None = None) -> dict[str, Any]:
        """Fill the stacks with copies of a first observation, and return the observation with its stacks.

        Args:
            observation: Entry -> (...) of one environment, or (N, ...) of N environments.
            mask: (N,) True for environments that start an episode; the stacks of the others are kept. None for all.
        """
        for name, count in self._counts.items():
            copies = np.concatenate([observation[name]] * count, axis=-1)
            if mask is not None and name in self.held:
                copies = np.where(mask.reshape(-1, *[1] * (copies.ndim - 1)), copies, self.held[name])
            self.held[name] = copies
        return {**observation, **{name: value.copy() for name, value in self.held.items()}}

    def followed(self, observation: Mapping[str, Any], row: int | None = None) -> dict[str, Any]:
        """Return a new observation with its stacks, without changing the stacks; the oldest observation drops out.

        row: number of the environment to which the observation belongs; None if it has all environments.
        """
        older = self.held if row is None else {name: value[row] for name, value in self.held.items()}
        return {
            name: np.concatenate([older[name][..., np.shape(value)[-1] :], value], axis=-1) if name in older else value
            for name, value in observation.items()
        }

    def push(self, observation: Mapping[str, Any]) -> dict[str, Any]:
        """Add a new observation to the stacks, and return the observation with its stacks."""
        found = self.followed(observation)
        self.held = {name: found[name] for name in self._counts}
        return {**found, **{name: value.copy() for name, value in self.held.items()}}


class FrameStack(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper that replaces entries of an observation by frame stacks: the newest observations, concatenated."""

    def __init__(self, environment: gymnasium.Env[Any, Any], count: int, stacks: str = "pictures") -> None:
        """Wrap an environment; raises InvalidSetting or UnknownName as `stacked_spec` does."""
        super().__init__(environment)
        self.environment_spec = stacked_spec(specification(environment), count, stacks)
        self.observation_space = self.environment_spec.observation.space
        self._stacks = Stacks(self.environment_spec)

    def reset(self, **arguments: Any) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode; the stacks are filled with copies of its first observation."""
        observation, info = super().reset(**arguments)
        return self._stacks.begin(observation), info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Step the environment.

        Returns:
            Observation with its stacks, reward, terminated, truncated and info.
        """
        observation, reward, terminated, truncated, info = super().step(action)
        return self._stacks.push(observation), reward, terminated, truncated, info

    @property
    def scripted_policy(self) -> Any:
        """Factory of scripted experts, if the environment has one; an expert gets observations without stacks."""
        expert_for = self.env.get_wrapper_attr("scripted_policy")
        return lambda seed, noise=0.0: _Expert(self.environment_spec, expert_for(seed=seed, noise=noise))


class _Expert:
    """Expert that gets only the newest observation of each stack; all other methods are those of the wrapped expert."""

    def __init__(self, spec: EnvironmentSpec, expert: Policy) -> None:
        self.environment_spec, self._expert = spec, expert

    def __getattr__(self, name: str) -> Any:
        if name == "_expert":  # not made yet, as in a copy
            raise AttributeError(name)
        return getattr(self._expert, name)

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        return self._expert.act(self.environment_spec.observation.newest(observation), deterministic=deterministic)


class FrameStackVector(VectorWrapper[Any, Any, Any, Any, Any]):
    """Wrapper of a vector environment whose observations hold frame stacks, in any autoreset mode of Gymnasium."""

    def __init__(self, environments: VectorEnv[Any, Any, Any], count: int, stacks: str = "pictures") -> None:
        """Wrap a vector environment; raises InvalidSetting or UnknownName as `stacked_spec` does."""
        super().__init__(environments)
        spec: EnvironmentSpec = environments.environment_spec  # type: ignore[attr-defined]  # not one of Gymnasium's
        self.environment_spec = stacked_spec(spec, count, stacks)
        self.single_observation_space = self.environment_spec.observation.space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._mode = environments.metadata["autoreset_mode"]
        self._stacks = Stacks(self.environment_spec)
        self._over = np.zeros(self.num_envs, np.bool_)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # not made yet
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every environment, or in those of `options["reset_mask"]`."""
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = np.array((options or {}).get("reset_mask", np.ones(self.num_envs)), np.bool_)
        self._over &= ~mask
        return self._stacks.begin(observations, mask), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment; an environment whose episode is over begins the next one as the autoreset mode says."""
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        begun = over if self._mode is AutoresetMode.SAME_STEP else self._over
        for row in np.flatnonzero(over) if self._mode is AutoresetMode.SAME_STEP else ():
            infos["final_obs"][row] = self._stacks.followed(infos["final_obs"][row], int(row))
        found = self._stacks.push(observations)
        if begun.any() and self._mode is not AutoresetMode.DISABLED:
            found = self._stacks.begin(observations, begun)
        self._over = over
        return found, rewards, terminated, truncated, infos


class RestorableStackVector(FrameStackVector, Stateful):
    """`FrameStackVector` whose state, including the stacks, is saved and restored with a training."""

    @override
    def state_dict(self) -> StateDict:
        own = {"stacks": {name: value.copy() for name, value in self._stacks.held.items()}, "over": self._over.copy()}
        return {"environments": self.env.state_dict(), **own}  # type: ignore[attr-defined]

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self.env.load_state_dict(state["environments"])  # type: ignore[attr-defined]
        self._stacks.held = {name: np.array(value) for name, value in state["stacks"].items()}
        self._over = np.array(state["over"])


@dataclass(frozen=True)
class FrameStackWrapper(EnvironmentWrapper):
    """Settings of the wrapper `frame_stack`: observe the newest observations, concatenated, so that motion is visible."""

    changes, is_batched = ("observation",), True

    count: int
    """Number of observations in a stack, including the newest; 1 or more."""
    stacks: Literal["pictures", "vectors", "all"] = "pictures"
    """Entries that are stacked; all others hold the newest observation only."""

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> FrameStack:
        return FrameStack(environment, self.count, self.stacks)

    @override
    def wrap_vector(self, environments: VectorEnv[Any, Any, Any]) -> FrameStackVector:
        kind = RestorableStackVector if isinstance(environments, Stateful) else FrameStackVector
        return kind(environments, self.count, self.stacks)
