"""Driving a route as a Gymnasium environment, on any CARLA 0.9.16 server: a light stand-in of its own, or one that is named."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, ServerUnavailable, UnknownName
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import MEASURES
from robo_sims.carla import birdseye, crowd, film, observing, roads, routes, scoring, traffic
from robo_sims.carla.driver import ScriptedDriver
from robo_sims.carla.judge import GOAL, MOVING, SUCCESS_RULE, Judge
from robo_sims.carla.link import PATIENCE, Link, told
from robo_sims.carla.rewards import PERIOD, REWARDS, Situation
from robo_sims.carla.scenarios import SCENARIOS
from robo_sims.carla.scene import Reader, Scene, lights_on
from robo_sims.carla.sensors import FrontCamera, Hits

LINK_LOST, TIME_LIMIT = "link_lost", "time_limit"
CAR = "vehicle.tesla.model3"
CAMERA = "birdseye"
"""Name of the coloured picture from above."""
LIFT = 0.3
"""[m] above the ground, where the car is spawned."""
PICTURE = 320
"""[pixels] of the picture for people."""
SIZES = range(16, 513)
"""[pixels]"""


class DrivingEnv(gymnasium.Env[Any, Any]):
    """Drives a route of a map from its beginning to its end, at 10 decisions a second.

    With a stand-in an episode is exactly reproducible from its seed and its actions; a server that is named need not be.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's own style)
        "render_modes": ["rgb_array"],
        "render_fps": round(1 / PERIOD),
        "film_seconds": 90.0,  # a route, and what ends it
    }
    measures = scoring.MEASURES

    def __init__(  # noqa: PLR0913 (what a recipe may say)
        self,
        task: str,
        *,
        map: str,
        reward: str = "carl",
        routes: str = "train",
        route_length: float = 200.0,
        traffic: int = 0,
        walkers: int = 0,
        scenario: str = "",
        birdseye: int = 96,
        birdseye_rgb: int = 0,
        camera: int = 0,
        max_steps: int | None = None,
        host: str | None = None,
        port: int | Sequence[int] = 2000,
        patience: float = PATIENCE,
        render_mode: str | None = None,
    ) -> None:
        """Describes the environment; the server is started, or connected to, at the first reset.

        map: of the server; "" takes the one that it has loaded.
        reward: "carl", progress along the route, or "shaped", the usual sum.
        routes: "train" or "test"; no route is in both.
        route_length: of the routes [m].
        traffic: cars that drive themselves.
        walkers: beside the route, who cross it by themselves.
        scenario: what happens once on the way, "pedestrian-crossing" or "blocked-lane"; "" for nothing.
        birdseye: rows and columns of the picture from above [pixels]; 0 leaves it out.
        birdseye_rgb: rows and columns of a coloured picture from above, the car included, for rewards [pixels]; 0 leaves
            it out.
        camera: rows and columns of the camera at the front [pixels]; 0 leaves it out.
        max_steps: decisions after which an episode is cut; by default 30 s and 0.2 s a metre.
        host, port: of a CARLA server, or of several for as many environments at once; by default a stand-in is started and
            ended with the environment.
        patience: for an answer of the server [s].
        render_mode: None or "rgb_array".
        """
        if render_mode not in (None, "rgb_array"):
            raise InvalidSetting("Unknown render_mode.", got=repr(render_mode), allowed=(None, "rgb_array"))
        _require(
            reward, routes, scenario, route_length, {"traffic": traffic, "walkers": walkers}, (birdseye, birdseye_rgb, camera)
        )
        self.render_mode = render_mode
        ports = (port,) if isinstance(port, int) else tuple(port)
        self._link = Link(map=map, host=host, ports=ports, patience=patience)
        self._set, self._length, self._traffic = routes, float(route_length), traffic
        self._walkers, self._scenario_name = walkers, scenario
        self._birdseye, self._birdseye_rgb, self._camera_size = birdseye, birdseye_rgb, camera
        self._reward = REWARDS[reward]()
        self.environment_spec = self._specification(task, max_steps)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._roads: roads.Roads | None = None
        self._observation: observing.Arrays = {}  # of the step before; empty while no episode is under way
        self._steps = 0

    def _specification(self, task: str, max_steps: int | None) -> EnvironmentSpec:
        return EnvironmentSpec(
            name=f"carla/{task}",
            observation=ObservationSpec(self._arrays()),
            action=ActionSpec(("steer", "longitudinal"), (-1.0, -1.0), (1.0, 1.0), ("1", "1"), "drive", PERIOD, "ego"),
            instruction="drive along the route to its end",
            max_steps=round(300 + 2 * self._length) if max_steps is None else max_steps,
            success_rule=SUCCESS_RULE,
        )

    def _arrays(self) -> tuple[ArraySpec, ...]:
        arrays = (*observing.VECTORS, observing.LEFT, *observing.reward_memory(self._reward))
        if size := self._birdseye:
            shape = (size, size, len(birdseye.CHANNELS))
            meaning = birdseye.meaning(size)
            arrays += (ArraySpec("birdseye", shape, "uint8", 0, 255, frame="ego", role="image", meaning=meaning),)
        if size := self._birdseye_rgb:
            meaning = f"{size / birdseye.SCALE:g} m from above, forward is up, coloured as films are"
            arrays += (
                ArraySpec(f"camera_{CAMERA}", (size, size, 3), "uint8", 0, 255, frame="ego", role="image", meaning=meaning),
            )
        if size := self._camera_size:
            meaning = "looks forward from the windscreen, 90 degrees wide"
            arrays += (ArraySpec("camera_front", (size, size, 3), "uint8", 0, 255, role="image", meaning=meaning),)
        return arrays

    @property
    def link(self) -> Link:
        """The server; for experiments and tests, never for a policy."""
        return self._link

    @property
    def roads(self) -> roads.Roads:
        """The roads of the map, once an episode has begun."""
        assert self._roads is not None
        return self._roads

    @property
    def scene(self) -> Scene:
        """The newest frame; for experiments and tests, never for a policy."""
        return self._situation.scene

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[observing.Arrays, dict[str, Any]]:
        """Begins an episode; connects anew where the server is gone, and raises ServerUnavailable if that fails."""
        super().reset(seed=seed)
        self._observation = {}
        episode = int(self.np_random.integers(2**63))
        if self._link.is_open:
            with contextlib.suppress(ServerUnavailable), told("The server does not begin an episode."):
                return self._begin(np.random.default_rng(episode))
        self._let_go()
        self._link.open()
        self._roads = roads.read(self._link.map())
        with told("The server does not begin an episode."):
            return self._begin(np.random.default_rng(episode))

    def _begin(self, random: np.random.Generator) -> tuple[observing.Arrays, dict[str, Any]]:
        link = self._link
        assert self._roads is not None
        link.begin()
        route = routes.drawn(self._roads, random, self._set, self._length)
        self._tracker, self._judge = routes.Tracker(route), Judge(self._roads, PERIOD)
        self._vehicle = self._put(route)
        self._hits = Hits(link, self._vehicle)
        self._camera = FrontCamera(link, self._vehicle, self._camera_size) if self._camera_size else None
        make = SCENARIOS.get(self._scenario_name)
        self._scenario = None if make is None else make(link, self._roads, route, random)
        others = [] if self._scenario is None else list(self._scenario.actors)
        others += traffic.place(link, route, self._traffic, random)
        others += crowd.place(link, self._roads, route, self._walkers, random)
        snapshot = link.tick()
        lights = lights_on(route, list(link.world.get_actors().filter("traffic.traffic_light*")))
        self._reader = Reader(self._vehicle, others, lights)
        self._painter = birdseye.BirdsEye(self._roads, route, self._birdseye) if self._birdseye else None
        coloured = self._birdseye_rgb
        self._colourist = birdseye.BirdsEye(self._roads, route, coloured) if coloured else None
        extent = self._vehicle.bounding_box.extent
        self._size = extent.x, extent.y
        self._steps, self._controls, self._ended = 0, np.zeros(2), ""
        self._situation = self._look(snapshot, stood=False)
        self._judge.ticks = 0
        self._reward.reset(self._situation)
        self._observation = self._observe()
        return self._observation, {"success": False}

    def _let_go(self) -> None:
        """Ends the link, and forgets what the client has made.

        Any of that keeps the client itself: it would hear the next server at this address, and, because its own is gone, end
        this process with an error of its thread.
        """
        self._link.close()
        for name in ("_vehicle", "_hits", "_camera", "_scenario", "_reader"):
            self.__dict__.pop(name, None)

    def _put(self, route: routes.Route) -> Any:
        blueprint = self._link.library.find(CAR)
        blueprint.set_attribute("role_name", "hero")
        vehicle = self._link.spawn(blueprint, self._link.pose(route.points[0], LIFT))
        if vehicle is None:
            raise ServerUnavailable(
                "There is no room at the beginning of the route.",
                got="x {:.1f}, y {:.1f}".format(*route.points[0, :2]),
                fix="remove the server's own traffic",
            )
        return vehicle

    def _look(self, snapshot: Any, *, stood: bool) -> Situation:
        scene = self._reader.read(snapshot)
        place = self._tracker.at(scene.ego.x, scene.ego.y)
        completion = self._tracker.completion
        reason = self._judge.reason(scene, place, completion, self._hits.newest(stood=stood))
        return Situation(scene, place, completion, reason, self._size, self._judge.is_oncoming)

    def step(self, action: npt.NDArray[Any]) -> tuple[observing.Arrays, float, bool, bool, dict[str, Any]]:
        """Drives for a tenth of a second; a server that is gone cuts the episode with the reason "link_lost"."""
        controls = self.environment_spec.action.to_physical(action)
        if not self._observation:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        self._steps += 1
        try:
            self._situation = self._drive(controls)
            terms = self._reward.terms(self._situation)  # first: it changes what the reward remembers, which is observed
            observation = self._observe()
        except ServerUnavailable as error:
            last, self._observation, self._ended = self._observation, {}, LINK_LOST
            self._let_go()
            lost = {"success": False, "reward_terms": self._reward.nothing(), "stop_reason": LINK_LOST, "problem": str(error)}
            return {name: value.copy() for name, value in last.items()}, 0.0, False, True, lost
        reason = self._situation.reason
        truncated = reason is None and self._steps == self.environment_spec.max_steps
        info: dict[str, Any] = {"success": reason == GOAL, "reward_terms": terms}
        info[MEASURES] = scoring.measured(
            self._situation.completion, self._tracker.farthest, reason, self._judge.oncoming_share
        )
        if reason is not None or truncated:
            info["stop_reason"] = self._ended = reason or TIME_LIMIT
        self._observation = {} if "stop_reason" in info else observation
        return observation, float(sum(terms.values())), reason is not None, truncated, info

    def _drive(self, controls: npt.NDArray[np.float64]) -> Situation:
        steer, longitudinal = (float(value) for value in controls)
        self._controls = controls
        self._link.require()
        control = self._link.carla.VehicleControl(throttle=max(longitudinal, 0.0), steer=steer, brake=max(-longitudinal, 0.0))
        with told("The server takes no controls any more."):
            self._vehicle.apply_control(control)
        if self._scenario is not None:
            self._scenario.step(self._situation.place.s, self._situation.scene.ego.speed)
        self._link.has_stepped = True
        return self._look(self._link.tick(), stood=self._situation.scene.ego.speed < MOVING)

    def _observe(self) -> observing.Arrays:
        situation, tracker = self._situation, self._tracker
        arrays = observing.vectors(situation, tracker.route, self._controls)
        steps = self.environment_spec.max_steps or 1
        shares = 1.0 - situation.completion, 1.0 - self._steps / steps, 1.0 - self._judge.still
        arrays["left"] = np.array(shares, np.float32)
        if self._reward.memory:
            arrays["reward_memory"] = np.array(self._reward.remembered(), np.float32)
        if self._painter is not None:
            arrays["birdseye"] = self._painter.draw(situation.scene, situation.place.s, tracker.index)
        if (colourist := self._colourist) is not None:
            picture = colourist.draw(situation.scene, situation.place.s, tracker.index)
            arrays[f"camera_{CAMERA}"] = birdseye.coloured(picture, self._size, colourist.scale)
        if self._camera is not None:
            arrays["camera_front"] = self._camera.picture(situation.scene.frame, self._link.patience)
        return arrays

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Returns the scene from above with two lines of text (368, 320, 3), or None unless the render mode is "rgb_array"."""
        if self.render_mode != "rgb_array" or self._roads is None:
            return None
        scale = 2.5 * birdseye.SCALE
        painter = birdseye.BirdsEye(self._roads, self._tracker.route, PICTURE, scale)
        picture = painter.draw(self._situation.scene, self._situation.place.s, self._tracker.index)
        shown = birdseye.coloured(picture, self._size, scale)
        return birdseye.captioned(shown, *film.lines(self._situation, self._ended))

    def close(self) -> None:
        """Destroys what was spawned, and ends the server where it is the environment's own; may be called again."""
        self._observation = {}
        self._link.close()

    def scripted_policy(self, seed: int, noise: float = 0.0) -> ScriptedDriver:
        """Returns the expert; `noise` is the standard deviation added to each element of its actions."""
        return ScriptedDriver(self.environment_spec, seed=seed, noise=noise)


def _require(reward: str, which: str, scenario: str, length: float, counts: Mapping[str, int], sizes: Sequence[int]) -> None:
    if reward not in REWARDS:
        raise UnknownName("reward", str(reward), REWARDS)
    if which not in routes.SETS:
        raise UnknownName("set of routes", str(which), routes.SETS)
    if not 20 <= length <= 5000:
        raise InvalidSetting("route_length is out of range.", got=length, allowed="20 to 5000 [m]")
    if scenario and scenario not in SCENARIOS:
        raise UnknownName("scenario", str(scenario), SCENARIOS)
    for name, count in counts.items():
        if not isinstance(count, int) or not 0 <= count <= 200:
            raise InvalidSetting(f"{name} is out of range.", got=count, allowed="integer 0 to 200")
    for name, size in zip(("birdseye", "birdseye_rgb", "camera"), sizes, strict=True):
        if size and (not isinstance(size, int) or size not in SIZES):
            raise InvalidSetting(f"{name} is out of range.", got=size, allowed=f"0, or {SIZES[0]} to {SIZES[-1]} [pixels]")
