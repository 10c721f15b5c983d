"""Reward models: they label recorded episodes (`robo_rl.protocols.rewards.RewardModel`).

Labels are stored beside the rewards.
"""
