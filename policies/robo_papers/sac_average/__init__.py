"""SAC for the mean reward of a step."""
