"""Recorded episodes: a store that loses none, and foreign dataset formats."""
