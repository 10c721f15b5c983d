"""Rewards that are designed from a known model."""
