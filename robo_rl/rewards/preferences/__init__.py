"""Rewards learned from preferences, and raters that compare segments of episodes."""
