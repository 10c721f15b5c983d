"""Objectives of an episode beside the sum of its rewards."""
