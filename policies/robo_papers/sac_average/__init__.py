"""SAC that maximises the mean reward of a step, without a discount."""
