"""Subgoals of a level, listed by a teacher before it is played (Words as Beacons)."""
