"""Remote calls that execute many commands at once and answer each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from carla_standin.calls import parts, unsupported
from carla_standin.calls.actors import Actors
from carla_standin.calls.episodes import Episodes
from carla_standin.calls.lights import LightCalls
from carla_standin.calls.motion import Motion
from carla_standin.calls.physics import Physics
from carla_standin.errors import Refused, StandInError
from carla_standin.host import Host
from carla_standin.layouts import Command
from carla_standin.responses import bare, no_value, value


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about batches -> function that carries it out."""
    return dict(bare(apply_batch=Batches(host).apply))


class Batches:
    """Remote calls with batches of commands. Each kind of command is carried out by the function of the single call."""

    def __init__(self, host: Host) -> None:
        self.episodes = Episodes(host)
        actors, motion, others = Actors(host), Motion(host), unsupported.calls(host) | parts.calls(host)
        self.actors = actors
        self.commands: dict[int, Callable[..., object]] = {
            Command.DESTROY: actors.destroy_present,
            Command.VEHICLE_CONTROL: actors.control,
            Command.ACKERMANN: motion.ackermann,
            Command.WALKER_CONTROL: actors.walk,
            Command.PHYSICS_CONTROL: Physics(host).apply,
            Command.TRANSFORM: actors.place,
            Command.WALKER_STATE: actors.walker_state,
            Command.TARGET_VELOCITY: motion.set_velocity,
            Command.TARGET_ANGULAR_VELOCITY: motion.set_angular_velocity,
            Command.IMPULSE: motion.impulse,
            Command.FORCE: motion.force,
            Command.ANGULAR_IMPULSE: motion.angular_impulse,
            Command.TORQUE: motion.torque,
            Command.SIMULATE_PHYSICS: motion.set_physics,
            Command.ENABLE_GRAVITY: motion.set_gravity,
            Command.AUTOPILOT: actors.nothing,  # the client's own Traffic Manager does it
            Command.DEBUG_TELEMETRY: others["show_vehicle_debug_telemetry"],
            Command.CONSOLE: others["console_command"],
            Command.LIGHT_STATE: actors.set_lights,
            Command.LOCATION: actors.move,
            Command.TRAFFIC_LIGHT: LightCalls(host).set_state,
        }

    def apply(self, commands: list[list[Any]], do_tick: bool = False) -> list[object]:
        """Execute commands one after the other, and return an answer for each: the id of the actor, or an error.

        do_tick: whether a simulation step follows the last command.
        """
        answers = [self._answer(command) for command in commands]
        if do_tick:
            self.episodes.tick()
        self.episodes.batch_is_done()
        return answers

    def _answer(self, command: list[Any]) -> object:
        index, body = command[0]
        try:
            return value(self._done(index, body))
        except StandInError as error:
            return no_value(str(error))

    def _done(self, index: int, body: list[Any]) -> object:
        if index == Command.SPAWN:
            return self._spawned(body)
        act = self.commands.get(index)
        if act is None:
            raise Refused(f"the stand-in has no batch command {index}")
        act(*body)
        return body[0]

    def _spawned(self, body: list[Any]) -> object:
        description, place, parent, *_, then = body
        made = self.actors.spawn(description, place, parent[1] if parent[0] else 0)
        for command in then:
            index, later = command[0]
            later[0] = made[0]  # the id was not known when the client wrote it
            self._done(index, later)
        return made[0]
