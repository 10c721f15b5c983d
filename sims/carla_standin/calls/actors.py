"""Calls about actors: spawn, destroy, look up, control, move."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.actors import Box
from carla_standin.errors import Refused
from carla_standin.host import Host
from carla_standin.log_once import log_once
from carla_standin.poses import numbers, pose
from carla_standin.responses import valued, void


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about actors -> function that carries it out."""
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
            get_vehicle_light_state=about.lights,
            get_vehicle_light_states=lambda: [[number, flags] for number, flags in host.world.lamps.items()],
            is_traffic_manager_running=lambda port: port in host.managers,
            get_traffic_manager_running=lambda port: host.managers.get(port, ["", 0]),
            add_traffic_manager_running=about.add_manager,
            destroy_traffic_manager=lambda port: host.managers.pop(port, None) is not None,
            forget_traffic_manager=about.forget_manager,
        ),
        **void(
            apply_control_to_vehicle=about.control,
            apply_control_to_walker=about.walk,
            set_actor_transform=about.place,
            set_actor_location=about.move,
            set_vehicle_light_state=about.set_lights,
        ),
    }


class Actors:
    """Remote calls that create, move and describe actors. In each of them `number` is the actor's id."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def spawn(self, description: list[object], place: object, parent: int = 0, *_: object) -> list[object]:
        """Spawn an actor and return its description; the kind of attachment makes no difference."""
        return self.host.world.spawn(description, pose(place), parent).encoded()

    def spectator(self) -> list[object]:
        """Return the description of the spectator, the actor that stands for the server's view."""
        return self.host.world.spectator.encoded()

    def destroy(self, number: int) -> bool:
        """Remove an actor; return False if there was none."""
        actor = self.host.world.bodies.by_id.get(number)
        if actor is not None:
            self.host.world.destroy(actor)
        return actor is not None

    def destroy_present(self, number: int) -> None:
        """Remove an actor that a client names; raises Refused if there is none with this id."""
        self.host.world.destroy(self.host.world.actor(number))

    def by_id(self, wanted: list[int]) -> list[object]:
        """Return descriptions of the actors with the wanted ids; ids that do not exist are left out."""
        known = self.host.world.bodies.by_id
        return [known[number].encoded() for number in wanted if number in known]

    def box(self, number: int) -> list[object]:
        """Return an actor's box, an empty one if it is gone.

        A Traffic Manager calls this in a thread of the client, where an error would end the process; a real server raises none.
        """
        actor = self.host.world.bodies.by_id.get(number)
        return (Box() if actor is None else actor.box).encoded(number)

    def control(self, number: int, wanted: object) -> None:
        """Set the pedals, steering and gear of a vehicle to 7 numbers that a client sends."""
        world = self.host.world
        actor = world.actor(number)
        world.group_of(actor).control(actor, world.bodies, numbers(wanted, 7, "A vehicle's control"))

    def walk(self, number: int, wanted: object) -> None:
        """Set a walker's control: [direction, speed, jump]."""
        world = self.host.world
        if not isinstance(wanted, list) or len(wanted) < 2:
            raise Refused("A walker's control is no list of direction and speed.", got=wanted)
        direction, (speed,) = numbers(wanted[0], 3, "A walker's direction"), numbers(wanted[1:2], 1, "A walker's speed")
        if wanted[2:] == [True]:
            log_once("Walkers do not jump: WalkerControl.jump is ignored.")
        world.walkers.control(world.actor(number), world.bodies, direction, speed)

    def walker_state(self, number: int, wanted: object, speed: float) -> None:
        """Move a walker to the pose that the client's own AI controller has computed, at a speed [m/s]."""
        world = self.host.world
        world.lead(world.actor(number), pose(wanted), numbers([speed], 1, "A walker's speed")[0])

    def place(self, number: int, wanted: object) -> None:
        """Move an actor to a pose, a location and a rotation, at rest."""
        self.host.world.place(self.host.world.actor(number), pose(wanted))

    def move(self, number: int, wanted: object) -> None:
        """Move an actor to a location (x, y, z) [m] and keep its rotation."""
        actor = self.host.world.actor(number)
        rotation = self.host.world.bodies.motion[actor.row, 3:6].tolist()
        self.host.world.place(actor, [numbers(wanted, 3, "A location"), rotation])

    def set_lights(self, number: int, wanted: int | list[int]) -> None:
        """Set the flags of a vehicle's lamps: a call sends them in a list, a batch command without one."""
        flags = wanted[0] if isinstance(wanted, list) and len(wanted) == 1 else wanted
        if not isinstance(flags, int):
            raise Refused("The state of lights is no number.", got=wanted)
        self.host.world.lamps[self.host.world.actor(number).id] = flags & 0xFFFFFFFF

    def lights(self, number: int) -> list[int]:
        """Return the flags of a vehicle's lamps that are on, as a list of one number."""
        return [self.host.world.lamps.get(self.host.world.actor(number).id, 0)]

    def nothing(self, number: int, *_: object) -> None:
        """Return nothing: this call has no effect here, but raises Refused if there is no such actor."""
        self.host.world.actor(number)

    def add_manager(self, address: list[object]) -> bool:
        """Register the address of a client's Traffic Manager; return False if its port already has one."""
        return self.host.managers.setdefault(address[1], address) is address

    def forget_manager(self, address: list[object]) -> None:
        """Forget the Traffic Manager of a client that has ended."""
        if self.host.managers.get(address[1]) == address:
            del self.host.managers[address[1]]
