"""Reward models: each labels recorded episodes (`robo_rl.protocols.rewards.RewardModel`) beside the recorded rewards."""
