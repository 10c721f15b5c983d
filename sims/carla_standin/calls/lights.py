"""Calls about traffic lights."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.actors import Actor
from carla_standin.errors import Refused
from carla_standin.host import Host
from carla_standin.poses import numbers
from carla_standin.responses import valued, void

TIMES = ("green", "yellow", "red")


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about traffic lights -> function that carries it out."""
    about = LightCalls(host)
    timers = {f"set_traffic_light_{name}_time": about.timer(which) for which, name in enumerate(TIMES)}
    return {
        **valued(get_group_traffic_lights=about.group),
        **void(
            set_traffic_light_state=about.set_state,
            freeze_traffic_light=about.freeze,
            freeze_all_traffic_lights=lambda frozen: host.world.lights.freeze(bool(frozen)),
            reset_all_traffic_lights=about.reset_all,
            reset_traffic_light_group=about.reset,
            **timers,
        ),
    }


class LightCalls:
    """Remote calls about traffic lights. In each of them `number` is the id of a light."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _actor(self, number: int) -> Actor:
        return self.host.world.actor(number)

    def group(self, number: int) -> list[int]:
        """Return the ids of all lights at the junction of a light, that one included."""
        return self.host.world.lights.group(self._actor(number))

    def set_state(self, number: int, colour: int) -> None:
        """Set the colour of one light, until the cycle of its junction changes it."""
        if colour not in range(5):
            raise Refused("This is no colour of a traffic light.", got=colour, allowed="0 to 4")
        self.host.world.lights.set_colour(self._actor(number), colour)

    def timer(self, which: int) -> Callable[[int, float], None]:
        """Return the remote call `set_time(number, seconds)` for one of the three times of a light.

        which: 0 for green, 1 for yellow, 2 for red.
        """

        def set_time(number: int, seconds: float) -> None:
            self.host.world.lights.set_time(self._actor(number), which, *numbers([seconds], 1, "A time"))

        return set_time

    def freeze(self, number: int, frozen: bool) -> None:
        """Stop the cycle of lights at a light's junction, or let it run again."""
        self.host.world.lights.freeze(bool(frozen), self._actor(number))

    def reset_all(self) -> None:
        """Restart the cycles of the lights at all junctions."""
        self.host.world.lights.reset()

    def reset(self, number: int) -> None:
        """Restart the cycle of lights at the junction of the light with this id."""
        self.host.world.lights.reset(self._actor(number))
