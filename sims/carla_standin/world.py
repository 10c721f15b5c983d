"""One world: the map, the actors, and a simulation step."""

from __future__ import annotations

import math
import time
from dataclasses import replace

from carla_standin import blueprints, layouts
from carla_standin.actors import Actor, Bodies, Box, rows_of
from carla_standin.attachments import Attachments
from carla_standin.clock import RATE, Clock
from carla_standin.collisions import Collisions, Hit
from carla_standin.errors import Refused
from carla_standin.free_fall import FreeFall
from carla_standin.lights import Lights
from carla_standin.local_streams import Outlet
from carla_standin.maps.navigation import distance
from carla_standin.maps.town import Town
from carla_standin.physics.parameters import BY_NAME as VEHICLES
from carla_standin.physics.parameters import GRIP, Vehicle
from carla_standin.poses import Pose, combined
from carla_standin.props import PROPS
from carla_standin.road_context import RoadContext
from carla_standin.sensors.registry import KINDS
from carla_standin.sensors.scene import Boxes, Scene
from carla_standin.sensors.sensor import Sensor
from carla_standin.settings import Settings
from carla_standin.signs import Signs
from carla_standin.traffic.cars import Cars
from carla_standin.vehicles import MODELS, Driven
from carla_standin.walkers import Walkers

FIRST_ID = 1
"""Id of the spectator; ids count from it in every episode."""
ABOVE: Pose = [[0.0, 0.0, 20.0], [-30.0, 0.0, 0.0]]
"""Initial pose of the spectator, the actor whose camera shows the server's view: 20 m above the origin."""
WALKER_SIZE = (0.4, 0.4, 1.8)
CHILD_SIZE = (0.35, 0.35, 1.2)
LEADER = "controller.ai.walker"
ASTRAY = 10.0
"""Largest distance [m] of a walker with the client's AI from a pavement; the client itself searches within 12 m."""
MOST_GRIP = 10.0
"""Largest coefficient of friction of a vehicle."""
LONGEST = 0.1
"""Longest step [s] of motion, so that no car passes through another. A longer step is simulated in several parts."""
CALM = [0.0] * 4 + [0.0, 60.0] + [0.0] * 8
"""Parameters of the weather, in CARLA's order: a clear noon."""


class World:
    """Simulated world of one server: town, actors, traffic, sensors and clock."""

    def __init__(
        self, town: Town, streams: Outlet, *, physics: str = "kinematic", rate: float = RATE, grip: float = GRIP
    ) -> None:
        """Create the world and begin an episode in a town.

        Args:
            town: Map of the first episode.
            streams: Sends the sensors' measurements.
            physics: Motion model of clients' vehicles, "kinematic" or "dynamic".
            rate: Simulated steps per second while no client sets a step.
            grip: Coefficient of friction of clients' vehicles whose blueprint has none of its own.
        """
        self.streams, self.physics, self.grip = streams, physics, grip
        self.clock = Clock(rate)
        self.settings = Settings()
        self.weather = list(CALM)
        self.episode = 0
        self.next_stream = layouts.WORLD_STREAM + 1
        self.town, self.map_changed = town, True
        self.begin(town)

    def begin(self, town: Town) -> None:
        """Start an episode on a map, with the spectator as the only actor."""
        # The same map is not reported as a change: the client would query lamps in a thread whose errors end its process.
        self.map_changed |= town is not self.town
        self.town = town
        self.episode += 1
        self.clock.restart()
        self.next_id = FIRST_ID
        self.bodies = Bodies()
        self.attachments = Attachments()
        self.driven = {name: Driven(name) for name in MODELS}
        self.road_context = RoadContext(town.ground)
        self.collisions = Collisions(town.buildings)
        self.hits: list[Hit] = []
        self.walkers = Walkers()
        self.falling = FreeFall()
        self.lamps: dict[int, int] = {}
        self.gains: dict[int, list[float]] = {}
        """Id of a vehicle -> gains of its Ackermann controller, if a client has set them."""
        self.lights, self.signs = Lights(town), Signs(town)
        if not town.ground.lights.any():
            town.ground.mark_lights([place.areas() for place in self.lights.places])
            places = (*self.lights.places, *self.signs.stops())
            town.ground.mark_stops(line for place in places for line in place.lines())
        self.cars = Cars(town, self.lights)
        self.scene = Scene(town.buildings, Boxes.joined([self.signs.boxes(), self.lights.boxes()]))
        self.is_scene_stale = True
        self.sensors: list[Sensor] = []
        self.has_looked = False
        self.is_prepared = True
        self.spectator = self._add(Actor(FIRST_ID, "spectator", {}, [0, "spectator", []]), ABOVE)
        self.next_id = self.lights.appear(self.bodies, self.next_id)
        self.next_id = self.signs.appear(self.bodies, self.next_id)
        self.reindex()

    # actors

    def actor(self, number: object) -> Actor:
        """Return an actor by its id; raises Refused if there is none."""
        found = self.bodies.by_id.get(number) if isinstance(number, int) else None
        if found is None:
            raise Refused(f"actor {number} does not exist")
        return found

    def spawn(self, description: list[object], pose: Pose, parent: int = 0) -> Actor:
        """Return a new actor; raises Refused for an unknown blueprint, or if the place is occupied."""
        type_id, given = str(description[1]), description[2]
        blueprint = blueprints.BY_NAME.get(type_id)
        if blueprint is None or not isinstance(given, list):
            raise Refused(f"the stand-in has no blueprint {type_id!r}")
        holder = self.actor(parent) if parent else None
        placed = pose if holder is None else combined(self.bodies.motion[holder.row, :6], pose)
        actor = Actor(self.next_id, type_id, blueprint.values(given), description)
        actor.place = len(self.bodies) + 1 - len(self.signs)
        actor.box, actor.tag = shape_of(type_id)
        drives_itself = actor.attributes.get("driver") == "traffic"
        if actor.has_body:
            placed = self._settled(actor, grounded(placed) if drives_itself else placed)
            if not self.collisions.is_free(self.bodies, actor, placed):
                self.falling.forget(actor)
                raise Refused("Spawn failed because of collision at spawn position")
        if drives_itself and type_id.startswith("vehicle."):
            self.cars.check(placed)
        elif drives_itself:
            self.walkers.direct(actor, placed[1][1])
        if type_id == LEADER and holder is not None:
            self._require_pavement(holder)
        if type_id in VEHICLES:
            actor.stock = self._stock(actor)
        self._equip(actor)
        self._add(actor, placed)
        if holder is not None:
            actor.parent = holder.id
            self.attachments.poses[actor] = pose
        if type_id.startswith("vehicle."):
            self.cars.add(actor, self.bodies) if drives_itself else self.driver_of(actor)
        self.reindex()
        return actor

    def _stock(self, actor: Actor) -> Vehicle:
        """Return the parameters of a new vehicle: those of its kind with the grip of its blueprint or of the server."""
        text = actor.attributes.get("grip", "")
        try:
            grip = float(text) if text else self.grip
        except ValueError:
            grip = math.nan
        if not 0.0 <= grip <= MOST_GRIP:
            raise Refused(
                "A vehicle's grip is no coefficient of friction.", got=text, allowed=f"0 to {MOST_GRIP:g}, or nothing"
            )
        return replace(VEHICLES[actor.type_id], grip=grip)

    def _require_pavement(self, walker: Actor) -> None:
        """Raise Refused if a client would find no path for a walker and end in a segmentation fault."""
        if not self.town.navigation:
            return
        x, y = self.bodies.motion[walker.row, :2].tolist()
        away = distance(self.town.pavements, x, -y)
        if away > ASTRAY:
            raise Refused(
                f"Walker {walker.id} is too far from a pavement to be led: the client would crash.",
                got=f"{away:.1f} m",
                allowed=f"up to {ASTRAY:g} m",
                fix="spawn walkers at world.get_random_location_from_navigation()",
            )

    def _add(self, actor: Actor, pose: Pose) -> Actor:
        self.next_id += 1
        self.bodies.add(actor, pose)
        return actor

    def _equip(self, actor: Actor) -> None:
        """Create the sensor and the stream of an actor."""
        if actor.type_id in KINDS:
            self.sensors.append(KINDS[actor.type_id](actor, self))
            actor.stream, self.next_stream = self.next_stream, self.next_stream + 1
            actor.token = layouts.token(actor.stream, self.streams.port)

    def driver_of(self, actor: Actor) -> None:
        """Add a vehicle to those that follow its physical model."""
        group = self.driven[actor.attributes["dynamics"] or self.physics]
        group.keep([*group.actors, actor])
        group.place(actor, self.bodies)

    def place(self, actor: Actor, pose: Pose) -> None:
        """Move an actor to a pose, at rest."""
        was_aloft = actor.is_aloft
        if actor in self.cars.actors:
            self.cars.check(pose)
            self.bodies.place(actor, grounded(pose))
            self.cars.remove(actor)
            self.cars.add(actor, self.bodies)
            self.reindex()
            return
        self.bodies.place(actor, self._settled(actor, pose) if actor.has_body else pose)
        for group in self.driven.values():
            if actor in group.actors:
                group.place(actor, self.bodies)
        if actor.is_aloft != was_aloft:
            self.reindex()

    def lead(self, actor: Actor, pose: Pose, speed: float) -> None:
        """Move a walker to the pose of its client's AI controller; snapshots report it as moving at a speed [m/s]."""
        if not actor.type_id.startswith("walker."):
            raise Refused(f"actor {actor.id} ({actor.type_id}) is no walker")
        before = self.bodies.motion[actor.row, :2].copy()
        self.place(actor, pose)
        self.walkers.lead(actor, self.bodies.motion[actor.row, :2] - before, speed)

    def _settled(self, actor: Actor, pose: Pose) -> Pose:
        return self.falling.settled(actor, pose)

    def set_physics(self, actor: Actor, enabled: bool) -> None:
        """Freeze or release a vehicle, at rest, and on the ground if it is near; walkers are not affected."""
        if not actor.type_id.startswith("vehicle."):
            return
        group = self.group_of(actor)
        actor.has_physics = enabled
        pose = self.bodies.motion[actor.row, :6].tolist()
        self.place(actor, [pose[:3], pose[3:]])
        group.override(actor)

    def set_gravity(self, actor: Actor, enabled: bool) -> None:
        """Enable or disable an actor's gravity: without it, actors do not fall and tyres have no grip."""
        actor.has_gravity = enabled
        if actor.type_id.startswith("vehicle."):
            self.group_of(actor).measure()

    def set_collisions(self, actor: Actor, enabled: bool) -> None:
        """Switch an actor's collisions with others on or off."""
        actor.collides = enabled
        self.reindex()

    def push(self, actor: Actor, change: list[float]) -> None:
        """Add to a vehicle's velocity [m/s] in the world's frame; upwards, it leaves the ground."""
        if not actor.has_physics:
            return
        group = self.group_of(actor)
        group.push(actor, change[0], change[1])
        if change[2] > 0.0 or actor.is_aloft:
            self.falling.lift(actor, self.bodies, change[2])
            self.reindex()

    def group_of(self, actor: Actor) -> Driven:
        """Return the physical model of a vehicle; raises Refused unless a client drives it."""
        for group in self.driven.values():
            if actor in group.actors:
                return group
        raise Refused(f"actor {actor.id} ({actor.type_id}) is not driven by clients")

    def destroy(self, actor: Actor) -> None:
        """Remove an actor and those attached to it; raises Refused for actors of the map."""
        if actor is self.spectator or actor in self.lights.actors or actor in self.signs.actors:
            raise Refused(f"actor {actor.id} ({actor.type_id}) belongs to the map")
        for child in [other for other in self.bodies if other.parent == actor.id]:
            self.destroy(child)
        self.bodies.remove(actor)
        self.falling.forget(actor)
        if actor in self.cars.actors:
            self.cars.remove(actor)
        self.sensors = [sensor for sensor in self.sensors if sensor.actor is not actor]
        for group in self.driven.values():
            if actor in group.actors:
                group.keep([other for other in group.actors if other is not actor])
        self.reindex()

    def reindex(self) -> None:
        """Tell all parts of the world the new rows of the actors in the state array, after actors came or went."""
        self.attachments.reindex(self.bodies)
        for group in self.driven.values():
            group.rows = rows_of(group.actors)
        self.road_context.reindex(self.bodies)
        self.walkers.reindex(self.bodies)
        self.collisions.reindex(self.bodies, tuple(self.driven.values()), self.walkers)
        self.is_scene_stale = True
        self.cars.reindex(self.bodies)

    # time

    @property
    def step_seconds(self) -> float:
        """Duration [s] of the present simulation step."""
        return self.settings.step(1.0 / self.clock.rate)

    def tick(self, *, snapshot_first: bool = False) -> int:
        """Do one step and send measurements and snapshot, in this order by default; return its frame."""
        dt = self.step_seconds
        self.clock.advance(dt)
        count = max(math.ceil(dt / LONGEST - 1e-9), 1)
        self.hits = self._move(dt / count)
        for _ in range(count - 1):
            self.hits += self._move(dt / count)
        for group in self.driven.values():
            group.flush(self.bodies)
        self.road_context.note(self.bodies)
        self.attachments.step(self.bodies)
        if snapshot_first:
            self._send_snapshot(dt)
        self.has_looked = False
        for sensor in self.sensors:
            sensor.serve(self)
        if not snapshot_first:
            self._send_snapshot(dt)
        self.is_prepared = False
        return self.clock.frame

    def _move(self, dt: float) -> list[Hit]:
        """Move all actors by one step; return the hits."""
        self.lights.step(dt)
        self.cars.step(self.bodies, dt)
        for group in self.driven.values():
            group.step(self.bodies, dt)
        self.walkers.step(self.bodies, dt)
        if self.falling.actors and self.falling.step(self.bodies, dt):
            self.reindex()
        return self.collisions.step(self.bodies)

    def prepare(self) -> None:
        """Let every traffic car look for the car ahead of it, as the next step needs, while no client waits for an answer."""
        is_due, self.is_prepared = not self.is_prepared and len(self.cars) > 0, True
        if is_due:
            self.cars.look(self.bodies)

    def look(self) -> None:
        """Update the boxes that sensors see to the present step; further calls in this step do nothing."""
        if self.is_scene_stale:  # not in reindex(): most worlds have no camera, and an episode spawns its actors one by one
            self.scene.reindex(self.bodies)
            self.is_scene_stale = False
        if not self.has_looked:
            self.scene.step(self.bodies, self.lights.paint())
            self.has_looked = True

    def _send_snapshot(self, dt: float) -> None:
        if self.streams.is_heard(layouts.WORLD_STREAM):
            clock = self.clock
            state = layouts.MAP_CHANGED if self.map_changed else 0
            first = layouts.SENSOR_HEADER.pack(layouts.SensorType.WORLD, clock.frame, clock.elapsed, 0, 0, 0, 0, 0, 0)
            second = layouts.SNAPSHOT_HEADER.pack(self.episode, time.time(), dt, 0, 0, 0, state)
            self.streams.send(layouts.WORLD_STREAM, first, second, self.snapshot())
            self.map_changed = False

    def snapshot(self) -> bytes:
        """Return the records of all actors, of which those that only clients read are written now."""
        self.lights.write(self.bodies)
        self.cars.write(self.bodies)
        self.road_context.write(self.bodies, self.lights.ids, self.lights.colours)
        return self.bodies.snapshot()


def shape_of(type_id: str) -> tuple[Box, int]:
    """Return box and label of a type; an empty box and 0 for types without a body."""
    if type_id in VEHICLES:
        model = VEHICLES[type_id]
        return Box.standing(model.length, model.width, model.height), model.tag
    if type_id in blueprints.WALKERS:
        # A walker's origin is its middle.
        length, width, height = CHILD_SIZE if int(type_id[-4:]) in blueprints.CHILDREN else WALKER_SIZE
        return Box((0.0, 0.0, 0.0), (length / 2, width / 2, height / 2)), layouts.Tag.PEDESTRIAN
    if type_id in PROPS:
        return Box.standing(*PROPS[type_id]), layouts.Tag.STATIC
    return Box(), 0


def grounded(pose: Pose) -> Pose:
    """Return a pose on the ground, the only place for the server's traffic."""
    return [[pose[0][0], pose[0][1], 0.0], pose[1]]
