"""Environments that are tabular MDPs with a known model: a chain with traps, random ones, four rooms."""
