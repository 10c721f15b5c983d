"""Benchmarks beside their peers: in a checkout, not in the wheel."""
