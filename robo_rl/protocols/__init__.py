"""Protocols of policies, learners, environments, robots and rewards."""
