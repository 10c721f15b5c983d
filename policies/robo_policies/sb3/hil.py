"""Stable-Baselines3's SAC in robo_rl's training loop, which samples its batches.

Half of each batch may be demonstrations, a person may take over, and the learner may have its own process. `sb3-sac` is the
same algorithm in Stable-Baselines3's own loop. Raffin et al. 2021, JMLR 22(268).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

import gymnasium
import numpy as np
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.logger import Logger
from typing_extensions import override

from robo_policies.sb3.demonstrations import as_model_sees
from robo_policies.sb3.environment import SB3Policy
from robo_policies.sb3.policy_input import PolicyInput
from robo_policies.sb3.settings import policy_arguments
from robo_policies.sb3.state import PrivateRandom, load_model_state, map_arrays, model_state
from robo_rl.errors import NonFiniteUpdate, require_allowed
from robo_rl.metrics import MetricsWindow
from robo_rl.protocols.components import Stateful
from robo_rl.protocols.contract import CONTINUOUS_ONLY, STEPS, Feature, Needs
from robo_rl.protocols.sampling import Sampling
from robo_rl.requirements import require_continuous, require_finite_data
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Batch, Metrics, StateDict


@dataclass(frozen=True, kw_only=True)
class SB3SACHILConfig:
    """Settings of the learner `sb3-sac-hil`: SB3's SAC on batches from robo_rl's loop, with demonstrations and corrections.

    Names and defaults are SB3's unless a field says otherwise.
    """

    needs = Needs(STEPS, CONTINUOUS_ONLY | {Feature.PICTURES})

    learning_rate: float = 3e-4
    """Learning rate of Adam, constant."""
    gamma: float = 0.97
    """Discount per step, as HIL-SERL's; SB3's default is 0.99."""
    tau: float = 0.005
    """Share of the online network that enters the target network at each update."""
    ent_coef: float | str = "auto_0.01"
    """Temperature, the weight of the entropy; "auto_0.01" learns it starting from 0.01, as in HIL-SERL. SB3's default is
    "auto", which starts from 1."""
    target_entropy: float | str = "auto"
    """Target entropy [nat] of a learned temperature; "auto" is minus the number of action elements."""
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    """Network: net_arch, activation_fn (a name such as ReLU), n_critics, ..."""
    batch_size: int = 256
    """Transitions of one update, online and recorded ones together."""
    gradient_steps: int = 1
    """Number of updates after each `train_freq` steps."""
    n_steps: int = 1
    """Number of rewards that are summed before bootstrapping."""
    learning_starts: int = 100
    """Steps of random actions before the first update."""
    train_freq: int = 1
    """Environment steps, over all environments, from one call of SB3's `train` to the next."""
    buffer_size: int = 200_000
    """Capacity of the memory of online steps, in transitions."""
    offline_fraction: float = 0.5
    """Share of each batch that comes from demonstrations and corrections, 0 to 1."""
    device: str = "auto"
    """Device of networks and updates: "cpu", "cuda", or "auto"."""

    def __post_init__(self) -> None:
        policy_arguments(self.policy_kwargs)
        require_allowed(self, {"learning_rate": (self.learning_rate > 0, "above 0"), "tau": (0 < self.tau <= 1, "0 to 1")})
        _ = self.sampling  # checks itself

    @property
    def sampling(self) -> Sampling:
        """Settings that the training loop reads: replay memory, batches, share of demonstrations."""
        return Sampling(
            batch_size=self.batch_size,
            updates_per_step=self.gradient_steps,
            update_every=self.train_freq,
            n_step=self.n_steps,
            discount=self.gamma,
            learning_starts=self.learning_starts,
            capacity=self.buffer_size,
            offline_fraction=self.offline_fraction,
            keeps_corrections=True,
        )

    def build(self, spec: EnvironmentSpec, seed: int) -> SB3SACHIL:
        """Build an untrained learner for the spec of an environment; its networks are initialised from `seed`."""
        return SB3SACHIL(spec, self, seed)


class SACPolicy(SB3Policy):
    """Policy of SB3's SAC that can also act in N environments at once."""

    def act_all(self, observations: Mapping[str, Array]) -> Array:
        """Return random actions (N, A) for the observations (N, ...) by name of N environments."""
        return self._drawn(self._input(observations))


class SB3SACHIL(Stateful):
    """Learner that calls SB3's `train` on batches that it is given; the process's random generators stay as they were."""

    def __init__(self, spec: EnvironmentSpec, config: SB3SACHILConfig, seed: int) -> None:
        require_continuous(spec, "SB3's SAC")
        self.config = config
        self._input = PolicyInput(spec.observation)
        self._random = PrivateRandom(seed)
        with self._random.in_place():
            self.model = sb3.SAC(
                self._input.policy_name,
                Spaces(self._input.space, spec.action.space),
                learning_rate=config.learning_rate,
                gamma=config.gamma,
                tau=config.tau,
                ent_coef=config.ent_coef,
                target_entropy=config.target_entropy,
                policy_kwargs=policy_arguments(config.policy_kwargs),
                buffer_size=1,  # it is fed from elsewhere
                device=config.device,
                seed=seed,
            )
        self.model.set_logger(Logger(None, []))
        self.policy = SACPolicy(self.model, spec, seed=seed)
        self._metrics = MetricsWindow()

    def update(self, batch: Batch) -> Metrics:
        """Take `gradient_steps` updates of critics, actor and temperature.

        Returns the metrics for the log, empty if none are due. Raises NonFiniteUpdate for NaN or infinity in the
        batch, and if a loss is not finite.
        """
        given = {name: getattr(batch, name) for name in ("actions", "rewards", "masks", "discounts")}
        seen = {f"observations {name}": value for name, value in batch.observations.items()}
        following = {f"next observations {name}": value for name, value in batch.next_observations.items()}
        require_finite_data(given | seen | following, self.model._n_updates)
        self.model.replay_buffer = _SingleBatch(self.model, self._input, batch)  # type: ignore[assignment]  # `train` only samples from it
        try:
            with self._random.in_place():
                self.model.train(self.config.gradient_steps, self.config.batch_size)
        except ValueError as error:  # distributions refuse parameters that are not finite
            raise self._non_finite(error) from error
        return self._metrics.add(self._logged())

    def _logged(self) -> dict[str, float]:
        """Return SB3's logged metrics; raises NonFiniteUpdate if a loss is not finite."""
        logger = self.model.logger
        logged = {tag: float(value) for tag, value in logger.name_to_value.items() if tag != "train/n_updates"}
        logger.name_to_value.clear()
        if bad := {tag: value for tag, value in logged.items() if not math.isfinite(value)}:
            raise self._non_finite(bad)
        return logged

    def _non_finite(self, found: object) -> NonFiniteUpdate:
        return NonFiniteUpdate(
            f"Update {self.model._n_updates} of SB3 is not finite; unlike our learners it keeps no parameters back.",
            got=found,
            allowed="finite numbers",
            fix="go back to the last checkpoint (robo-rl resume) with a smaller learning rate or rewards near 1",
        )

    @override
    def state_dict(self) -> StateDict:
        return {
            "model": model_state(self.model),
            "random": self._random.state_dict(),
            "policy": self.policy.state_dict(),
            "metrics": self._metrics.state_dict(),
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        load_model_state(self.model, state["model"])
        self._random.load_state_dict(state["random"])
        self.policy.load_state_dict(state["policy"])
        self._metrics.load_state_dict(state["metrics"])


class Spaces(gymnasium.Env[Any, Any]):
    """Stand-in for an environment: gives SB3's constructor the spaces that it requires, and never steps."""

    def __init__(self, observation: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, **arguments: Any) -> NoReturn:
        """Raise NotImplementedError; it is never called."""
        raise NotImplementedError

    def step(self, action: Any) -> NoReturn:
        """Raise NotImplementedError; it is never called."""
        raise NotImplementedError


class _SingleBatch:
    """Stand-in for SB3's replay buffer, whose `sample` returns one slice of a given batch after the other."""

    def __init__(self, model: sb3.SAC, view: PolicyInput, batch: Batch) -> None:
        self._device, self._start = model.device, 0
        before, after = (as_model_sees(model, view(seen)) for seen in (batch.observations, batch.next_observations))
        self._columns = {
            "observations": before,
            "next_observations": after,
            "actions": batch.actions,
            "rewards": batch.rewards[:, None],
            "dones": 1 - batch.masks[:, None],
            "discounts": batch.discounts[:, None],
        }

    def sample(self, batch_size: int, env: object = None) -> SimpleNamespace:
        """Return the next `batch_size` rows of the batch as tensors."""
        rows = slice(self._start, self._start + batch_size)
        self._start += batch_size

        def tensor(values: Array) -> torch.Tensor:
            return torch.as_tensor(np.ascontiguousarray(values[rows]), device=self._device)

        return SimpleNamespace(**{name: map_arrays(tensor, value) for name, value in self._columns.items()})
