"""Reward models: each labels recorded episodes (`robo_rl.protocols.rewards.RewardModel`) next to the recorded rewards."""
