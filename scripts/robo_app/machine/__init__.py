"""Checks of this machine and its packages."""
