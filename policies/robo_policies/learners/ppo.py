"""Proximal policy optimisation as recipes name it: the learner is in `ppo_learner.py`, its settings in `ppo_settings.py`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from robo_policies.learners.ppo_learner import FEWEST, PPO
from robo_policies.learners.ppo_policy import PPOPolicy
from robo_policies.learners.ppo_settings import PPOSettings
from robo_rl.contract import ANY_SPACE, COLLECTED_ROLLOUTS, ROLLOUTS, Needs
from robo_rl.errors import InvalidSetting
from robo_rl.on_policy import OnPolicyTraining, make_vector
from robo_rl.protocols import Policy
from robo_rl.reward_protocols import OnlineRewards
from robo_rl.spec import EnvironmentSpec, specification
from robo_rl.types import Episode, StateDict


@dataclass(frozen=True)
class PPOConfig(PPOSettings):
    """Settings of PPO; defaults are those of Stable-Baselines3's PPO unless a field says otherwise."""

    needs = Needs((ROLLOUTS, COLLECTED_ROLLOUTS), ANY_SPACE)

    def build(self, spec: EnvironmentSpec, seed: int, *, steps: int = 0) -> PPO:
        """Returns a fresh learner, whose learning rate falls over so many steps; 0: it stays.

        Raises InvalidSetting if the steps are fewer than one of every environment.
        """
        if 0 < steps < max(self.num_envs, FEWEST):
            raise InvalidSetting(
                "The training is shorter than one step of all environments.",
                got=f"{steps} steps, {self.num_envs} environments",
                allowed=f"{max(self.num_envs, FEWEST)} steps or more",
                fix="more --steps, or fewer --learner.num-envs with a --learner.batch-size that divides their rollout",
            )
        return PPO(spec, self, seed, rollouts=math.ceil(steps / self.rollout_size))

    def training(
        self,
        environment_factory: Callable[[], gymnasium.Env[Any, Any]],
        *,
        steps: int,
        seed: int,
        demonstrations: Sequence[Episode] = (),
        initial_policy: Policy | None = None,
        reward: OnlineRewards | None = None,
    ) -> OnPolicyTraining:
        """Returns a training at step 0; raises InvalidSetting where there are demonstrations, which PPO cannot use."""
        if demonstrations or initial_policy is not None:
            raise InvalidSetting(
                "PPO learns from its own actions alone.",
                got=f"{len(demonstrations)} demonstrations, {'an' if initial_policy is not None else 'no'} initial policy",
                fix="leave them out, or use rlpd, bc, or sb3-ppo with clone_epochs",
            )
        environments, spec = make_vector(environment_factory, self.num_envs)
        if reward is None:
            return OnPolicyTraining(environments, self.build(spec, seed, steps=steps), steps=steps, seed=seed)
        learner = self.build(reward.visible(spec), seed, steps=steps)
        return OnPolicyTraining(environments, learner, steps=steps, seed=seed, rewards=reward.running(self.num_envs))

    def restored_policy(
        self, environment_factory: Callable[[], gymnasium.Env[Any, Any]], *, seed: int, state: StateDict
    ) -> PPOPolicy:
        """Returns the policy of a saved training."""
        environment = environment_factory()
        learner = self.build(specification(environment), seed)
        environment.close()
        learner.load_state_dict(state["learner"])
        return learner.policy
