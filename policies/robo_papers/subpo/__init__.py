"""SubPO: reward for what an episode covers for the first time."""
