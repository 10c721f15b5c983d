"""A stand-in for the evaluator of the CARLA leaderboard: as much of its interface as an agent meets.

Written after `leaderboard/autoagents/autonomous_agent.py` and `leaderboard/leaderboard_evaluator.py` of
https://github.com/carla-simulator/leaderboard, which cannot be installed here: names, signatures and order of calls are theirs.
"""

import sys
import types
from enum import Enum


class Track(Enum):
    SENSORS = "SENSORS"
    MAP = "MAP"


class AutonomousAgent:
    def __init__(self, carla_host, carla_port, debug=False):
        self.track = Track.SENSORS
        self._global_plan = self._global_plan_world_coord = None

    def setup(self, path_to_conf_file):
        pass

    def sensors(self):
        return []

    def run_step(self, input_data, timestamp):
        raise NotImplementedError

    def destroy(self):
        pass

    def set_global_plan(self, global_plan_gps, global_plan_world_coord):
        self._global_plan_world_coord = global_plan_world_coord[::200]
        self._global_plan = global_plan_gps[::200]


class CarlaDataProvider:
    world = hero = None

    @staticmethod
    def get_world():
        return CarlaDataProvider.world

    @staticmethod
    def get_hero_actor():
        return CarlaDataProvider.hero


def install():
    """Put the packages where an agent file imports them from."""
    names = {
        "leaderboard": {},
        "leaderboard.autoagents": {},
        "leaderboard.autoagents.autonomous_agent": {"AutonomousAgent": AutonomousAgent, "Track": Track},
        "srunner": {},
        "srunner.scenariomanager": {},
        "srunner.scenariomanager.carla_data_provider": {"CarlaDataProvider": CarlaDataProvider},
    }
    for name, contents in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(contents)
        sys.modules[name] = module


def evaluate(carla, server, agent_module, length, seconds):
    """Drive one route as the evaluator does, 20 frames a second.

    Returns the distance [m] to its end, the largest one from the plan, types of actors that were hit, and seconds used.
    """
    client = carla.Client(server.host, server.port, worker_threads=1)
    client.set_timeout(10.0)
    world = client.get_world()
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)
    here = world.get_map().get_spawn_points()[0]
    waypoint, plan = world.get_map().get_waypoint(here.location), []
    for _ in range(length):
        plan.append((waypoint.transform, "LANEFOLLOW"))
        waypoint = waypoint.next(1.0)[0]
    library = world.get_blueprint_library()
    hero = world.spawn_actor(library.find("vehicle.lincoln.mkz_2020"), here)
    hits = []
    sensor = world.spawn_actor(library.find("sensor.other.collision"), carla.Transform(), attach_to=hero)
    sensor.listen(lambda event: hits.append(event.other_actor.type_id))
    world.tick()
    CarlaDataProvider.world, CarlaDataProvider.hero = world, hero
    agent = getattr(agent_module, agent_module.get_entry_point())(server.host, server.port, 0)
    agent.set_global_plan([None] * len(plan), plan)
    agent.setup("")
    assert agent.track == Track.MAP and agent.sensors() == []
    ends, farthest, steps = plan[-1][0].location, 0.0, 0
    for steps in range(int(seconds / 0.05)):
        control = agent.run_step({}, steps * 0.05)
        control.manual_gear_shift = False
        hero.apply_control(control)
        world.tick()
        place = hero.get_location()
        farthest = max(farthest, min(place.distance(pose.location) for pose, _ in plan))
        if place.distance(ends) < 3.0:
            break
    agent.destroy()
    sensor.stop()
    return place.distance(ends), farthest, hits, steps * 0.05
