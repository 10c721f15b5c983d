"""The episode store and foreign dataset formats."""
