"""SubPO: coverage, what is seen for the first time."""
