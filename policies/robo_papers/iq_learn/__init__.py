"""IQ-Learn: imitation by one soft Q-function."""
