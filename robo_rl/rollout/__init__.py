"""Rollouts: playing episodes with a policy, with or without a supervisor who may override its actions."""

from robo_rl.rollout.episode import RandomPolicy, RecordedRollout, Rollout, end_of, rollout, stacked_terms

__all__ = ["RandomPolicy", "RecordedRollout", "Rollout", "end_of", "rollout", "stacked_terms"]
