"""Learners of sb3-contrib: PPO with a recurrent memory, and truncated quantile critics.

Settings have the names and defaults of sb3-contrib.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from typing_extensions import override

from robo_policies.export.acting import ActingNetwork
from robo_policies.sb3.acting import RecurrentStep
from robo_policies.sb3.algorithms import SB3PPOConfig, SB3SACConfig
from robo_policies.sb3.environment import SB3Policy
from robo_policies.sb3.policy_input import Input, PolicyInput
from robo_rl.errors import optional, require_allowed
from robo_rl.protocols.contract import Feature, Needs
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, StateDict

with optional("This learner", "sb3_contrib", "contrib"):
    from sb3_contrib import TQC, RecurrentPPO


class RecurrentPolicy(SB3Policy):
    """Policy of a recurrent SB3 model, with a memory of the episode, which `reset` clears."""

    _memory: tuple[Array, ...] | None = None

    @override
    def reset(self) -> None:
        self._memory = None

    @override
    def acting_network(self) -> ActingNetwork:
        lstm: Any = self._model.policy.lstm_actor
        shape = (lstm.num_layers, lstm.hidden_size)
        return ActingNetwork(RecurrentStep(self._model, self._input), memory={"hidden": shape, "cell": shape})

    @override
    def _predict(self, value: Input, *, deterministic: bool) -> Array:
        start = np.array([self._memory is None])
        action, self._memory = self._model.predict(value, self._memory, start, deterministic)
        return np.asarray(action, self.environment_spec.action.dtype)

    @override
    def state_dict(self) -> StateDict:
        memory = {} if self._memory is None else {str(part): each.copy() for part, each in enumerate(self._memory)}
        return super().state_dict() | {"memory": memory}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        memory: Mapping[str, Array] = state["memory"]
        self._memory = tuple(np.asarray(memory[part]) for part in sorted(memory)) or None


@dataclass(frozen=True, kw_only=True)
class RecurrentPPOConfig(SB3PPOConfig):
    """Settings of the learner `sb3-recurrent-ppo`, PPO with an LSTM (Hochreiter and Schmidhuber 1997), of sb3-contrib.

    lstm_hidden_size in policy_kwargs sets the size of the LSTM.
    """

    algorithm = RecurrentPPO

    n_steps: int = 128
    batch_size: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require_allowed(self, {"clone_epochs": (self.clone_epochs == 0, "0: a memory is not cloned")})

    @property
    @override
    def needs(self) -> Needs:
        """What the learner needs: as PPO, but without demonstrations and rewards of models."""
        needs = super().needs
        late = {Feature.REWARD: "choose sb3-ppo: rewards of a model need steps without a memory"}
        return replace(needs, excludes={**needs.excludes, **late, Feature.DEMONSTRATIONS: "choose sb3-ppo with clone_epochs"})

    @override
    def _policy_name(self, view: PolicyInput) -> str:
        return view.policy_name.replace("Policy", "LstmPolicy")

    @override
    def _acting(self, model: BaseAlgorithm, spec: EnvironmentSpec, seed: int) -> SB3Policy:
        return RecurrentPolicy(model, spec, seed=seed)


@dataclass(frozen=True, kw_only=True)
class TQCConfig(SB3SACConfig):
    """Settings of the learner `sb3-tqc` of sb3-contrib, truncated quantile critics (Kuznetsov et al. 2020, arXiv:2005.04269).

    It is SAC whose critics predict quantiles of the return; its own field sets how many of the highest are dropped.
    """

    algorithm = TQC

    top_quantiles_to_drop_per_net: int = 2
    """Number of the highest quantiles of each critic that are dropped; a critic has n_quantiles of policy_kwargs, 25."""
