"""Reward models: each labels recorded episodes (`robo_rl.reward_protocols.RewardModel`) beside the recorded rewards."""
