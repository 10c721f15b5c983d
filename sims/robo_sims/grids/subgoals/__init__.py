"""Subgoals of a level, named by a teacher: perfect, noisy, or a language model."""
