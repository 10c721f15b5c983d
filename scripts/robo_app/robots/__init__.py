"""Robots that a command brings along."""
