"""Reward models: each labels recorded episodes (robo_rl.protocols.RewardModel) beside the recorded rewards, not over them."""
