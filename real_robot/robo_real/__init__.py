"""Real robots behind the same spec as simulators."""
