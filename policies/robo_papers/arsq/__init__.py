"""ARSQ: soft Q-learning over a coarse-to-fine cube of actions."""
