"""Interfaces (typing.Protocol) of policies, learners, environments, robots and rewards."""
