"""MuJoCo's own window as a screen: space pauses, R restarts, N goes to the next seed, Tab shows MuJoCo's panel."""

from __future__ import annotations

import threading
import warnings
from importlib import import_module
from typing import Any

import gymnasium
import mujoco

from robo_app.display.browser import has_display
from robo_app.playback.playback import Command, Moment, Player
from robo_rl.errors import InvalidSetting, RenderingUnavailable
from robo_rl.evaluation.video import Frame
from robo_rl.spec.environment import specification

KEYS: dict[int, Command] = {ord("R"): "restart", ord("N"): "next"}
SPACE = 32
PATIENCE = 3.0
"""Longest wait [s] for the window to close."""
CAMERAS = ("overview", "track")
"""Cameras from which the window shows the model: the first one that exists, else a free camera."""


def simulation_of(environment: gymnasium.Env[Any, Any]) -> tuple[mujoco.MjModel, mujoco.MjData] | None:
    """Return MuJoCo's model and data of an environment; None if another simulator is behind it."""
    found = getattr(environment.unwrapped, "physics", environment.unwrapped)
    model, data = getattr(found, "model", None), getattr(found, "data", None)
    return (model, data) if isinstance(model, mujoco.MjModel) and isinstance(data, mujoco.MjData) else None


def has_window() -> bool:
    """Return True if a window can be opened; otherwise MuJoCo's viewer would end the whole process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(import_module("glfw").init())
    except (ImportError, OSError):
        return False


class Window:
    """Screen that shows the simulation of an environment in MuJoCo's window."""

    def __init__(self, environment: gymnasium.Env[Any, Any], player: Player) -> None:
        """Prepare the window, which `show` opens; raises RenderingUnavailable if no window can be opened."""
        if not has_window():
            raise _no_window("GLFW finds no display")
        self._viewer: Any = import_module("mujoco.viewer")
        self._environment, self._player = environment, player
        self._model: mujoco.MjModel | None = None
        self._handle: Any = None
        self._threads: list[threading.Thread] = []

    @property
    def is_open(self) -> bool:
        """True until the user closes the window."""
        return self._handle is None or bool(self._handle.is_running())

    def show(self, picture: Frame | None, moment: Moment) -> None:
        """Show the current state of the simulation; raises RenderingUnavailable if the window does not open."""
        del picture, moment
        found = simulation_of(self._environment)
        assert found is not None
        if found[0] is not self._model:  # some tasks compile a model for each episode
            self.close()
            before = threading.enumerate()
            plain = {"show_left_ui": False, "show_right_ui": False}
            try:
                self._handle = self._viewer.launch_passive(*found, key_callback=self._pressed, **plain)
            except RuntimeError as error:  # macOS wants mjpython
                raise _no_window(f"{type(error).__name__}: {error}") from error
            self._threads = [thread for thread in threading.enumerate() if thread not in before]
            self._model = found[0]
            self._look_from(found[0])
        self._handle.sync()

    def close(self) -> None:
        """Close the window; without effect if none is open."""
        if self._handle is not None:
            self._handle.close()
            for thread in self._threads:  # GLFW is ended with the process, and must not be in the middle of a picture then
                thread.join(PATIENCE)

    def _look_from(self, model: mujoco.MjModel) -> None:
        known = {model.camera(number).name: number for number in range(model.ncam)}
        if (name := next((name for name in CAMERAS if name in known), None)) is not None:
            self._handle.cam.type, self._handle.cam.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, known[name]

    def _pressed(self, key: int) -> None:
        if key == SPACE:
            self._player.command("go" if self._player.is_paused else "pause")
        elif key in KEYS:
            self._player.command(KEYS[key])


def _no_window(why: str) -> RenderingUnavailable:
    return RenderingUnavailable(
        "MuJoCo's viewer does not open a window here.",
        got=why,
        fix="--viewer browser shows the same in the browser, --video FILE.mp4 in a film",
    )


def wants_window(viewer: str, environment: gymnasium.Env[Any, Any]) -> bool:
    """Return True if MuJoCo's window is to be opened; raises InvalidSetting for "window" with another simulator.

    viewer: "auto", "window" or "browser".
    """
    is_mujoco = simulation_of(environment) is not None
    if viewer == "window" and not is_mujoco:
        raise InvalidSetting(
            f"{specification(environment).name} is not simulated by MuJoCo, whose window shows nothing else.",
            got="--viewer window",
            fix="--viewer browser",
        )
    return viewer == "window" or (viewer == "auto" and is_mujoco and has_display() and has_window())
