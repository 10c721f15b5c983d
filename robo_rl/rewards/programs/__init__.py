"""Reward programs: short numpy functions written by a language model or a person, checked first, run in a confined process."""
