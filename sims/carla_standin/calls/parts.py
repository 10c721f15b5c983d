"""Calls about parts of actors. Bodies are boxes: a walker has one bone, and no actor has components, sockets or doors."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.actors import Actor
from carla_standin.errors import Refused
from carla_standin.host import Host
from carla_standin.log_once import log_once
from carla_standin.responses import valued, void

ROOT = "crl_root__C"
"""Name of the only bone: the first of a real walker."""
NOWHERE = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about parts of actors -> function that carries it out."""
    about = Parts(host)
    return {
        **valued(
            get_actor_component_names=about.nothing,
            get_actor_component_world_transform=about.no_component,
            get_actor_component_relative_transform=about.no_component,
            get_actor_socket_names=about.nothing,
            get_actor_socket_world_transforms=about.nothing,
            get_actor_socket_relative_transforms=about.nothing,
            get_actor_bone_names=about.bone_names,
            get_actor_bone_world_transforms=about.bone_places,
            get_actor_bone_relative_transforms=about.bone_offsets,
            get_vehicle_bone_world_transforms=about.bone_places,
            get_bones_transform=about.bones,
        ),
        **void(
            set_bones_transform=about.still("set_bones: walkers are boxes without limbs, and keep their shape."),
            blend_pose=about.still("blend_pose, show_pose, hide_pose: walkers are boxes without limbs, and keep their shape."),
            get_pose_from_animation=about.still("get_pose_from_animation: walkers are boxes without limbs."),
            open_vehicle_door=about.still("open_door: vehicles are boxes without doors."),
            close_vehicle_door=about.still("close_door: vehicles are boxes without doors."),
            set_wheel_steer_direction=about.still(
                "set_wheel_steer_direction: wheels are not drawn; use VehicleControl to steer."
            ),
            set_wheel_pitch_angle=about.still("set_wheel_pitch_angle: wheels are not drawn."),
            show_vehicle_debug_telemetry=about.still(
                "show_debug_telemetry: this server has no window; use get_telemetry_data()."
            ),
        ),
    }


class Parts:
    """Remote calls about parts of actors. In each of them `number` is the actor's id."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def _actor(self, number: int) -> Actor:
        return self.host.world.actor(number)

    def nothing(self, number: int) -> list[object]:
        """Return an empty list: no actor has parts of this kind."""
        self._actor(number)
        return []

    def no_component(self, number: int, name: str) -> list[object]:
        """Raise Refused, since no actor has a component of this name."""
        raise Refused(
            f"actor {self._actor(number).id} has no component {str(name)[:100]!r}: bodies are boxes here",
            fix="use get_transform()",
        )

    def bone_names(self, number: int) -> list[str]:
        """Return the name of the only bone."""
        self._actor(number)
        return [ROOT]

    def bone_places(self, number: int) -> list[object]:
        """Return the transform of the only bone in the world: that of the actor."""
        pose = self.host.world.bodies.motion[self._actor(number).row, :6].tolist()
        return [[pose[:3], pose[3:]]]

    def bone_offsets(self, number: int) -> list[object]:
        """Return the transform of the only bone in the actor's frame."""
        self._actor(number)
        return [NOWHERE]

    def bones(self, number: int) -> list[object]:
        """Return the bones of a walker: name, and transforms in the world, in the actor's frame and in that of its parent."""
        return [[[ROOT, *self.bone_places(number), NOWHERE, NOWHERE]]]

    def still(self, sentence: str) -> Callable[..., None]:
        """Return a remote call that has no effect on the simulation, except that a sentence is logged once."""

        def call(number: int, *_: object) -> None:
            self._actor(number)
            log_once(sentence)

        return call
