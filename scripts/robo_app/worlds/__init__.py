"""Worlds beside the environments that they were learned from: trials of policies, and films."""
