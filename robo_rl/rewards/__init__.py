"""Reward models, which label the steps of recorded episodes with rewards (`robo_rl.protocols.rewards.RewardModel`).

Labels are stored beside the recorded rewards.
"""
