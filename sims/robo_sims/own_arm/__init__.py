"""Simulated arm of an owner: described by an MJCF or URDF file, with a task that the owner writes."""
