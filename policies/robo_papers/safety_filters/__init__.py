"""Filters between policy and environment: barriers, and a shield that looks ahead."""
