"""Calls about the episode: versions, maps, settings, weather, time."""

from __future__ import annotations

from collections.abc import Callable

from robo_sims.carla.standin import blueprints, layouts
from robo_sims.carla.standin.host import FOLDER, Host
from robo_sims.carla.standin.poses import numbers
from robo_sims.carla.standin.responses import valued, void
from robo_sims.carla.standin.settings import Settings


def calls(host: Host) -> dict[str, Callable[..., object]]:
    """Returns name -> call."""
    about = Episodes(host)
    return {
        **valued(
            version=lambda: layouts.VERSION,
            get_episode_info=lambda: [host.world.episode, [host.streams.announce(layouts.WORLD_STREAM)]],
            get_sensor_token=lambda stream: [host.streams.announce(stream)],
            get_episode_settings=about.settings,
            set_episode_settings=about.set_settings,
            get_required_files=lambda folder="": [],
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


class Episodes:
    """The calls that are more than a name."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def settings(self) -> list[object]:
        """Returns the settings."""
        self._space("settings")
        return self.host.world.settings.encoded()

    def _space(self, kind: str) -> None:
        """Keep answers apart that wake two threads of a client; in asynchronous mode they do not wait for each other."""
        if self.host.world.settings.synchronous:
            self.host.pacing.space(kind)

    def set_settings(self, values: object) -> int:
        """Takes settings; returns the frame."""
        world = self.host.world
        world.settings = Settings.decoded(values)
        world.streams.may_drop = not world.settings.synchronous
        return world.clock.frame

    def map_info(self) -> list[object]:
        """Returns the map's name and spawn points."""
        town = self.host.world.town
        return [FOLDER + town.name, town.spawn_points]

    def set_weather(self, values: object) -> None:
        """Takes weather; it changes nothing that can be seen."""
        self.host.world.weather = numbers(values, 14, "The weather")

    def tick(self) -> int:
        """Does one step, once those who were about to listen do; returns its frame."""
        self.host.streams.wait()
        frame = self.host.world.tick()
        self._space("tick")
        return frame

    def batch_is_done(self) -> None:
        """Wait until a batch may be answered."""
        self._space("batch")

    def tick_of_batch(self) -> int:
        """Does one step straight after a batch, and tells its snapshot before its measurements.

        `apply_batch_sync(commands, True)` of the client is a batch and then a tick, and has Python's lock until the snapshot is
        there. With `worker_threads=1`, a measurement that came first would wait for the lock, and the snapshot behind it.
        """
        self.host.streams.wait()
        frame = self.host.world.tick(snapshot_first=True)
        self._space("tick")
        return frame
