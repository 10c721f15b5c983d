"""The bonus for subgoals, which an environment with a teacher tells of (Words as Beacons)."""
