"""Simulated environments that all have one interface.

Importing this package registers the arm tasks with Gymnasium; it loads no simulator.
"""

from robo_rl.system.opengl import prefer_headless


def register() -> None:
    """Register the arm tasks with Gymnasium; Gymnasium also calls it through its plug-in entry point."""
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
