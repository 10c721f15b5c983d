"""Recipes: reading them, filling in defaults, making the environments and rewards that they name."""
