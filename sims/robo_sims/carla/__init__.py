"""Driving in CARLA: a light stand-in for its server, and what speaks to any of the two."""
