"""Noise steering of a frozen diffusion or flow policy, the baseline of the study: an action is the noise of a whole chunk.

Wagenmaker et al. 2025, "Steering Your Diffusion Policy with Latent Space Reinforcement Learning", arXiv:2506.15799.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import torch
from typing_extensions import override

from robo_papers.dppo.actor import ChainActor
from robo_rl.spec.environment import Observation, specification


class NoiseEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment of chunks: a step makes a chunk from the given noise (A,), repeated over it, and executes its beginning.

    A diffusion policy draws its later noise as ever.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], actor: ChainActor, reach: float, seed: int) -> None:
        """Wrap an environment.

        Args:
            environment: Environment in which the policy acts.
            actor: Actor with the frozen policy.
            reach: Noise that an action of 1 stands for, in standard deviations.
            seed: Seed of a diffusion policy's later noise.
        """
        super().__init__(environment)
        self._policy, self._reach = actor.policy, reach
        self._encoder, self._network = actor.policy.online
        self._random = torch.Generator().manual_seed(seed)
        inner = specification(environment)
        assert inner.max_steps is not None
        size, named = inner.action.size, tuple(f"{name}_noise" for name in inner.action.names)
        low, high, units = (-reach,) * size, (reach,) * size, ("1",) * size
        noise = replace(inner.action, names=named, low=low, high=high, units=units, mode="unknown", frame="")
        steps = -(-inner.max_steps // self._policy.executed)
        self.environment_spec = replace(inner, name=f"noise:{inner.name}", action=noise, max_steps=steps)
        self.action_space = self.environment_spec.action.space
        self._observation: Observation = {}

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        self._observation, info = super().reset(seed=seed, options=options)
        return self._observation, info

    @override
    @torch.no_grad()
    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        rows = {name: self._observation[name][None] for name in self._encoder.reads}
        features = self._encoder(self._encoder.tensors(self._encoder.stack(rows, is_acting=True), rows, torch.device("cpu")))
        draws = self._network.noise(features, self._random) if hasattr(self._network, "noise") else self._one(features)
        draws[:, 0] = self._reach * torch.as_tensor(action, dtype=torch.float32)
        total, info, terminated, truncated = 0.0, dict[str, Any](), False, False
        for each in self._network.from_draws(features, draws)[0, : self._policy.executed].numpy():
            self._observation, reward, terminated, truncated, info = super().step(each)
            total += float(reward)
            if terminated or truncated:
                break
        return self._observation, total, terminated, truncated, info

    def _one(self, features: torch.Tensor) -> torch.Tensor:
        return features.new_empty(1, 1, self._policy.chunk, self.environment_spec.action.size)
