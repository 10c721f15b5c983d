"""Tabletop tasks for a seven-axis arm with a parallel gripper."""
