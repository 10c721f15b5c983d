"""Environments: discovery by name, batches, stepping, relative frames."""
