"""Rewards of preferences, and the raters that compare segments."""
