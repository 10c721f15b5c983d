"""Calls about actors: spawn, destroy, look up, control, move."""

from __future__ import annotations

from collections.abc import Callable

from robo_sims.carla.standin.host import Host
from robo_sims.carla.standin.poses import numbers, pose
from robo_sims.carla.standin.responses import valued, void


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Returns name -> call."""
    about = Actors(host)
    return {
        **valued(
            spawn_actor=about.spawn,
            spawn_actor_with_parent=about.spawn,
            destroy_actor=about.destroy,
            get_actors_by_id=about.by_id,
            get_spectator=lambda: host.world.spectator.encoded(),
            get_actor_bounding_box=about.box,
        ),
        **void(
            apply_control_to_vehicle=about.control,
            set_actor_transform=about.place,
        ),
    }


class Actors:
    """The calls that are more than a name."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def spawn(self, description: list[object], place: object, parent: int = 0, *_: object) -> list[object]:
        """Returns a new actor; how it is fixed to its parent makes no difference."""
        return self.host.world.spawn(description, pose(place), parent).encoded()

    def destroy(self, number: int) -> bool:
        """Removes an actor; returns whether there was one."""
        actor = self.host.world.bodies.by_id.get(number)
        if actor is not None:
            self.host.world.destroy(actor)
        return actor is not None

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

    def place(self, number: int, where: object) -> None:
        """Puts an actor somewhere."""
        self.host.world.place(self.host.world.actor(number), pose(where))
