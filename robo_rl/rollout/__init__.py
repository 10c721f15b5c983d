"""Rollouts: episodes of a policy, and human interventions."""

from robo_rl.rollout.episode import RandomPolicy, RecordedRollout, Rollout, end_of, rollout, stacked_terms

__all__ = ["RandomPolicy", "RecordedRollout", "Rollout", "end_of", "rollout", "stacked_terms"]
