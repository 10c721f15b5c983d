"""Environments: made by name, wrapped, stepped singly or as vector environments."""
