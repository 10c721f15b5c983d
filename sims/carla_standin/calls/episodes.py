"""Calls about the episode: versions, maps, settings, weather, time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from carla_standin import blueprints, layouts
from carla_standin.errors import Refused
from carla_standin.host import FOLDER, Host
from carla_standin.log_once import log_once
from carla_standin.maps.town import Town
from carla_standin.poses import numbers
from carla_standin.responses import valued, void
from carla_standin.settings import Settings

NAVIGATION = "Nav"
"""Name of the folder in which clients look for navigation meshes."""


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Return a dictionary: name of a remote call about episodes -> function that carries it out."""
    about = Episodes(host)
    return {
        **valued(
            version=lambda: layouts.VERSION,
            get_episode_info=lambda: [host.world.episode, [host.streams.announce(layouts.WORLD_STREAM)]],
            get_sensor_token=lambda stream: [host.streams.announce(stream)],
            get_episode_settings=about.settings,
            set_episode_settings=about.set_settings,
            get_required_files=about.files,
            request_file=about.file,
            query_lights_state=lambda client="": [],
            get_map_info=about.map_info,
            get_map_data=lambda: host.world.town.text,
            get_available_maps=host.map_names,
            get_actor_definitions=lambda: blueprints.ENCODED,
            get_weather_parameters=lambda: host.world.weather,
            tick_cue=about.tick,
            tick_of_batch=about.tick_of_batch,
        ),
        **void(
            load_new_episode=lambda name, reset=True, layers=0: host.load(name, reset),
            copy_opendrive_to_file=lambda text, parameters=None: host.receive(text),
            set_weather_parameters=about.set_weather,
            draw_debug_shape=lambda shape: None,
        ),
    }


def _name(town: Town) -> str:
    digest = hashlib.sha256(town.navigation).hexdigest()[:16]
    return f"{FOLDER}{NAVIGATION}/{town.name}-{digest}.bin"


class Episodes:
    """Remote calls about an episode: settings, weather, maps and ticks."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def settings(self) -> list[object]:
        """Return the episode's settings in the client's encoding."""
        self._space("settings")
        return self.host.world.settings.encoded()

    def _space(self, kind: str) -> None:
        """Delay an answer that could race with another thread of the client; in asynchronous mode there is no race."""
        if self.host.world.settings.synchronous:
            self.host.pacing.space(kind)

    def set_settings(self, values: object) -> int:
        """Store the episode's settings of a client, and return the number of the present frame."""
        world = self.host.world
        world.settings = Settings.decoded(values)
        world.streams.may_drop = not world.settings.synchronous
        return world.clock.frame

    def map_info(self) -> list[object]:
        """Return the map's name and spawn points."""
        town = self.host.world.town
        return [FOLDER + town.name, town.spawn_points]

    def files(self, folder: object = "") -> list[str]:
        """Return the name of the file with the navigation mesh, as a list; an empty list if the map has no pavements.

        Clients cache files by name, so the name has a hash of the content.
        """
        if folder != NAVIGATION or not self.host.has_navigation:
            return []
        town = self.host.world.town
        if town.pavements and not town.navigation:
            log_once(f"Pavements of {len(town.pavements)} parts are too many for a navigation mesh: there are no AI walkers.")
        return [_name(town)] if town.navigation else []

    def file(self, name: object) -> bytes:
        """Return the content of the file with the navigation mesh, which `files` names."""
        town = self.host.world.town
        if name not in self.files(NAVIGATION):
            raise Refused("There is no such file here.", got=name, allowed=self.files(NAVIGATION))
        return town.navigation

    def set_weather(self, values: object) -> None:
        """Store the weather, so that clients can read it back; pictures do not show it."""
        self.host.world.weather = numbers(values, 14, "The weather")

    def tick(self) -> int:
        """Wait for announced subscriptions, do one step, and return the number of its frame."""
        self.host.streams.wait()
        frame = self.host.world.tick()
        self._space("tick")
        return frame

    def batch_is_done(self) -> None:
        """Wait until the answer to a batch of commands cannot race with another thread of the client."""
        self._space("batch")

    def tick_of_batch(self) -> int:
        """Do one step right after a batch, and send its snapshot before its measurements.

        The client's `apply_batch_sync(commands, True)` is a batch and then a tick, and holds Python's lock until the snapshot
        arrives. With `worker_threads=1`, a measurement that came first would wait for the lock, and the snapshot behind it.
        """
        self.host.streams.wait()
        frame = self.host.world.tick(snapshot_first=True)
        self._space("tick")
        return frame
