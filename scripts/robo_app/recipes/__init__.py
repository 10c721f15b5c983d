"""Recipes (YAML files with all settings of a training): reading them, and making what they name."""
