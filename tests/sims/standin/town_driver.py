"""A program of a client: an agent drives from place to place in a town and reports as JSON how it kept to its lane.

The agent is CARLA's BasicAgent if CARLA_AGENTS names the folder PythonAPI/carla, and otherwise one here after the published
algorithm: the shortest way over lanes that lead to lanes and lane changes that waypoints permit, whoever goes there; strict
angles; brakes for red lights only.
"""

import heapq
import json
import math
import os
import random
import sys

import carla

STEP = 2.0
"""[m] between the points of a way."""
DRIVING = carla.LaneType.Driving


def key(waypoint):
    return waypoint.road_id, waypoint.section_id, waypoint.lane_id


class Planner:
    """Lanes as a graph: nodes are lanes, edges lead to the next lanes at the cost of the length, and beside at none."""

    def __init__(self, town):
        self.town, self.starts, self.edges = town, {}, {}
        for start, end in town.get_topology():
            self.starts.setdefault(key(start), start)
            self.edges.setdefault(key(start), {})[key(end)] = True
        self.lanes = {name: [start, *start.next_until_lane_end(STEP)] for name, start in self.starts.items()}
        for name, points in self.lanes.items():
            for point in points if not points[0].is_junction else ():
                for side, beside in (
                    (carla.LaneChange.Left, point.get_left_lane()),
                    (carla.LaneChange.Right, point.get_right_lane()),
                ):
                    if point.lane_change & side and beside is not None and beside.lane_type == DRIVING:
                        self.edges.setdefault(name, {}).setdefault(key(beside), False)

    def way(self, start, end):
        """Return the points of the shortest way between two waypoints."""
        queue, done = [(0.0, key(start), [])], set()
        while queue:
            cost, name, before = heapq.heappop(queue)
            if name == key(end):
                return self.points(start, [*before, (name, False)])
            if name not in done and name in self.lanes:
                done.add(name)
                for following, leads in self.edges.get(name, {}).items():
                    further = len(self.lanes[name]) * STEP if leads else 0.0
                    heapq.heappush(queue, (cost + further, following, [*before, (name, leads)]))
        return []

    def points(self, start, names):
        """Return the points of lanes; one that is left sideways is followed for 10 m, or for half of what is left."""
        found, here = [], start.transform.location
        for name, leads in names:
            lane = self.lanes[name]
            first = min(range(len(lane)), key=lambda index: lane[index].transform.location.distance(here))
            stop = len(lane) if leads or name == names[-1][0] else first + min(5, (len(lane) - first) // 2)
            found += lane[first:stop]
            here = found[-1].transform.location if found else here
        return found


class Agent:
    """Follows the points of a way with a pure pursuit, at 30 km/h."""

    TARGET, BASE, BRAKE = 30 / 3.6, 5.0, 0.5

    def __init__(self, ego, town, lights):
        self.ego, self.town, self.planner, self.points = ego, town, Planner(town), []
        self.lights = [(light, town.get_waypoint(self.trigger(light))) for light in lights]
        self.waits = None

    @staticmethod
    def trigger(light):
        return light.get_transform().transform(light.trigger_volume.location)

    def set_destination(self, location):
        self.points = self.planner.way(self.town.get_waypoint(self.ego.get_location()), self.town.get_waypoint(location))

    def done(self):
        return not self.points

    def run_step(self):
        pose, speed = self.ego.get_transform(), self.ego.get_velocity().length()
        while self.points and self.points[0].transform.location.distance(pose.location) < 4.0:
            self.points.pop(0)
        control = carla.VehicleControl(steer=self.steer(pose) if self.points else 0.0)
        if not self.points or self.is_at_red(pose, speed):
            control.brake = self.BRAKE
        else:
            control.throttle = min(max(0.4 * (self.TARGET - speed), 0.0), 0.75)
            control.brake = min(max(0.2 * (speed - self.TARGET), 0.0), self.BRAKE)
        return control

    def steer(self, pose):
        """Pure pursuit of the next point from the rear axle."""
        aim = self.points[0].transform.location - pose.location
        yaw = math.radians(pose.rotation.yaw)
        forward, aside = aim.x * math.cos(yaw) + aim.y * math.sin(yaw) + 1.45, aim.y * math.cos(yaw) - aim.x * math.sin(yaw)
        return min(max(math.atan(2.9 * 2 * aside / (forward**2 + aside**2)) / math.radians(40), -0.8), 0.8)

    def is_at_red(self, pose, speed):
        if self.waits is not None and self.waits.state == carla.TrafficLightState.Red:
            return True
        self.waits, here = None, self.town.get_waypoint(pose.location)
        for light, there in self.lights:
            same = there.road_id == here.road_id and there.lane_id * here.lane_id > 0
            if same and light.state == carla.TrafficLightState.Red and is_ahead(there.transform, pose, self.BASE + speed):
                self.waits = light
        return self.waits is not None


def is_ahead(target, reference, farthest):
    """Tell whether a target is near and ahead by an angle strictly between 0 and 90 degrees, as CARLA's agents do."""
    forward, to = reference.get_forward_vector(), target.location - reference.location
    distance = math.hypot(to.x, to.y)
    cosine = (forward.x * to.x + forward.y * to.y) / max(distance, 1e-9)
    return distance < 0.001 or (distance <= farthest and 0 < math.degrees(math.acos(min(max(cosine, -1.0), 1.0))) < 90)


class CarlaAgent:
    """CARLA's own BasicAgent behind the same methods, of any version."""

    def __init__(self, ego):
        from agents.navigation.basic_agent import BasicAgent

        self.agent = BasicAgent(ego, 30)
        self.done, self.run_step = self.agent.done, self.agent.run_step

    def set_destination(self, location):
        try:
            self.agent.set_destination(location)
        except TypeError:  # before 0.9.12
            self.agent.set_destination((location.x, location.y, location.z))


def synchronous(world):
    settings = world.get_settings()
    settings.synchronous_mode, settings.fixed_delta_seconds = True, 0.05
    world.apply_settings(settings)


class Report:
    """What is counted at each tick."""

    def __init__(self, ego, town):
        self.ego, self.town, self.before, self.was_red = ego, town, None, False
        self.counts = {"ticks": 0, "outside": 0, "crossed": 0, "red": 0, "trips": 0, "metres": 0.0}

    def look(self):
        pose = self.ego.get_transform()
        here = self.town.get_waypoint(pose.location, project_to_road=False, lane_type=DRIVING)
        self.counts["ticks"] += 1
        self.counts["metres"] += 0.05 * self.ego.get_velocity().length()
        along = here and math.cos(math.radians(here.transform.rotation.yaw - pose.rotation.yaw)) > 0
        self.counts["outside"] += here is None or (not here.is_junction and not along)
        if here is None:
            return
        if self.before is not None and here.is_junction and not self.before.is_junction:
            self.counts["crossed"] += 1
            self.counts["red"] += self.was_red
        is_red = self.ego.get_traffic_light_state() == carla.TrafficLightState.Red
        self.before, self.was_red = here, self.ego.is_at_traffic_light() and is_red


def main():
    port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    client = carla.Client("127.0.0.1", port)
    client.set_timeout(10.0)
    world = client.get_world()
    synchronous(world)
    town, chance, library = world.get_map(), random.Random(seed), world.get_blueprint_library()
    places = town.get_spawn_points()
    ego = world.spawn_actor(library.find("vehicle.tesla.model3"), chance.choice(places))
    hits = []
    sensor = world.spawn_actor(library.find("sensor.other.collision"), carla.Transform(), ego)
    sensor.listen(lambda event: hits.append(event.other_actor.type_id))
    world.tick()
    if os.environ.get("CARLA_AGENTS"):
        sys.path.insert(0, os.environ["CARLA_AGENTS"])
        agent = CarlaAgent(ego)
    else:
        agent = Agent(ego, town, world.get_actors().filter("*traffic_light*"))
    report = Report(ego, town)
    agent.set_destination(chance.choice(places).location)
    for _ in range(round(seconds / 0.05)):
        if agent.done():
            report.counts["trips"] += 1
            agent.set_destination(chance.choice(places).location)
        ego.apply_control(agent.run_step())
        world.tick()
        report.look()
    print("RESULT" + json.dumps(report.counts | {"hits": hits}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
