"""Contrasting language goals, and driving as fast as looks safe (VLM-RL)."""
