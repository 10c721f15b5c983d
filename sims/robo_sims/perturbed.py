"""The wrapper `perturbed`: it changes physics, timing and sensing of an environment, to test the robustness of a policy.

The spec stays the same, so that any policy can be evaluated: sensitivity to model errors as in Pinto et al. 2017, "Robust
Adversarial Reinforcement Learning", arXiv:1703.02702, figures 6 and 7. Factors and pushes need a MuJoCo model, the rest does
not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.environments.wrapping import EnvironmentWrapper
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import specification

FACTORS: Mapping[str, tuple[str, ...]] = {
    "mass": ("body_mass", "body_inertia"),
    "friction": ("geom_friction", "pair_friction"),
    "damping": ("dof_damping",),
    "strength": ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
    "gravity": ("gravity",),
}
"""Factor -> arrays of the MuJoCo model that it multiplies."""
PUSHED = 0.1
"""Share of the steps in which a body is pushed."""


@dataclass(frozen=True)
class Perturbation(EnvironmentWrapper):
    """Settings of the wrapper: differences from the environment in which a policy was trained; by default there are none."""

    mass: float = 1.0
    """Factor of masses and inertias of all bodies."""
    friction: float = 1.0
    """Factor of the friction coefficients of all geoms."""
    damping: float = 1.0
    """Factor of the damping of all joints."""
    strength: float = 1.0
    """Factor of the forces of all actuators: gains, biases and limits."""
    gravity: float = 1.0
    """Factor by which gravity is multiplied."""
    latency: int = 0
    """Delay of actions in steps; until the first arrives, actions of 0 are executed."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise on each number of observed vectors, in the unit of the vector."""
    dropped: float = 0.0
    """Share of actions that are lost, 0 to 1; the previous action is then executed again."""
    push: float = 0.0
    """Horizontal force [N] on a random body, in a random tenth of the steps."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)
            fits = is_number and 0.0 <= value <= (1.0 if each.name == "dropped" else np.inf)
            if each.name == "latency":
                fits = fits and float(value).is_integer()
            if each.name == "mass":
                fits = fits and value > 0
            if not fits:
                allowed = {"latency": "a whole number of steps", "dropped": "0 to 1", "mass": "above 0"}.get(
                    each.name, "0 or more"
                )
                raise InvalidSetting(f"Perturbation {each.name!r} is out of range.", got=value, allowed=allowed)

    @override
    def wrap(self, environment: gymnasium.Env[Any, Any]) -> PerturbedEnv:
        return PerturbedEnv(environment, self)

    @property
    def factors(self) -> dict[str, float]:
        """Factors of the MuJoCo model that differ from 1."""
        return {name: value for name in FACTORS if (value := float(getattr(self, name))) != 1.0}


class PerturbedEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment with a perturbation; `close` restores the MuJoCo model."""

    def __init__(self, environment: gymnasium.Env[Any, Any], perturbation: Perturbation) -> None:
        """Wrap an environment.

        Raises InvalidSetting if the perturbation needs a MuJoCo model and the environment has none, or for `latency` with
        discrete actions.
        """
        super().__init__(environment)
        self.perturbation, self._spec = perturbation, specification(environment)
        self._vectors = [array for array in self._spec.observation.arrays if np.issubdtype(array.dtype, np.floating)]
        needed = [*perturbation.factors, *(["push"] if perturbation.push else [])]
        if needed and not isinstance(self._model(), mujoco.MjModel):
            raise InvalidSetting(
                f"{self._spec.name} has no MuJoCo model that could be perturbed.",
                got=", ".join(needed),
                allowed="latency, noise, dropped",
                fix="leave the others out, or take an environment that MuJoCo simulates",
            )
        if perturbation.latency and self._spec.action.mode == "discrete":
            raise InvalidSetting("Discrete actions have no neutral one to begin with.", got="latency", allowed="latency 0")
        self._nominal: tuple[mujoco.MjModel, dict[str, npt.NDArray[np.float64]]] | None = None
        self._random = np.random.default_rng()
        self._waiting: list[Any] = []
        self._executed: Any = None

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._restore()  # so that what the environment draws for an episode is multiplied once
        observation, info = self.env.reset(seed=seed, options=options)
        if seed is not None:
            self._random = np.random.default_rng([seed, 7])
        self._apply()
        self._waiting = [np.zeros(self._spec.action.size, np.float32)] * int(self.perturbation.latency)
        self._executed = None
        return self._noisy(observation), info

    @override
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._waiting.append(action)
        arrived = self._waiting.pop(0)
        is_lost = self.perturbation.dropped and self._random.random() < self.perturbation.dropped
        self._executed = self._executed if is_lost and self._executed is not None else arrived
        self._push()
        observation, reward, terminated, truncated, info = self.env.step(self._executed)
        if self._executed is not action:
            info = {**info, "executed_action": self._executed}
        return self._noisy(observation), reward, terminated, truncated, info

    @override
    def close(self) -> None:
        self._restore()
        super().close()

    def _model(self) -> Any:
        return self.env.get_wrapper_attr("model") if self.env.has_wrapper_attr("model") else None

    def _apply(self) -> None:
        if not (factors := self.perturbation.factors):
            return
        model = self._model()
        arrays = {name: _array(model, name) for factor in factors for name in FACTORS[factor]}
        self._nominal = model, {name: array.copy() for name, array in arrays.items()}
        for factor, value in factors.items():
            for name in FACTORS[factor]:
                arrays[name] *= value
        mujoco.mj_setConst(model, mujoco.MjData(model))  # masses of subtrees and what else follows from them

    def _restore(self) -> None:
        if self._nominal is None:
            return
        model, before = self._nominal
        for name, array in before.items():
            _array(model, name)[:] = array
        mujoco.mj_setConst(model, mujoco.MjData(model))
        self._nominal = None

    def _push(self) -> None:
        """Set the horizontal force on a random body in a random tenth of the steps, no force otherwise."""
        if not self.perturbation.push:
            return
        forces = self.env.get_wrapper_attr("data").xfrc_applied
        forces[:] = 0.0
        angle, body = self._random.uniform(0.0, 2.0 * np.pi), self._random.integers(1, len(forces))
        if self._random.random() < PUSHED:
            forces[body, :2] = self.perturbation.push * np.array([np.cos(angle), np.sin(angle)])

    def _noisy(self, observation: Any) -> Any:
        if not self.perturbation.noise:
            return observation
        noisy = {}
        for array in self._vectors:
            values = observation[array.name] + self._random.normal(0.0, self.perturbation.noise, array.shape)
            noisy[array.name] = np.clip(values, array.low, array.high).astype(array.dtype)
        return {**observation, **noisy}


def _array(model: mujoco.MjModel, name: str) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = model.opt.gravity if name == "gravity" else getattr(model, name)
    return found
