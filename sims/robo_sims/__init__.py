"""Simulators behind one spec. Importing this registers our own tasks with Gymnasium and loads no simulator."""

from robo_sims.rendering import prefer_headless


def register() -> None:
    """Registers our own tasks with Gymnasium; Gymnasium also calls it by itself, through its plug-in entry point."""
    from gymnasium.envs import registration

    from robo_sims.arm.family import NAMES

    for name in NAMES:
        if f"robo/{name}" not in registration.registry:
            registration.register(
                f"robo/{name}",
                entry_point="robo_sims.arm.environment:ArmEnv",
                vector_entry_point="robo_sims.arm.batch:build",
                kwargs={"task": name},
            )


prefer_headless()
register()
