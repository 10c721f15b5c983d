"""The bonus for subgoals of an environment with a teacher (Words as Beacons)."""
