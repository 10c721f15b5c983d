"""Shaping: stages after a reward, and several rewards as one."""
