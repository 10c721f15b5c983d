"""Digital twin: a simulated arm that runs on a clock and is driven like a real arm; driver, scene and cameras in one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_real.arm import ArmDriver, ArmState, ArmTarget, Hold, JointTarget, Response, Scene, SetPoint, SetPoints
from robo_real.cameras import Frame
from robo_real.clock import Clock, ManualClock, MonotonicClock
from robo_real.limits import TWIN, Limits
from robo_real.priority import drop_realtime
from robo_real.rotations import quaternion
from robo_rl.entry_points import load
from robo_rl.environments.make import make_environment
from robo_rl.errors import CameraFault, InvalidSetting, RobotUnavailable
from robo_rl.spec.environment import EnvironmentSpec

MOST_BEHIND = 0.25
"""[s] of simulated time that the twin may catch up on; if it is further behind, that time is skipped and counted"""
PICTURE_PERIOD = 0.04
"""Period [s] of a camera's pictures, rendering included."""
SCENE_PICTURE = 5.0
"""[s] longest wait for the first picture after a reset of the scene"""
FIRST_PICTURE = 60.0
"""[s] of wall time to start OpenGL and render the very first picture"""


@dataclass(frozen=True)
class TwinOptions:
    """Options of the digital twin: which task is simulated, how fast, and with which cameras."""

    task: str = "robo/ArmReach-v0"
    """simulated arm task, such as robo/ArmPick-v0, or package.module:Class of a task with an arm of your own"""
    speed: float = 1.0
    """speed of the twin's clock, as a multiple of real time; above 0"""
    cameras: tuple[str, ...] = ()
    """cameras of the task's model, front and wrist, whose pictures are added to the observation"""
    image_size: int = 84
    """[pixel] height and width of the pictures"""
    sees: str | None = None
    """front, wrist or both: adds the pictures of these cameras in place of the positions of objects and goals, which are then
    hidden from the policy; None leaves the positions in the observation"""


class Twin(ArmDriver, Scene):
    """Simulated arm with its scene and cameras, in the time of its clock. It is the driver `twin` of `robo-rl robot serve`."""

    options = TwinOptions
    limits: Limits | None = TWIN
    """Limits that hold without a limits file; None for an arm of your own, for which a limits file is required."""
    is_simulated = True
    width = TWIN.opening

    def __init__(self, options: TwinOptions | None = None, clock: Clock | None = None) -> None:
        """Build the simulation; `connect` starts it.

        Args:
            options: Options of the twin; by default those of `TwinOptions()`.
            clock: By default the machine's clock, `speed` times as fast. With a ManualClock the twin advances only while its
                `sleep` is called, so that episodes are exactly reproducible.

        Raises:
            InvalidSetting: The speed is not above 0, or the task cannot be simulated as a twin.
            UnknownName: There is no such task.
        """
        self._options = options or TwinOptions()
        if not self._options.speed > 0:
            raise InvalidSetting("The speed of the twin is out of range.", got=self._options.speed, allowed="above 0")
        self.clock = clock or MonotonicClock(self._options.speed)
        self._plant = _plant(self._options)
        self.period: float = self._plant.tick
        self.response = None if self._plant.lag is None else Response(self._plant.lag, self._plant.quickest)
        self.home: npt.NDArray[np.float64] = self._plant.home
        self._set_points: SetPoints | None = None
        self.spec: EnvironmentSpec = self._plant.spec
        if ":" in self._options.task:  # an arm of somebody's own
            self.limits, self.width = None, self.spec.action.high[-1]
        self.name = self.spec.name
        self.skipped = 0
        """number of times that the twin fell more than MOST_BEHIND behind its clock and skipped that time"""
        self._lock = threading.Lock()
        self._is_open = False
        self._zero = np.zeros(3), np.zeros(3)  # force and torque that are measured as none
        self._simulated = self._began = 0.0
        self._frames: dict[str, Frame] = {}
        self._undrawn: Exception | None = None
        self._has_drawn = threading.Event()
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []

    # ArmDriver

    def attach(self, set_points: SetPoints) -> None:
        """Read a set point at each tick of the controller from now on."""
        self._set_points = set_points

    @override
    def connect(self) -> None:
        """Start the simulation; raises RenderingUnavailable if its cameras cannot be rendered."""
        if self._is_open:
            return
        self._is_open, self._simulated = True, self.clock.now()
        self._done.clear()
        self._has_drawn.clear()
        self._undrawn = None
        if not isinstance(self.clock, ManualClock):
            works: list[Callable[[], None]] = [self._run, *([self._take_pictures] if self.cameras else [])]
            self._threads = [threading.Thread(target=work, name=f"twin{work.__name__}", daemon=True) for work in works]
            for thread in self._threads:
                thread.start()
            if self._is_drawn and self._has_drawn.wait(FIRST_PICTURE) and self._undrawn is not None:
                self.close()
                raise self._undrawn

    @override
    def read(self) -> ArmState:
        with self._at_present():
            return self._measured()

    @override
    def move(self, target: ArmTarget) -> None:
        """Send hand and gripper to a target."""
        with self._at_present():
            self._obey(target)

    @override
    def hold(self) -> None:
        if self._is_open:
            with self._at_present():
                self._plant.hold()

    @override
    def recover(self) -> None:
        """Do nothing: a simulated arm has no errors of its own."""

    def tare(self) -> None:
        """Take the present force and torque as zero: later measurements are relative to them."""
        with self._at_present():
            state = self._measured()
            self._zero = self._zero[0] + state.force, self._zero[1] + state.torque

    @override
    def close(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self._threads, self._is_open = [], False

    # Scene

    @override
    def reset(self, seed: int) -> None:
        """Bring arm and objects to the start of the simulated task with that seed."""
        with self._at_present():
            self._plant.reset(seed)
            if self._set_points is not None:
                self._set_points.displaced()
            self._frames, self._began = {}, self._simulated
        end = self.clock.now() + SCENE_PICTURE
        while self._is_drawn and not self._frames and self.clock.now() < end:  # else a policy would see the previous scene
            self.clock.sleep(PICTURE_PERIOD / 5)

    @override
    def observe(self) -> dict[str, npt.NDArray[Any]]:
        with self._at_present():
            found: dict[str, npt.NDArray[Any]] = self._plant.things()
            return found

    @override
    def success(self) -> bool | None:
        """Return whether the task was done since the reset."""
        with self._at_present():
            return bool(self._plant.succeeded)

    # extras of Franka's server

    def update_param(self, parameters: dict[str, float]) -> None:
        """Set the clips of the controller, named as those of the impedance controller; other parameters have no effect.

        Args:
            parameters: Name -> value; `translational_clip_x` [m] and `rotational_clip_x` (half of the angle [rad]), also for y
                and z.
        """
        with self._lock:
            for index, axis in enumerate("xyz"):
                clip = self._plant.clip
                clip[index] = parameters.get(f"translational_clip_{axis}", clip[index])
                clip[3 + index] = 2 * parameters.get(f"rotational_clip_{axis}", clip[3 + index] / 2)  # half the angle

    # cameras

    @property
    def cameras(self) -> tuple[str, ...]:
        """Names of the cameras, as in the observation."""
        return tuple(name for name, array in self.spec.observation.items() if array.role == "image")

    def newest(self, camera: str) -> Frame:
        """Return the newest picture of a camera; raises CameraFault before the first, and if rendering has failed."""
        if isinstance(self.clock, ManualClock):
            return self._render_now(camera)
        frames = self._frames
        if self._undrawn is not None:
            raise CameraFault("The twin draws no pictures any more.", got=self._undrawn, fix="serve it again")
        if camera not in frames:
            raise CameraFault(f"The twin has no picture of the camera {camera!r} yet.", allowed=self.cameras)
        return frames[camera]

    @property
    def _is_drawn(self) -> bool:
        """True if a thread renders the cameras."""
        return len(self._threads) > 1

    # time

    def _run(self) -> None:
        tick = self._plant.tick
        while not self._done.is_set():
            with self._at_present():
                pass
            self.clock.sleep(tick)

    @contextmanager
    def _at_present(self) -> Iterator[None]:
        """Simulate the plant up to now, and lock it for this thread inside the context."""
        with self._lock:
            self._catch_up()
            yield

    def _catch_up(self) -> None:
        if not self._is_open:
            raise RobotUnavailable("The twin is not running.", fix="connect() first")
        now, tick = self.clock.now(), self._plant.tick
        if not isinstance(self.clock, ManualClock) and now - self._simulated > MOST_BEHIND * max(1.0, self._options.speed):
            self.skipped += 1
            self._simulated = now - tick
        while self._simulated + tick <= now + 1e-9:
            if self._set_points is not None and (point := self._set_points.tick(self._measured(), self._simulated)) is not None:
                self._obey(point)
            self._plant.advance()
            self._simulated += tick

    def _obey(self, point: SetPoint) -> None:
        if isinstance(point, Hold):
            self._plant.hold()
        elif isinstance(point, JointTarget):
            self._plant.follow_joints(point.position)
        else:
            self._plant.follow(point.position, point.quaternion)
            if point.opening is not None:
                self._plant.open_to(point.opening)

    def _measured(self) -> ArmState:
        measured = self._plant.measure()
        measured["force"] = measured["force"] - self._zero[0]
        measured["torque"] = measured["torque"] - self._zero[1]
        measured["quaternion"] = quaternion(measured["quaternion"])
        return ArmState(stamp=self._simulated, **measured)

    def _take_pictures(self) -> None:
        """Render until the twin is closed or rendering fails; `newest` then raises the error."""
        try:
            self._draw()
        except Exception as error:  # any OpenGL may raise its own
            self._undrawn = error
        self._has_drawn.set()

    def _draw(self) -> None:
        """Render the cameras from copies of the state, in the one thread that owns the OpenGL context."""
        drop_realtime()
        period, due, number = PICTURE_PERIOD / self._options.speed, time.monotonic(), 0
        with closing(self._plant.pictures()) as pictures:
            while not self._done.wait(max(due - time.monotonic(), 0.0)):
                due = max(due + period, time.monotonic())  # missed pictures are not made up for
                with self._lock:
                    pictures.copy_state()
                    stamp = self._simulated
                number += 1
                frames = {name: Frame(found, stamp, number, name) for name, found in pictures.draw().items()}
                if stamp >= self._began:
                    self._frames = frames
                self._has_drawn.set()

    def _render_now(self, camera: str) -> Frame:
        pictures = self._plant.pictures()
        with self._at_present():
            pictures.copy_state()
            stamp = self._simulated
        found = pictures.draw()[camera]
        pictures.close()
        self._frames[camera] = frame = Frame(found, stamp, round(stamp / self._plant.tick), camera)
        return frame


def _plant(options: TwinOptions) -> Any:
    """Return the simulated arm of the options' task; raises InvalidSetting if the task has none."""
    drawing: dict[str, Any] = {"cameras": options.cameras, "image_size": options.image_size, "sees": options.sees}
    family, _, task = options.task.partition("/")
    if ":" not in options.task:
        makes = getattr(load("environments", family), "make_realtime_arm", None)
    else:
        given = {name: value for name, value in drawing.items() if value} if options.cameras or options.sees else {}
        environment = make_environment(options.task, **given)
        makes, task = getattr(environment.unwrapped, "make_realtime_arm", None), ""
    if makes is None:
        allowed = "robo/Arm..., or package.module:Class of an OwnArmTask (docs/robots/own-arm.md)"
        raise InvalidSetting("This task has no plant to make a twin of.", got=options.task, allowed=allowed)
    return makes(task, **drawing) if task else makes()
