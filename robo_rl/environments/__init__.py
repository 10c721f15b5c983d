"""Environments: made by name, wrapped, and stepped singly or as vector environments."""
