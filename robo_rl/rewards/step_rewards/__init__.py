"""Rewards of single steps: their data, their context, scorers, and their use while a policy acts."""

from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import Steps, StepScores

__all__ = ["Place", "StepReward", "StepScores", "Steps"]
