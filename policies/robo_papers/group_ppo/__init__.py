"""Group PPO: which step made the difference."""
