"""Agent file of the CARLA leaderboard that drives with the policy of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import robo_rl
from robo_rl.environments.wrapping import in_evaluations
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.runs.run import Run
from robo_rl.system.durable_files import write_durably

if TYPE_CHECKING:
    from robo_sims.carla.route_driver import RouteDriver

FAMILY = "carla/"
AGENT = '''"""Agent of the CARLA leaderboard, written by `robo-rl drive agent`: it drives with the policy of a run.

leaderboard_evaluator.py --track MAP --agent {file} --routes ROUTES.xml
"""

from leaderboard.autoagents.autonomous_agent import AutonomousAgent, Track
from srunner.scenariomanager.carla_data_provider import CarlaDataProvider

from robo_app.robots.leaderboard_agent import driver_of

RUN = {run!r}
STEP = {step!r}


def get_entry_point():
    """Return the name of the agent's class."""
    return "RunAgent"


class RunAgent(AutonomousAgent):
    """Drives with the policy of a run, which sees map, route and all actors through the client."""

    def setup(self, path_to_conf_file):
        """Load the policy; the configuration file is not read."""
        self.track, self.is_driving = Track.MAP, False
        self.driver = driver_of(RUN, STEP)

    def set_global_plan(self, global_plan_gps, global_plan_world_coord):
        """Keep the whole route, of which the leaderboard gives points 200 m apart."""
        super().set_global_plan(global_plan_gps, global_plan_world_coord)
        self.plan = [pose for pose, _ in global_plan_world_coord]

    def sensors(self):
        """Return the front camera, if the policy has one."""
        return self.driver.sensors()

    def run_step(self, input_data, timestamp):
        """Return the car's control."""
        world = CarlaDataProvider.get_world()
        if not self.is_driving:
            self.driver.begin(world, CarlaDataProvider.get_hero_actor(), self.plan)
            self.is_driving = True
        return self.driver.control(world, timestamp, input_data)
'''
"""Python source of the agent file, with placeholders: {run} folder of the run, {step} step of its policy or None for the
newest."""


def write_agent(run: Run, out: Path, step: int | None = None) -> None:
    """Write the agent file of a run; raises InvalidSetting unless it drives, as `Run.policy` if it has no such policy."""
    if not str(_environment(run)["name"]).startswith(FAMILY):
        raise InvalidSetting("This run drives no car.", got=_environment(run)["name"], allowed=f"a run on {FAMILY}...")
    run.policy(step)
    text = AGENT.format(run=os.fspath(run.path.resolve()), step=step, file=out.name)
    write_durably(out, text.encode())


def driver_of(run: str, step: int | None = None) -> RouteDriver:
    """Return a driver with the policy of a run's folder."""
    from robo_sims.carla.route_driver import RouteDriver  # needs the client's package

    opened = robo_rl.open_run(run)
    policy: Policy = opened.policy(step)
    chosen = _environment(opened)
    arguments = {**chosen.get("arguments", {}), "host": None}
    wrappers = in_evaluations(chosen.get("wrappers", ()))
    return RouteDriver(policy, robo_rl.make_environment(chosen["name"], wrappers=wrappers, **arguments))


def _environment(run: Run) -> dict[str, Any]:
    return dict(run.recipe["environment"])
