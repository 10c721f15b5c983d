"""Audit of a reward model: agreement with the recorded truth, response to spoilt clips, and a verdict on training with it."""
