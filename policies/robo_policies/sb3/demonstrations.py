"""Start an SB3 model from demonstrations: transitions into the replay, or the policy network fitted to the actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import maybe_transpose
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecNormalize

from robo_policies.sb3.policy_input import Input, PolicyInput
from robo_policies.sb3.state import map_arrays
from robo_rl.errors import InvalidSetting, SpecMismatch
from robo_rl.fitting import fit
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.types import Array, Episode

CLONE_LEARNING_RATE = 1e-3
"""Learning rate of behaviour cloning, Adam's default."""
CLONE_BATCH_SIZE = 64


def require_same_environment(episodes: Sequence[Episode], spec: EnvironmentSpec) -> None:
    """Raise SpecMismatch unless every episode was recorded in an environment with this spec."""
    for index, episode in enumerate(episodes):
        if episode.spec_fingerprint != spec.fingerprint:
            difference = f"fingerprint: {episode.spec_fingerprint!r} of episode {index}, {spec.fingerprint!r} of {spec.name}"
            raise SpecMismatch("Demonstrations and environment", [difference], fix="record demonstrations in this environment")


def fill_replay(model: OffPolicyAlgorithm, spec: EnvironmentSpec, episodes: Sequence[Episode]) -> None:
    """Add all transitions of recorded episodes to a model's replay.

    Actions are those that were executed; time limits are stored as such, not as terminations. Raises InvalidSetting if the
    replay is too small.
    """
    replay = model.replay_buffer
    assert replay is not None
    rows = sum(len(episode) for episode in episodes)
    if rows > replay.buffer_size * replay.n_envs:
        allowed = replay.buffer_size * replay.n_envs
        raise InvalidSetting(
            "The replay is smaller than the demonstrations.", got=rows, allowed=allowed, fix="raise buffer_size"
        )
    view = PolicyInput(spec.observation)
    inputs = [as_model_sees(model, view(episode.observations)) for episode in episodes]
    _update_statistics(model.get_vec_normalize_env(), inputs)
    before = _joined([_select(value, slice(None, -1)) for value in inputs])
    after = _joined([_select(value, slice(1, None)) for value in inputs])
    actions, rewards = (np.concatenate([getattr(episode, name) for episode in episodes]) for name in ("actions", "rewards"))
    ends = np.concatenate([np.arange(1, len(episode) + 1) == len(episode) for episode in episodes])
    timeouts = np.concatenate([np.full(len(episode), not episode.terminated) for episode in episodes]) & ends
    # SB3 adds one row per environment at a time; the last call is filled up with the first rows.
    for chosen in np.resize(np.arange(rows), -(-rows // replay.n_envs) * replay.n_envs).reshape(-1, replay.n_envs):
        infos = [{"TimeLimit.truncated": bool(timeouts[row])} for row in chosen]
        replay.add(_select(before, chosen), _select(after, chosen), actions[chosen], rewards[chosen], ends[chosen], infos)


def clone_targets(
    model: OnPolicyAlgorithm, spec: EnvironmentSpec, episodes: Sequence[Episode], expert: Policy | None
) -> tuple[Any, torch.Tensor]:
    """Return the observations (T, ...) of all demonstrations as the model reads them, and the actions to clone (T, ...).

    The actions are those that were executed, or the deterministic ones of `expert` if given.
    """
    view = PolicyInput(spec.observation)
    inputs = [as_model_sees(model, view(episode.observations)) for episode in episodes]
    normalizer = model.get_vec_normalize_env()
    _update_statistics(normalizer, inputs)
    observations = _joined([_select(value, slice(None, -1)) for value in inputs])
    seen = observations if normalizer is None else normalizer.normalize_obs(observations)
    actions = np.concatenate([_targets(episode, expert) for episode in episodes])
    return obs_as_tensor(seen, model.device), torch.as_tensor(actions, device=model.device)


def clone_policy(model: OnPolicyAlgorithm, observations: Any, actions: torch.Tensor, *, epochs: int) -> None:
    """Fit the policy by maximising the likelihood of the actions; the critic is not changed.

    The order of batches comes from its own generator, so that SB3's random numbers stay those of its seed.
    """
    optimizer = torch.optim.Adam(model.policy.parameters(), lr=CLONE_LEARNING_RATE)
    shuffle = np.random.default_rng(model.seed)
    batches = -(-len(actions) // CLONE_BATCH_SIZE)
    model.policy.set_training_mode(True)

    def loss(rows: Array) -> torch.Tensor:
        _, log_likelihood, _ = model.policy.evaluate_actions(_select(observations, rows), actions[rows])
        return -log_likelihood.mean()

    orders = (shuffle.permutation(len(actions)) for _ in range(epochs))
    data = (rows for order in orders for rows in np.array_split(order, batches))
    fit(model.policy, data, loss, optimizer, title="cloning")


def _targets(episode: Episode, expert: Policy | None) -> Array:
    if expert is None:
        return episode.actions
    expert.reset()
    rows = ({name: value[t] for name, value in episode.observations.items()} for t in range(len(episode)))
    return np.stack([expert.act(row, deterministic=True) for row in rows])


def as_model_sees(model: OffPolicyAlgorithm | OnPolicyAlgorithm, value: Input) -> Input:
    """Return observations with the axes of images as the model reads them, with channels first if SB3 wants that."""
    if isinstance(value, dict):
        assert isinstance(model.observation_space, gymnasium.spaces.Dict)
        return {key: maybe_transpose(item, model.observation_space[key]) for key, item in value.items()}
    return value


def _update_statistics(normalizer: VecNormalize | None, inputs: Sequence[Input]) -> None:
    if normalizer is None or not normalizer.norm_obs:
        return
    statistics: Any = normalizer.obs_rms
    for value in inputs:
        if isinstance(value, dict):
            for key in statistics:
                statistics[key].update(value[key])
        else:
            statistics.update(value)


def _joined(values: Sequence[Input]) -> Input:
    first = values[0]
    if isinstance(first, dict):
        return {key: np.concatenate([value[key] for value in values]) for key in first}
    return np.concatenate([value for value in values if not isinstance(value, dict)])  # all are of one kind


def _select(value: Any, rows: Any) -> Any:
    return map_arrays(lambda array: array[rows], value)
