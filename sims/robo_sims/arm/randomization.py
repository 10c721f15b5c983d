"""Domain randomisation of the arm's tasks: looks, cameras, contacts and timing that differ from episode to episode.

Tobin et al. 2017, "Domain Randomization for Transferring Deep Neural Networks from Simulation to the Real World"
(arXiv 1703.06907); Peng et al. 2018, "Sim-to-Real Transfer of Robotic Control with Dynamics Randomization" (arXiv 1710.06537).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import mujoco
import numpy as np
import numpy.typing as npt

from robo_rl.errors import InvalidSetting, UnknownName

STREAM = 0x5EED
"""Number in the seed of the generator for randomisation, so that it draws nothing from the generator that places objects."""
FIXED_CAMERAS = ("overview",)
"""Cameras that randomisation leaves alone, because people look at their pictures."""
CHANGED = (
    *("geom_rgba", "mat_rgba", "geom_matid", "light_diffuse", "light_dir", "cam_pos", "cam_quat", "cam_fovy"),
    *("geom_friction", "body_mass", "body_inertia"),
)
"""Names of the arrays of a MuJoCo model that randomisation changes, so that they can be restored."""
TEXTURES = 8
"""Patterns of the table among which an episode draws, the plain one not counted."""
NOISE = {
    "joint_position": 0.001,
    "joint_velocity": 0.01,
    "gripper_opening": 0.0005,
    "end_effector_position": 0.001,
    "end_effector_quaternion": 0.002,
    "image": 4.0,
}
"""Entry of an observation -> standard deviation of its noise at `noise` 1, in the entry's unit; "image" in 255ths per
channel."""
LONGEST_LATENCY = 0.048
"""[s] less than a control period."""


@dataclass(frozen=True)
class Randomization:
    """Ranges of domain randomisation; each value is drawn uniformly at a reset, 0 leaves it as it is."""

    colours: float = 0.0
    """[1] largest change of red, green and blue of each surface, of 1."""
    light: float = 0.0
    """[1] largest relative change of the brightness of each light, and change of its direction."""
    textures: float = 0.0
    """[1] share of episodes with a pattern on the table."""
    camera_position: float = 0.0
    """[m] largest shift of each camera along each axis."""
    camera_rotation: float = 0.0
    """[rad] largest turn of each camera about a random axis."""
    camera_fov: float = 0.0
    """[1] largest relative change of the field of view."""
    friction: float = 0.0
    """[1] largest relative change of the sliding friction of the task's bodies and the finger pads."""
    mass: float = 0.0
    """[1] largest relative change of the mass of each of the task's bodies."""
    latency: float = 0.0
    """[s] largest delay of a command."""
    noise: float = 0.0
    """[1] largest multiple of the standard deviations in NOISE."""

    def __post_init__(self) -> None:
        most = {"latency": LONGEST_LATENCY, "noise": 100.0, "camera_rotation": 1.0, "camera_position": 0.5}
        for field in fields(self):
            value, limit = getattr(self, field.name), most.get(field.name, 1.0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= limit:
                raise InvalidSetting(f"randomization.{field.name} is out of range.", got=value, allowed=f"0 to {limit:g}")
        if self.light >= 1.0 or self.friction >= 1.0 or self.mass >= 1.0 or self.camera_fov >= 1.0:
            names = ", ".join(name for name in ("light", "friction", "mass", "camera_fov") if getattr(self, name) >= 1.0)
            raise InvalidSetting(f"randomization.{names} is out of range.", got=1.0, allowed="0 to below 1")

    @classmethod
    def of(cls, setting: str | Mapping[str, float] | None) -> Randomization | None:
        """Return the ranges of a preset's name or of a mapping, None if nothing is randomised; raises UnknownName."""
        if setting is None or isinstance(setting, Randomization):
            return setting
        if isinstance(setting, str):
            if setting not in PRESETS:
                raise UnknownName("preset of randomization", setting, PRESETS)
            return PRESETS[setting]
        if not isinstance(setting, Mapping):
            raise InvalidSetting("randomization is no mapping.", got=setting, allowed=f"a mapping, or {', '.join(PRESETS)}")
        known = [field.name for field in fields(cls)]
        for name in setting:
            if name not in known:
                raise UnknownName("range of randomization", str(name), known)
        ranges = cls(**setting)
        return None if ranges == cls() else ranges


_VISUAL = Randomization(
    colours=0.12, light=0.4, textures=0.5, camera_position=0.02, camera_rotation=0.03, camera_fov=0.05, noise=1.0
)
_PHYSICAL = Randomization(friction=0.3, mass=0.3, latency=0.03, noise=1.0)
PRESETS = {
    "visual": _VISUAL,
    "physical": _PHYSICAL,
    "all": replace(_VISUAL, friction=_PHYSICAL.friction, mass=_PHYSICAL.mass, latency=_PHYSICAL.latency),
}
"""Ranges by name, chosen to leave the tasks solvable by their experts."""


class Randomizer:
    """Randomiser of a model: changes it for each episode, and restores it for episodes without."""

    def __init__(self, ranges: Randomization, model: mujoco.MjModel) -> None:
        self._ranges, self._model = ranges, model
        self._random = np.random.default_rng()
        self._plain = {name: getattr(model, name).copy() for name in CHANGED}
        self._ambient = model.vis.headlight.ambient.copy()
        self._cameras = [number for number in range(model.ncam) if model.camera(number).name not in FIXED_CAMERAS]
        self._bodies = [number for number in range(1, model.nbody) if _belongs_to_task(model, number)]
        pads = [model.geom(name).id for name in ("left_pad", "right_pad")]
        self._rubbing = [*pads, *(geom for geom in range(model.ngeom) if model.geom_bodyid[geom] in self._bodies)]
        self._table = [geom for geom in range(model.ngeom) if model.geom_matid[geom] == model.material("table").id]
        self._patterns = [number for number in range(model.nmat) if model.material(number).name.startswith("pattern_")]
        self.latency = 0.0
        """[s] delay of commands in this episode."""
        self._noise = 0.0

    def begin(self, data: mujoco.MjData, seed: int | None, *, enabled: bool = True) -> dict[str, Any]:
        """Draw the values of an episode, before its reset, and return them for the episode's metadata; {} if not enabled."""
        if seed is not None:
            self._random = np.random.default_rng([seed, STREAM])
        for name, values in self._plain.items():
            getattr(self._model, name)[:] = values
        self._model.vis.headlight.ambient[:] = self._ambient
        self.latency = self._noise = 0.0
        drawn = self._draw() if enabled else {}
        mujoco.mj_setConst(self._model, data)
        return drawn

    def disturb(self, observation: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Return the observation with random measurement noise added, if noise is randomised; name -> array."""
        if not self._noise:
            return observation
        return {name: self._disturbed(name, values) for name, values in observation.items()}

    def _disturbed(self, name: str, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        deviation = self._noise * NOISE.get("image" if values.dtype == np.uint8 else name, 0.0)
        if not deviation:
            return values
        noisy = values + deviation * self._random.standard_normal(values.shape, np.float32)
        limited = np.clip(noisy, 0, 255).round() if values.dtype == np.uint8 else noisy
        disturbed: npt.NDArray[Any] = limited.astype(values.dtype)
        return disturbed

    def _draw(self) -> dict[str, Any]:
        """Draw the values of an episode. Ranges of 0 draw, too: two settings share the draws of the others."""
        model, ranges, random = self._model, self._ranges, self._random
        for rgba in (model.geom_rgba, model.mat_rgba):
            shift = ranges.colours * random.uniform(-1, 1, (len(rgba), 3))
            rgba[:, :3] = np.clip(rgba[:, :3] + shift, 0.0, 1.0)
        brightness = 1 + ranges.light * random.uniform(-1, 1, 1 + model.nlight)
        model.light_diffuse *= brightness[1:, None]
        model.vis.headlight.ambient[:] = self._ambient * brightness[0]
        model.light_dir += ranges.light * random.uniform(-1, 1, model.light_dir.shape)
        model.light_dir /= np.linalg.norm(model.light_dir, axis=1, keepdims=True)
        pattern = int(random.integers(max(len(self._patterns), 1)))
        has_pattern = bool(random.random() < ranges.textures and self._patterns)
        if has_pattern:
            model.geom_matid[self._table] = self._patterns[pattern]
        for number in self._cameras:
            model.cam_pos[number] += ranges.camera_position * random.uniform(-1, 1, 3)
            axis = random.standard_normal(3)
            turn, turned = np.empty(4), np.empty(4)
            mujoco.mju_axisAngle2Quat(turn, axis / np.linalg.norm(axis), ranges.camera_rotation * random.uniform(-1, 1))
            mujoco.mju_mulQuat(turned, model.cam_quat[number], turn)
            model.cam_quat[number] = turned
            model.cam_fovy[number] *= 1 + ranges.camera_fov * random.uniform(-1, 1)
        friction = 1 + ranges.friction * random.uniform(-1, 1)
        model.geom_friction[self._rubbing, 0] *= friction
        masses = 1 + ranges.mass * random.uniform(-1, 1, len(self._bodies))
        model.body_mass[self._bodies] *= masses
        model.body_inertia[self._bodies] *= masses[:, None]
        self.latency = ranges.latency * random.uniform()
        self._noise = ranges.noise * random.uniform()
        return {
            "brightness": brightness.tolist(),
            "pattern": pattern if has_pattern else None,
            "cameras": {
                model.camera(number).name: {
                    "position": model.cam_pos[number].tolist(),
                    "quaternion": model.cam_quat[number].tolist(),
                    "fovy": float(model.cam_fovy[number]),
                }
                for number in self._cameras
            },
            "friction": friction,
            "masses": masses.tolist(),
            "latency": self.latency,
            "noise": self._noise,
        }


def _belongs_to_task(model: mujoco.MjModel, body: int) -> bool:
    """Return True for bodies of the world that are not the arm's."""
    root = model.body_rootid[body]
    return str(model.body(root).name) != "base"


def patterns() -> str:
    """Return MJCF assets: TEXTURES materials for the table, checkers and gradients of muted colours."""
    random = np.random.default_rng(STREAM)
    lines = []
    for number in range(TEXTURES):
        first, second = (" ".join(f"{value:.2f}" for value in random.uniform(0.2, 0.95, 3)) for _ in range(2))
        kind = "checker" if number % 2 else "gradient"
        repeat = random.integers(2, 9)
        lines += [
            f'<texture name="pattern_{number}" type="2d" builtin="{kind}" rgb1="{first}" rgb2="{second}" '
            'width="64" height="64"/>',
            f'<material name="pattern_{number}" texture="pattern_{number}" texrepeat="{repeat} {repeat}" '
            'specular="0.05" shininess="0.1"/>',
        ]
    return "\n".join(lines)
