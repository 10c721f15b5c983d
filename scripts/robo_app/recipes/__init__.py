"""Recipes: reading, defaults, environments and rewards that they name."""
