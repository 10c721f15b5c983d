"""Constrained policy optimisation."""
