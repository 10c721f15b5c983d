"""Steering of a frozen flow policy by its noise: the action of the environment is the noise at the beginning of the flow.

Wagenmaker et al. 2025, "Steering Your Diffusion Policy with Latent Space Reinforcement Learning", arXiv:2506.15799, which GR-RL
(arXiv:2512.01801) uses as its last stage. The flow's networks stay as they are; any learner of continuous actions chooses the
noise.

Differs from the papers: one noise vector (A,) is repeated over the chunk, which is planned again at every step; the noise is
bounded by `reach` deviations, so that actions stay among those that were cloned; GR-RL penalises larger ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from robo_policies.learners.chunks import ChunkPolicy
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Array

REACH = 2.0


class SteeredEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper in which a frozen flow policy acts, and the action is the noise from which the policy makes its action."""

    def __init__(self, environment: gymnasium.Env[Any, Any], policy: ChunkPolicy, *, reach: float = REACH) -> None:
        """Raise InvalidSetting, SpecMismatch if the policy acts in another environment.

        reach: largest noise, in standard deviations.
        """
        super().__init__(environment)
        self._inner, self._policy, self._reach = specification(environment), policy, reach
        if self._inner.action.is_discrete or not reach > 0:
            got = f"reach {reach}, actions of the mode {self._inner.action.mode!r}"
            raise InvalidSetting("There is nothing to steer.", got=got, allowed="a reach above 0, of continuous actions")
        policy.environment_spec.require_interface(self._inner, what="The flow policy acts in another environment")
        self.environment_spec = _steered(self._inner, reach)
        self.action_space = self.environment_spec.action.space
        self._observation: Observation = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        """Begin an episode of environment and flow policy."""
        self._observation, info = super().reset(seed=seed, options=options)
        return self._observation, info

    def step(self, action: Any) -> tuple[Observation, Any, bool, bool, dict[str, Any]]:
        """Let the flow policy make a chunk from this noise, and execute the first action of the chunk."""
        wanted = self.acted(self._observation, self.environment_spec.action.validate(action))
        self._observation, reward, terminated, truncated, info = super().step(wanted)
        if "executed_action" in info:  # a guard changed the command: which noise leads to another is not known
            info = {name: value for name, value in info.items() if name != "executed_action"}
        return self._observation, reward, terminated, truncated, info

    def acted(self, observation: Observation, noise: Array) -> Array:
        """Return the flow policy's action (A,) for noise (A,) in [-1, 1], which is scaled by `reach`."""
        drawn = np.tile(self._reach * np.asarray(noise, np.float32), (self._policy.chunk, 1))
        action: Array = self._policy.steered(observation, drawn)[0].astype(self._inner.action.dtype)
        return action


def _steered(spec: EnvironmentSpec, reach: float) -> EnvironmentSpec:
    action, size = spec.action, spec.action.size
    noise = replace(
        action,
        names=tuple(f"{name}_noise" for name in action.names),
        low=(-reach,) * size,
        high=(reach,) * size,
        units=("1",) * size,
        mode="unknown",
        frame="",
    )
    return replace(spec, name=f"steered:{spec.name}", action=noise)
