"""Camera device of the tests, read by the real camera process; the test changes its state by a file."""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robo_real.cameras import CameraDevice
from robo_rl.errors import CameraFault

PERIOD = 1 / 30
STATE = {"plugged": True, "frozen": False, "stamp_frozen": False, "hangs": False, "dies": False, "size": 64, "serial": "A1"}


@dataclass(frozen=True)
class ScriptedOptions:
    state: str
    scene: int = 1


class ScriptedCamera(CameraDevice):
    """Noisy pictures of a scene made from `scene`, as a webcam's sensor gives them."""

    options = ScriptedOptions

    def __init__(self, options):
        self._options, self._random = options, np.random.default_rng(0)
        self._held = None

    def state(self):
        return STATE | json.loads(Path(self._options.state).read_text())

    def open(self):
        state = self.state()
        if not state["plugged"]:
            raise CameraFault("The scripted camera does not open.", fix="plug it in")
        return state["serial"]

    def read(self):
        time.sleep(PERIOD)
        state = self.state()
        if state["hangs"]:
            time.sleep(60)
        if state["dies"]:
            os.abort()
        if not state["plugged"]:
            raise CameraFault("The scripted camera gives no picture.", fix="plug it in")
        scene = np.random.default_rng(state.get("scene", self._options.scene)).integers(40, 200, (8, 8, 3))
        size = state["size"]
        picture = np.kron(scene, np.ones((size // 8, size // 8, 1))) + self._random.normal(0, 4, (size, size, 3))
        picture, now = np.clip(picture, 0, 255).astype(np.uint8), time.monotonic()
        if not state["frozen"]:
            self._held = picture
        if not state["stamp_frozen"]:
            self._stamp = now
        return self._held, self._stamp if state["stamp_frozen"] else now

    def close(self):
        pass
