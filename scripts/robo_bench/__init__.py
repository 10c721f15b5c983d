"""Benchmarks against peers: in a checkout, not in the wheel."""
