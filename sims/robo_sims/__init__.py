"""Simulators behind one spec."""


def register() -> None:
    """Registers our own tasks with Gymnasium."""
