"""Subgoals of a level from a teacher: perfect, noisy, or a language model."""
