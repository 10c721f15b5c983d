"""Gymnasium environment of route driving on a CARLA 0.9.16 server or its light stand-in."""

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
from robo_sims.carla import birdseye, observations, pedestrians, roads, routes, scoring, sets, status_text, traffic
from robo_sims.carla.connection import STAND_IN
from robo_sims.carla.driver import ScriptedDriver
from robo_sims.carla.frames import Frame
from robo_sims.carla.local_session import LocalSession
from robo_sims.carla.rewards import PERIOD, REWARDS, Situation
from robo_sims.carla.scenarios import SCENARIOS
from robo_sims.carla.scene import SIGNS, Scene, SceneReader, lights_on, stops_on
from robo_sims.carla.sensors import Camera, CollisionSensor, FrontCamera, Hits, NoHits
from robo_sims.carla.session import ANSWER_TIMEOUT, CarlaSession, Session, WorldView, as_server_unavailable
from robo_sims.carla.termination import GOAL, MOVING, SUCCESS_RULE, StopSigns, Termination

SESSION_LOST, TIME_LIMIT = "link_lost", "time_limit"
CAR = "vehicle.tesla.model3"
CAMERA = "birdseye"
"""Name of the coloured bird's-eye picture."""
LIFT = 0.3
"""Height [m] above the ground at which the ego vehicle is spawned."""
PICTURE = 320
"""Height and width [pixel] of a rendered picture."""
LAYOUTS = {"vectors": (observations.VECTORS, observations.vectors), "sets": (sets.SETS, sets.sets)}
"""Name of an observation layout -> its arrays, and the function that computes them."""
SIZES = range(16, 513)
"""[pixels] allowed picture sizes."""


class DrivingEnv(gymnasium.Env[Any, Any]):
    """Route driving at 10 decisions per second.

    With the own stand-in an episode is exactly reproducible from its seed and its actions; with another server it need not be.
    """

    metadata = {  # noqa: RUF012 (Gymnasium's own style)
        "render_modes": ["rgb_array"],
        "render_fps": round(1 / PERIOD),
        "takes_server": True,  # from a training, if it has one: no process beside it may draw
        "film_seconds": 90.0,  # a route and its end
    }
    measures = scoring.MEASURES

    def __init__(  # noqa: PLR0913 (recipe keys)
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
        layout: str = "vectors",
        birdseye: int = 96,
        birdseye_rgb: int = 0,
        camera: int = 0,
        blind: bool = False,
        max_steps: int | None = None,
        host: str | None = None,
        port: int | Sequence[int] = 2000,
        patience: float = ANSWER_TIMEOUT,
        maps: str = "",
        render_mode: str | None = None,
    ) -> None:
        """Create the environment; the first reset starts the server or connects to it.

        map: map of the server; "" for the loaded one.
        reward: "carl" (progress along the route), "shaped" (sum of shaping terms) or "speed".
        routes: "train" or "test"; no route is in both.
        route_length: [m].
        traffic: number of autonomous cars.
        walkers: number of pedestrians who cross the route.
        scenario: one event per route, "pedestrian-crossing" or "blocked-lane"; "" for none.
        layout: "vectors" (the nearest six others, by distance) or "sets" (cars, walkers, lights and signs as sets, with the
            distances along and aside of the route now, in 1 s and in 2 s).
        birdseye: rows and columns of the bird's-eye view [pixels]; 0 for none.
        birdseye_rgb: rows and columns of a coloured bird's-eye view with the car, for rewards [pixels]; 0 for none.
        camera: rows and columns of the front camera [pixels]; 0 for none.
        blind: leave other cars, walkers, lights and signs out of all observations: the measure of what seeing them is worth.
        max_steps: time limit [decisions]; default 30 s plus 0.2 s per metre.
        host, port: CARLA server, or several ports for environments that step at the same time; "stand-in" starts and stops
            a stand-in with the environment, and drives through the client; by default the stand-in's world is in this
            process, which is faster and equal to the bit.
        patience: timeout of a server's answer [s].
        maps: folder of OpenDRIVE files, such as CARLA's towns, for an own stand-in: `map` may name one without .xodr.
        render_mode: None or "rgb_array".
        """
        if render_mode not in (None, "rgb_array"):
            raise InvalidSetting("Unknown render_mode.", got=repr(render_mode), allowed=(None, "rgb_array"))
        _require(
            reward, routes, scenario, route_length, {"traffic": traffic, "walkers": walkers}, (birdseye, birdseye_rgb, camera)
        )
        if layout not in LAYOUTS:
            raise UnknownName("observation layout", str(layout), LAYOUTS)
        if blind and camera:
            raise InvalidSetting("A camera sees.", got=f"camera={camera}, blind=true", fix="leave out one of them")
        self.render_mode = render_mode
        ports = (port,) if isinstance(port, int) else tuple(port)
        if maps and host not in (None, STAND_IN):
            raise InvalidSetting("maps is for an own stand-in.", got=f"maps={maps}, host={host}", fix="leave out one of them")
        self.metadata = {**self.metadata, "takes_server": host not in (None, STAND_IN)}
        if host is None:
            self._session: Session = LocalSession(map=map, maps=maps)
        else:
            self._session = CarlaSession(
                map=map, host=None if host == STAND_IN else host, ports=ports, patience=patience, maps=maps
            )
        self._view: WorldView = self._session
        """The world that is observed."""
        self._set, self._length, self._traffic = routes, float(route_length), traffic
        self._walkers, self._scenario_name = walkers, scenario
        self._birdseye, self._birdseye_rgb, self._camera_size = birdseye, birdseye_rgb, camera
        self._blind = blind
        self._vectors, self._compute = LAYOUTS[layout]
        self._reward = REWARDS[reward]()
        self.environment_spec = self._specification(task, max_steps)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = self.environment_spec.action.space
        self._roads: roads.Roads | None = None
        self._observation: observations.Arrays = {}  # of the previous step; empty between episodes
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
        arrays = (*self._vectors, observations.LEFT, *observations.reward_memory(self._reward))
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
    def session(self) -> Session:
        """Session with the world, for experiments and tests; never for a policy."""
        return self._session

    @property
    def roads(self) -> roads.Roads:
        """Road map of the present episode; it exists after the first reset."""
        assert self._roads is not None
        return self._roads

    @property
    def situation(self) -> Situation:
        """Current situation, for plans, experiments and tests; never for a policy."""
        return self._situation

    @property
    def scene(self) -> Scene:
        """Current scene, for experiments and tests; never for a policy."""
        return self._situation.scene

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[observations.Arrays, dict[str, Any]]:
        """Start an episode, reconnecting to a lost server; raises ServerUnavailable if that fails."""
        super().reset(seed=seed)
        self._observation = {}
        episode = int(self.np_random.integers(2**63))
        # A server that has just died leaves calls without an answer: a short wait first, and a long one for a slow server.
        for wait in (self._session.glancing, contextlib.nullcontext):
            if self._session.is_open:
                with (
                    contextlib.suppress(ServerUnavailable),
                    as_server_unavailable("The server does not begin an episode."),
                    wait(),
                ):
                    return self._begin(np.random.default_rng(episode))
        self._close_session()
        self._session.open()
        self._roads = roads.read(self._session.map())
        with as_server_unavailable("The server does not begin an episode."):
            return self._begin(np.random.default_rng(episode))

    def _begin(self, random: np.random.Generator) -> tuple[observations.Arrays, dict[str, Any]]:
        session = self._session
        assert self._roads is not None
        session.begin()
        self._view = session
        route = routes.draw_route(self._roads, random, self._set, self._length)
        self._vehicle = self._put(route)
        self._hits: Hits = CollisionSensor(session, self._vehicle)
        self._camera: Camera | None = None
        if self._camera_size:
            self._camera = FrontCamera(session, self._vehicle, self._camera_size)
        make = SCENARIOS.get(self._scenario_name)
        self._scenario = None if make is None else make(session, self._roads, route, random)
        others = [] if self._scenario is None else list(self._scenario.actors)
        others += traffic.spawn_traffic(session, route, self._traffic, random)
        others += pedestrians.spawn_pedestrians(session, self._roads, route, self._walkers, random)
        return self._enter(route, session.tick(), others), {"success": False}

    def _enter(self, route: routes.Route, frame: Frame, others: list[Any]) -> observations.Arrays:
        """Begin to observe an episode on a route; return the first observation."""
        view, known = self._view, self.roads
        self._tracker, self._termination = routes.Tracker(route), Termination(known, PERIOD)
        self._termination.signs = StopSigns(stops_on(route, view.signals("traffic.stop")))
        self._lights = lights_on(route, view.signals("traffic.traffic_light"))
        self._signs = sorted((line, kind) for kind in SIGNS for line in stops_on(route, view.signals(kind)))
        self._reader = SceneReader(self._vehicle, others, self._lights, self._signs)
        self._painter = birdseye.BirdsEye(known, route, self._birdseye) if self._birdseye else None
        coloured = self._birdseye_rgb
        self._colourist = birdseye.BirdsEye(known, route, coloured) if coloured else None
        extent = self._vehicle.bounding_box.extent
        self._size = extent.x, extent.y
        self._steps, self._controls, self._ended = 0, np.zeros(2), ""
        self._situation = self._look(frame, stood=False)
        self._termination.ticks = 0
        self._reward.reset(self._situation)
        self._observation = self._observe()
        return self._observation

    def join(self, guest: WorldView, vehicle: Any, route: routes.Route, camera: Camera | None) -> None:
        """Prepare to observe a route that another program simulates and ends; `watch` then returns what a policy sees."""
        self._view, self._vehicle, self._camera, self._scenario = guest, vehicle, camera, None
        self._roads, self._hits = roads.read(guest.map()), NoHits()
        self._joined: routes.Route | None = route
        self._others: list[Any] = []

    def watch(self, frame: Frame, others: list[Any], controls: npt.NDArray[np.float64]) -> observations.Arrays:
        """Return the observation of a frame on a joined route.

        others: actors that are there, apart from the vehicle. controls: the last action.
        """
        if self._joined is not None:
            route, self._joined, self._others = self._joined, None, others
            return self._enter(route, frame, others)
        if [actor.id for actor in others] != [actor.id for actor in self._others]:
            self._others, self._reader = others, SceneReader(self._vehicle, others, self._lights, self._signs)
        self._controls, self._steps = controls, self._steps + 1
        self._situation = self._look(frame, stood=self._situation.scene.ego.speed < MOVING)
        self._reward.terms(self._situation)
        return self._observe()

    @property
    def vehicle(self) -> Any:
        """The car of the present route."""
        return self._vehicle

    @property
    def camera_size(self) -> int:
        """Height and width [pixel] of the front camera's picture; 0 for no camera."""
        return self._camera_size

    def _close_session(self) -> None:
        """Close the session and drop all client objects.

        Each of them keeps the client alive: it would connect to the next server at this address and crash this process with
        an error in its thread.
        """
        self._session.close()
        for name in ("_vehicle", "_hits", "_camera", "_scenario", "_reader"):
            self.__dict__.pop(name, None)

    def _put(self, route: routes.Route) -> Any:
        blueprint = self._session.library.find(CAR)
        blueprint.set_attribute("role_name", "hero")
        vehicle = self._session.spawn(blueprint, self._session.pose(route.points[0], LIFT))
        if vehicle is None:
            raise ServerUnavailable(
                "There is no room at the beginning of the route.",
                got="x {:.1f}, y {:.1f}".format(*route.points[0, :2]),
                fix="remove the server's own traffic",
            )
        return vehicle

    def _look(self, frame: Frame, *, stood: bool) -> Situation:
        scene = self._reader.read(frame)
        place = self._tracker.at(scene.ego.x, scene.ego.y)
        completion = self._tracker.completion
        reason = self._termination.reason(scene, place, completion, self._hits.newest(stood=stood))
        return Situation(scene, place, completion, reason, self._size, self._termination.is_oncoming)

    def step(self, action: npt.NDArray[Any]) -> tuple[observations.Arrays, float, bool, bool, dict[str, Any]]:
        """Drive for 0.1 s with (steer, longitudinal) in [-1, 1].

        A lost server truncates the episode with the stop reason "link_lost".
        """
        controls = self.environment_spec.action.to_physical(action)
        if not self._observation:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        self._steps += 1
        try:
            self._situation = self._drive(controls)
            terms = self._reward.terms(self._situation)  # first: it updates the reward memory, which is observed
            observation = self._observe()
        except ServerUnavailable as error:
            last, self._observation, self._ended = self._observation, {}, SESSION_LOST
            self._close_session()
            lost = {
                "success": False,
                "reward_terms": self._reward.zero_terms(),
                "stop_reason": SESSION_LOST,
                "problem": str(error),
            }
            return {name: value.copy() for name, value in last.items()}, 0.0, False, True, lost
        reason = self._situation.reason
        truncated = reason is None and self._steps == self.environment_spec.max_steps
        info: dict[str, Any] = {"success": reason == GOAL, "reward_terms": terms}
        termination = self._termination
        info[MEASURES] = scoring.measure(
            self._situation.completion, self._tracker.farthest, reason, termination.oncoming_share, termination.signs.missed
        )
        if reason is not None or truncated:
            info["stop_reason"] = self._ended = reason or TIME_LIMIT
        self._observation = {} if "stop_reason" in info else observation
        return observation, float(sum(terms.values())), reason is not None, truncated, info

    def _drive(self, controls: npt.NDArray[np.float64]) -> Situation:
        steer, longitudinal = (float(value) for value in controls)
        self._controls = controls
        self._session.require()
        control = self._session.control(max(longitudinal, 0.0), steer, max(-longitudinal, 0.0))
        with as_server_unavailable("The server takes no controls any more."):
            self._vehicle.apply_control(control)
        if self._scenario is not None:
            self._scenario.step(self._situation.place.s, self._situation.scene.ego.speed)
        self._session.has_stepped = True
        return self._look(self._session.tick(), stood=self._situation.scene.ego.speed < MOVING)

    def _observe(self) -> observations.Arrays:
        tracker = self._tracker
        situation = self._situation.alone() if self._blind else self._situation
        arrays = self._compute(situation, tracker.route, self._controls)
        steps = self.environment_spec.max_steps or 1
        shares = 1.0 - situation.completion, 1.0 - self._steps / steps, 1.0 - self._termination.still
        arrays["left"] = np.array(shares, np.float32)
        if self._reward.memory:
            arrays["reward_memory"] = np.array(self._reward.memory_values(), np.float32)
        if self._painter is not None:
            arrays["birdseye"] = self._painter.draw(situation.scene, situation.place.s, tracker.index)
        if (colourist := self._colourist) is not None:
            picture = colourist.draw(situation.scene, situation.place.s, tracker.index)
            arrays[f"camera_{CAMERA}"] = birdseye.coloured(picture, self._size, colourist.scale)
        if self._camera is not None:
            arrays["camera_front"] = self._camera.picture(situation.scene.frame, self._view.patience)
        return arrays

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return the bird's-eye view with two lines of text (368, 320, 3), or None unless the render mode is "rgb_array"."""
        if self.render_mode != "rgb_array" or self._roads is None:
            return None
        scale = 2.5 * birdseye.SCALE
        painter = birdseye.BirdsEye(self._roads, self._tracker.route, PICTURE, scale)
        picture = painter.draw(self._situation.scene, self._situation.place.s, self._tracker.index)
        shown = birdseye.coloured(picture, self._size, scale)
        painter.draw_stopping_ways(shown, self._situation.scene)
        return birdseye.captioned(shown, *status_text.lines(self._situation, float(self._controls[1]), self._ended))

    def close(self) -> None:
        """Destroy all actors and stop an own server; may be called again."""
        self._observation = {}
        self._session.close()

    def scripted_policy(self, seed: int, noise: float = 0.0) -> ScriptedDriver:
        """Return the expert; `noise` is the standard deviation added to each element of its actions."""
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
