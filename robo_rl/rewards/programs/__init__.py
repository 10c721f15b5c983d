"""Reward programs: short numpy functions that a language model or a person wrote, checked first, run in a confined process."""
