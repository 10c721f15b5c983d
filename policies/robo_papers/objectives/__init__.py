"""Objectives beside the sum of an episode's rewards: the largest, the smallest, the worst returns."""
