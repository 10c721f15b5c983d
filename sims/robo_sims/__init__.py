"""Simulators behind one spec. The import registers the arm tasks with Gymnasium and loads no simulator."""

from robo_rl.system.opengl import prefer_headless


def register() -> None:
    """Register the arm tasks with Gymnasium; also called by Gymnasium's plug-in entry point."""
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
