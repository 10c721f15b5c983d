"""Samplers of curricula, and what they do for locks, rooms and hints."""
