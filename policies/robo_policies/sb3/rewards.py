"""Rewards of a model for Stable-Baselines3: they replace the environment's rewards before SB3 learns from them.

SB3 stores each step through one method of its replay, and computes advantages through one of its rollout memory; these two
calls insert the rewards, so that SB3's own loops stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from robo_policies.sb3.executed import READ, cut_newest
from robo_policies.sb3.state import map_arrays
from robo_rl.errors import RewardUnavailable
from robo_rl.protocols.rewards import DelayedRewards
from robo_rl.training.advantages import generalized_advantages
from robo_rl.training.delayed_rewards import require_unchanging
from robo_rl.types import Array, StepRewards

LIMIT = "TimeLimit.truncated"
SEEN = "seen_by_reward"
"""Key in `info` of the whole observation, which only the reward model reads."""


class RewardedEnvironments(VecEnvWrapper):
    """Wrapper of a vector environment that returns rewards of 0, and passes each step to a reward model.

    The model's rewards come later. The environment's own reward counts only in the reported return of an episode.
    """

    def __init__(self, environments: VecEnv, rewards: DelayedRewards, instruction: str | None) -> None:
        super().__init__(environments)
        self._rewards, self._instruction = rewards, instruction

    def reset(self) -> Any:
        """Begin an episode in each environment; steps that wait for their rewards are dropped."""
        observations = self.venv.reset()
        self._rewards.restart()
        for index in range(self.num_envs):
            self._begin(index)
        return observations

    def step_async(self, actions: Array) -> None:
        """Store the actions that `step_wait` will execute."""
        self._actions = np.array(actions)
        super().step_async(actions)

    def step_wait(self) -> Any:
        """Take a step, and return 0 for all rewards; SB3 adds bootstrapped values at time limits to them."""
        observations, rewards, ended, infos = self.venv.step_wait()
        for index, info in enumerate(infos):
            truncated = bool(ended[index] and info[LIMIT])
            self._rewards.add(
                index,
                info.pop(SEEN),
                action=np.asarray(info.get("executed_action", self._actions[index])),
                reward=float(rewards[index]),
                terminated=bool(ended[index]) and not truncated,
                truncated=truncated,
            )
            if ended[index]:
                self._begin(index)
        return observations, np.zeros_like(rewards), ended, infos

    def _begin(self, index: int) -> None:
        info = self.venv.reset_infos[index]
        self._rewards.begin(index, info[SEEN], info.get("instruction", self._instruction))


def reward_by_model(model: Any, rewards: DelayedRewards) -> None:
    """Make an SB3 model learn from the rewards of a reward model; its environments must be RewardedEnvironments."""
    require_unchanging(rewards)
    if isinstance(model, OffPolicyAlgorithm):
        assert model.replay_buffer is not None
        model.replay_buffer.add = WaitingRows(model, model.replay_buffer, rewards).add  # type: ignore[method-assign]  # SB3 has no hook
    elif isinstance(model, OnPolicyAlgorithm):
        waiting = WaitingRollout(model.rollout_buffer, rewards)
        model.rollout_buffer.compute_returns_and_advantage = waiting.compute  # type: ignore[method-assign]  # SB3 has no hook


class WaitingRows:
    """Stands before SB3's replay memory: holds rows until their rewards are known, then stores them.

    A row is one step of each environment. A row with a missing reward is left out. The row before it is marked as ended by a
    time limit, because SB3 sums rewards over successive rows if n_steps is above 1.
    """

    def __init__(self, model: OffPolicyAlgorithm, replay: ReplayBuffer, rewards: DelayedRewards) -> None:
        self._model, self._replay, self._rewards = model, replay, rewards
        self._store = replay.add
        self._rows: list[tuple[Any, ...]] = []

    def add(self, obs: Any, next_obs: Any, action: Array, reward: Array, done: Array, infos: list[dict[str, Any]]) -> None:
        """Add a row; once enough rows wait, or if the replay is empty, all of them are rewarded and stored."""
        del reward
        limits = [{LIMIT: info.get(LIMIT, False)} | {name: info[name] for name in READ if name in info} for info in infos]
        self._rows.append((map_arrays(np.array, obs), map_arrays(np.array, next_obs), np.array(action), np.array(done), limits))
        if self._rewards.is_due or not self._replay.size():
            self._enter()

    def _enter(self) -> None:
        values, valid, ends = _by_row(self._rewards.score(), self._replay.n_envs)
        for row, value, is_valid, is_end in zip(self._rows, values, valid, ends, strict=True):
            obs, next_obs, action, done, limits = row
            if is_valid.all():
                open_limits = [limit | {LIMIT: limit[LIMIT] and not end} for limit, end in zip(limits, is_end, strict=True)]
                self._store(obs, next_obs, action, value, done | is_end, open_limits)
            else:
                cut_newest(self._replay)
        self._rows = []
        if not self._replay.size() and self._model.num_timesteps > self._model.learning_starts:
            raise RewardUnavailable(
                "Learning would start, and no step has a label.",
                got=f"{self._model.num_timesteps} steps",
                allowed="at least one with a label",
                fix="look at the answers of the reward model, or raise learner.learning_starts",
            )


class WaitingRollout:
    """Inserts the rewards of a reward model into SB3's full rollout, before SB3 computes advantages."""

    def __init__(self, rollout: RolloutBuffer, rewards: DelayedRewards) -> None:
        self._rollout, self._rewards = rollout, rewards
        self._compute = rollout.compute_returns_and_advantage

    def compute(self, last_values: torch.Tensor, dones: npt.NDArray[Any]) -> None:
        """Put the model's rewards into SB3's rollout, then compute its advantages and returns.

        Before, the rollout's rewards hold only the bootstrapped values gamma V at time limits. The rewards are added to them;
        at an end that the model found, the reward replaces the value. A step without a reward ends the sum of advantages
        before it, and is overwritten by a copy of another step.

        Args:
            last_values: Values (N,) of the observations after the last step.
            dones: (N,) whether the episodes ended at the last step.
        """
        rollout = self._rollout
        values, valid, ends = _by_row(self._rewards.score(), rollout.n_envs)
        rollout.rewards[:] = np.where(ends, values, rollout.rewards + values)  # no bootstrap at an end
        rollout.episode_starts[1:] = np.maximum(rollout.episode_starts[1:], ends[:-1])
        dones = np.logical_or(dones, ends[-1])
        self._compute(last_values, dones)
        if not valid.all():
            self._end_before_gaps(valid, last_values.clone().cpu().numpy().flatten(), dones)
        if valid.any() and not valid.all():
            self._fill_gaps(valid)

    def _end_before_gaps(self, valid: npt.NDArray[np.bool_], last_values: Array, dones: npt.NDArray[Any]) -> None:
        """Compute advantages as SB3 does, except that a step without a reward ends the sum, with the value of its state."""
        rollout = self._rollout
        rollout.advantages[:] = generalized_advantages(
            rollout.rewards,  # with the values at time limits
            np.vstack((rollout.values, last_values)),
            discount=rollout.gamma,
            gae_lambda=rollout.gae_lambda,
            ended=np.vstack((rollout.episode_starts[1:], np.asarray(dones))) > 0,
            final_values=np.zeros_like(rollout.values),
            valid=valid,
        )
        rollout.returns = rollout.advantages + rollout.values

    def _fill_gaps(self, valid: npt.NDArray[np.bool_]) -> None:
        """Replace steps without a reward by copies of other steps, because SB3 learns from whole rollouts only."""
        gaps, others = np.argwhere(~valid), np.argwhere(valid)
        chosen = others[np.arange(len(gaps)) % len(others)]
        for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
            stored = getattr(self._rollout, name)
            for array in stored.values() if isinstance(stored, dict) else [stored]:
                array[tuple(gaps.T)] = array[tuple(chosen.T)]


def _by_row(rewards: StepRewards, environments: int) -> tuple[Array, Array, Array]:
    """Return rewards, validity and ends of the steps, each (rows, environments)."""
    labels = rewards.labels
    values, valid, ends = (part.reshape(-1, environments) for part in (labels.values, labels.valid, rewards.ends))
    return values, valid, ends
