"""Environments inside learned worlds, one or many at once: `world:FOLDER`."""
