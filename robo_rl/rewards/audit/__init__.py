"""Audit of a reward: its agreement with the recorded truth, its scores of spoilt clips, and a verdict."""
