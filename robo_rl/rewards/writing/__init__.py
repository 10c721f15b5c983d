"""Reward programs written by a language model (Text2Reward)."""
