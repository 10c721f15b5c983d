"""Subgoals of a level from a teacher: environments, tracking, encodings, teachers."""
