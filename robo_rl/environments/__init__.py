"""Environments: made by name, batches, stepping, relative frames."""
