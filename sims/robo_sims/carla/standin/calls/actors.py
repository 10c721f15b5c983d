"""Calls about actors: spawn, destroy, look up, control, move."""

from __future__ import annotations

from collections.abc import Callable

from robo_sims.carla.standin.host import Host
from robo_sims.carla.standin.physics.parameters import Vehicle
from robo_sims.carla.standin.poses import numbers, pose
from robo_sims.carla.standin.responses import Refused, valued, void
from robo_sims.carla.standin.vehicles import model_of


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Returns name -> call."""
    about = Actors(host)
    return {
        **valued(
            spawn_actor=about.spawn,
            spawn_actor_with_parent=about.spawn,
            destroy_actor=about.destroy,
            get_actors_by_id=about.by_id,
            get_spectator=about.spectator,
            get_actor_bounding_box=about.box,
        ),
        **valued(
            get_physics_control=about.physics,
            get_vehicle_light_states=lambda: [[number, flags] for number, flags in host.world.lamps.items()],
            is_traffic_manager_running=lambda port: port in host.managers,
            get_traffic_manager_running=lambda port: host.managers.get(port, ["", 0]),
            add_traffic_manager_running=about.add_manager,
            destroy_traffic_manager=lambda port: host.managers.pop(port, None) is not None,
        ),
        **void(
            apply_control_to_vehicle=about.control,
            apply_ackermann_control_to_vehicle=about.ackermann,
            apply_control_to_walker=about.walk,
            set_actor_transform=about.place,
            set_actor_location=about.move,
            set_actor_target_velocity=about.set_velocity,
            enable_actor_constant_velocity=about.set_velocity,
            set_vehicle_light_state=about.set_lights,
            set_actor_simulate_physics=about.nothing,
            set_actor_enable_gravity=about.nothing,
            set_actor_collisions=about.nothing,
            apply_physics_control=about.nothing,
        ),
    }


class Actors:
    """The calls that are more than a name."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def spawn(self, description: list[object], place: object, parent: int = 0, *_: object) -> list[object]:
        """Returns a new actor; how it is fixed to its parent makes no difference."""
        return self.host.world.spawn(description, pose(place), parent).encoded()

    def spectator(self) -> list[object]:
        """Returns the spectator."""
        return self.host.world.spectator.encoded()

    def destroy(self, number: int) -> bool:
        """Removes an actor; returns whether there was one."""
        actor = self.host.world.bodies.by_id.get(number)
        if actor is not None:
            self.host.world.destroy(actor)
        return actor is not None

    def destroy_present(self, number: int) -> None:
        """Removes an actor; raises Refused where there is none."""
        self.host.world.destroy(self.host.world.actor(number))

    def by_id(self, wanted: list[int]) -> list[object]:
        """Returns the actors that are there."""
        known = self.host.world.bodies.by_id
        return [known[number].encoded() for number in wanted if number in known]

    def box(self, number: int) -> list[object]:
        """Returns an actor's box."""
        return self.host.world.actor(number).box.encoded(number)

    def control(self, number: int, wanted: object) -> None:
        """Takes a driver's controls."""
        world = self.host.world
        actor = world.actor(number)
        world.group_of(actor).control(actor, world.bodies, numbers(wanted, 7, "A vehicle's control"))

    def ackermann(self, number: int, wanted: object) -> None:
        """Refuses: no controller of speed is built in."""
        raise Refused(f"the stand-in has no Ackermann control (actor {number})", got=wanted, fix="use VehicleControl")

    def walk(self, number: int, wanted: object) -> None:
        """Takes a walker's [direction, speed, jump]."""
        world = self.host.world
        direction, speed = wanted[0], wanted[1]  # type: ignore[index]
        checked = numbers([*direction, speed], 4, "A walker's control")
        world.walkers.control(world.actor(number), world.bodies, checked[:3], checked[3])

    def walker_state(self, number: int, where: object, speed: float) -> None:
        """Puts a walker somewhere."""
        self.place(number, where)

    def place(self, number: int, where: object) -> None:
        """Puts an actor somewhere."""
        self.host.world.place(self.host.world.actor(number), pose(where))

    def move(self, number: int, where: object) -> None:
        """Puts an actor somewhere, as it is turned."""
        actor = self.host.world.actor(number)
        rotation = self.host.world.bodies.motion[actor.row, 3:6].tolist()
        self.host.world.place(actor, [numbers(where, 3, "A location"), rotation])

    def set_velocity(self, number: int, wanted: object) -> None:
        """Gives a vehicle a velocity in the world's frame."""
        world = self.host.world
        actor = world.actor(number)
        x, y, _ = numbers(wanted, 3, "A velocity")
        world.group_of(actor).launch(actor, world.bodies, x, y)

    def set_lights(self, number: int, flags: int) -> None:
        """Keeps a vehicle's lamps for those who ask; they are not drawn."""
        self.host.world.lamps[self.host.world.actor(number).id] = int(flags)

    def nothing(self, number: int, *_: object) -> None:
        """Accepts what changes nothing here, for an actor that is there."""
        self.host.world.actor(number)

    def add_manager(self, address: list[object]) -> bool:
        """Notes where a client's Traffic Manager listens."""
        return self.host.managers.setdefault(address[1], address) is address

    def physics(self, number: int) -> list[object]:
        """Returns CARLA's description of a vehicle, as far as there is something like it here."""
        return physics_control(model_of(self.host.world.actor(number)))


def physics_control(vehicle: Vehicle) -> list[object]:
    """Returns the 17 fields of VehiclePhysicsControl; what the bicycles have no use for is of an ordinary car."""
    places = [(front, side) for front in (True, False) for side in (-1, 1)]
    wheels = [_wheel(vehicle, front, side) for front, side in places]
    engine = [[[0.0, 400.0], [5000.0, 400.0]], 5000.0, 1.0, 0.15, 2.0, 0.35]
    gears = [True, 0.5, 10.0, 4.0, [[1.0, 0.5, 0.65]]]
    return [*engine, *gears, vehicle.mass, 0.3, [0.0, 0.0, 0.0], [[0.0, 1.0], [120.0, 1.0]], wheels, True]


def _wheel(vehicle: Vehicle, front: bool, side: int) -> list[object]:
    steer, hand_brake = (vehicle.max_steer, 0.0) if front else (0.0, 3000.0)
    place = [50.0 * vehicle.wheelbase * (1 if front else -1), 50.0 * vehicle.width * side, 0.0]  # [cm]
    return [3.5, 0.25, steer, 35.0, 1500.0, hand_brake, 3.0, 17.0, 1000.0, place]
