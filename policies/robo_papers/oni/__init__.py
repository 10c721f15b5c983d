"""Intrinsic rewards from a language model that reads descriptions of an agent's steps while it learns (ONI)."""
