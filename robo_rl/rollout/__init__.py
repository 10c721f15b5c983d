"""Rollouts: playing episodes with a policy, supervised or not."""

from robo_rl.rollout.episode import RandomPolicy, RecordedRollout, Rollout, end_of, rollout, stacked_terms

__all__ = ["RandomPolicy", "RecordedRollout", "Rollout", "end_of", "rollout", "stacked_terms"]
