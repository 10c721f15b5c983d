"""Unsupported calls: each gives a reason, as an error if the client waits for the answer, else once in the log."""

from __future__ import annotations

from collections.abc import Callable

from carla_standin.errors import Refused
from carla_standin.host import Host
from carla_standin.log_once import log_once
from carla_standin.physics.state import GRAVITY
from carla_standin.responses import valued, void

RECORDER = "There is no recorder: record with robo-rl record, or keep world.get_snapshot() of each tick."
TEXTURES = "Surfaces have no textures here: they are one colour each."
BUFFERS = "Cameras have no G-buffers here: there is a depth and a semantic camera."
CARSIM = "There is no CarSim here: vehicles move by the model of their blueprint's attribute dynamics."
CHRONO = "There is no Chrono here: vehicles move by the model of their blueprint's attribute dynamics."
LAYERS = "Maps have no layers here: load_map_layer and unload_map_layer change nothing."
REFUSED = {
    **dict.fromkeys(
        (
            "start_recorder",
            "show_recorder_file_info",
            "show_recorder_collisions",
            "show_recorder_actors_blocked",
            "replay_file",
        ),
        RECORDER,
    ),
    **dict.fromkeys(
        ("apply_color_texture_to_objects", "apply_float_color_texture_to_objects", "apply_color_texture_to_object"), TEXTURES
    ),
    "get_gbuffer_token": BUFFERS,
    "set_ignored_vehicles": "Sensors cannot ignore vehicles here.",
    "get_ignored_vehicles": "Sensors cannot ignore vehicles here.",
    "get_wheel_pitch_angle": "Wheels do not roll here: their angle of roll is not known.",
}
"""Name -> error for a client that waits."""
SAID = {
    **dict.fromkeys(
        (
            "stop_recorder",
            "stop_replayer",
            "set_replayer_time_factor",
            "set_replayer_ignore_hero",
            "set_replayer_ignore_spectator",
        ),
        RECORDER,
    ),
    "set_actor_dead": "Walkers do not lie down: one that a car has run over stands, and its controller is gone.",
    "enable_gbuffers": BUFFERS,
    "enable_carsim": CARSIM,
    "use_carsim_road": CARSIM,
    "enable_chrono_physics": CHRONO,
    "restore_physx_physics": "There is no PhysX here: vehicles move by the model of their blueprint's attribute dynamics.",
    "load_map_layer": LAYERS,
    "unload_map_layer": LAYERS,
    "enable_environment_objects": "Buildings cannot be hidden here: enable_environment_objects changes nothing.",
    "update_lights_state": "There are no street lamps here: the light manager changes nothing.",
    "update_day_night_cycle": "There is no day and night here: the light manager changes nothing.",
    "enable_sensor_for_ros": "There is no ROS 2 here: sensors are read through the client.",
    "disable_sensor_for_ros": "There is no ROS 2 here: sensors are read through the client.",
    "set_annotations_traverse_translucency": "Nothing is translucent here: semantic pictures stay as they are.",
    "set_imui_gravity": f"The IMU measures a gravity of {GRAVITY} m/s2: set_imui_sensor_gravity changes nothing.",
    "console_command": "There is no console of Unreal here: console commands change nothing.",
}
"""Name -> sentence that is logged once; the call changes nothing."""


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call that is not supported -> function that says why."""
    return {
        **valued(
            get_imui_gravity=lambda: GRAVITY,
            is_sensor_enabled_for_ros=lambda stream: False,
            **{name: _refusal(sentence) for name, sentence in REFUSED.items()},
        ),
        **void(**{name: _notice(sentence) for name, sentence in SAID.items()}),
    }


def _refusal(sentence: str) -> Callable[..., object]:
    def call(*_: object) -> object:
        raise Refused(sentence)

    return call


def _notice(sentence: str) -> Callable[..., None]:
    return lambda *_: log_once(sentence)
