"""Gymnasium environment around a simulator: action limits, time limit, divergence, seeds, `info`.

A simulator implements the small protocol `Simulation`; `SimulationEnvironment` has the code that is common to all simulators.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.measures import Measure
from robo_rl.protocols.components import Policy
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import DIVERGED, MEASURES, Metrics
from robo_sims.cameras import CameraObservations, Cameras, detail_of, free_camera

Arrays = dict[str, npt.NDArray[Any]]

PICTURE_SIZE = 320
"""Height and width of a rendered picture [pixel]; without a graphics card 480 would take over twice as long."""
_STATES = ("qpos", "qvel", "qacc")
_WARNINGS = (mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC)


@dataclass(frozen=True)
class SimulationStep:
    """Result of one control step of a simulation."""

    observation: Arrays
    reward: float
    terminated: bool = False
    truncated: bool = False
    """True at a time limit of the simulation itself, in addition to that of the spec; it may differ between episodes."""
    success: bool | None = None
    """True for success in this step; None if the task has no success criterion."""
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    """Name -> value of each constraint cost that the spec declares."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Name -> value, so far in the episode, of each measure that the simulation declares."""


@dataclass(frozen=True)
class Barriers:
    """Constraints G u >= b on a physical action u (A,): safe actions of the current state satisfy all K of them.

    Safety filters use them to correct an action.
    """

    gradient: npt.NDArray[np.float64]
    """Matrix G (K, A) of the K constraints."""
    bound: npt.NDArray[np.float64]
    """Right-hand side b (K,) of the K constraints."""
    brake: npt.NDArray[np.float64]
    """Physical action (A,) that brings the robot to a stop."""


class Simulation(Protocol):
    """A task in a simulator. Observations are new arrays with the shapes and types of `spec`."""

    spec: EnvironmentSpec
    instruction: str | None = None
    """Instruction of the current episode, if it differs between episodes; else None."""
    scripted_policy: Callable[..., Policy] | None = None
    """Function (seed, noise=0.0) -> scripted expert of the task; None if there is none."""
    measures: tuple[Measure, ...] = ()
    """Measures of an episode besides return and success, whose values are in SimulationStep."""
    propose: Callable[..., Any] | None = None
    """Function (observation, action in [-1, 1]^A) -> plan that can be judged without a step; None if actions are no plans."""
    barriers: Callable[[], Barriers] | None = None
    """Function that returns the Barriers of the current state, for safety filters; None if the task has none."""

    @property
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData] | None:
        """Model and data of the current episode, or None without MuJoCo."""
        return None

    @property
    def layout(self) -> str | None:
        """Fingerprint of the initial state, for tasks in which two seeds may draw the same; None for others."""
        return None

    @property
    def metrics(self) -> Metrics:
        """Counters for the log of a training, by tag, since the simulation was made."""
        return {}

    def reset(self, seed: int | None) -> Arrays:
        """Begin an episode that the seed determines, and return its first observation; None continues the random numbers."""

    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Apply an action in physical units for one control period."""

    def render(self) -> npt.NDArray[np.uint8]:
        """Return a picture uint8 (H, W, 3); families with MuJoCo use `overview`, so that their pictures look alike."""

    def close(self) -> None:
        """Free the simulator."""


class MujocoSimulation(Simulation):
    """Base of tasks of other packages whose environment has MuJoCo's `model` and `data`; it renders their own camera."""

    def __init__(self, environment: Any, detail: str) -> None:
        self._environment, self._overview = environment, overview(detail)

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self._environment.model, self._environment.data

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self._environment.data, source_camera(self._environment))

    @override
    def close(self) -> None:
        self._overview.close()
        self._environment.close()


class DivergenceMonitor:
    """Finds a diverged MuJoCo simulation; call `reason` after each control step.

    It also disables MuJoCo's automatic reset of a bad state, which would look like an ordinary step to a learner.
    """

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, fastest: float = math.inf) -> None:
        """Monitor a model and its data.

        fastest: largest norm of all velocities [m/s, rad/s]. MuJoCo itself warns only above 1e10, so that a body at 1e6 m/s
        would not be noticed.
        """
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        # Without a handler MuJoCo appends each warning to MUJOCO_LOG.TXT in the working directory.
        mujoco.set_mju_user_warning(_log_warning)
        self._states = [getattr(data, name) for name in _STATES]
        self._warnings = [data.warning[int(warning)] for warning in _WARNINGS]
        self._counts = [0] * len(_WARNINGS)
        self._fastest = fastest**2
        self.reset()

    def reset(self) -> None:
        """Store the current counters of warnings; call it after mj_resetData, when an episode begins."""
        self._counts = [int(warning.number) for warning in self._warnings]

    def reason(self) -> str | None:
        """Return the reason why the simulation counts as diverged, in words, or None if its state is valid."""
        squares = [state.dot(state) for state in self._states]  # a quarter of the time of np.isfinite
        for name, square in zip(_STATES, squares, strict=True):
            if not math.isfinite(square):
                return f"{name} is not finite"
        if squares[1] > self._fastest:
            return f"qvel is above {math.sqrt(self._fastest):g}"
        for kind, warning, before in zip(_WARNINGS, self._warnings, self._counts, strict=True):
            if warning.number > before:
                return f"MuJoCo warning {kind.name.removeprefix('mjWARN_')}"
        return None


class SimulationEnvironment(gymnasium.Env[Any, Any]):
    """Gymnasium environment of one `Simulation`."""

    def __init__(
        self,
        simulation: Simulation,
        *,
        cameras: Sequence[str] = (),
        image_size: int = 84,
        render_mode: str | None = None,
    ) -> None:
        """Make the environment.

        Args:
            simulation: The task.
            cameras: Cameras of the MuJoCo model whose pictures are added to the observation as `camera_<name>`.
            image_size: Height and width of these pictures [pixel].
            render_mode: None, or "rgb_array" for `render`.

        Raises:
            InvalidSetting: A mode or size is not allowed.
            UnknownName: The model has no such camera.
        """
        if render_mode not in (None, "rgb_array"):
            raise InvalidSetting("Unknown render_mode.", got=repr(render_mode), allowed=(None, "rgb_array"))
        self._simulation = simulation
        self._cameras = None if simulation.mujoco is None else CameraObservations(simulation.mujoco[0], cameras, image_size)
        self.environment_spec = simulation.spec if self._cameras is None else self._cameras.added_to(simulation.spec)
        self.observation_space = self.environment_spec.observation.space
        self.action_space = simulation.spec.action.space
        period = simulation.spec.action.control_period
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": round(1.0 / period) if period else 10}
        self.render_mode = render_mode
        if simulation.measures:
            self.measures = simulation.measures  # absent if there are none
        if simulation.scripted_policy is not None:
            self.scripted_policy = simulation.scripted_policy  # absent if there is no expert
        if simulation.propose is not None:
            self.propose = simulation.propose  # as above
        if simulation.barriers is not None:
            self.barriers = simulation.barriers  # as above
        self._monitor: DivergenceMonitor | None = None
        self._watched: object = None
        self._observation: Arrays | None = None  # of the previous step; None between episodes
        self._steps = 0
        self._is_closed = False

    @property
    def simulation(self) -> Simulation:
        """The simulation, for experiments and tests; a policy must not use it."""
        return self._simulation

    @property
    def metrics(self) -> Metrics:
        """Counters of the simulation for the log of a training, by tag."""
        return self._simulation.metrics

    @property
    def layout(self) -> str | None:
        """Fingerprint of the initial state after a reset, for tasks in which two seeds may draw the same; None for others."""
        return self._simulation.layout

    @property
    def model(self) -> mujoco.MjModel:
        """MuJoCo model; raises AttributeError for other simulators."""
        return self._mujoco[0]

    @property
    def data(self) -> mujoco.MjData:
        """MuJoCo data; raises AttributeError for other simulators."""
        return self._mujoco[1]

    @property
    def _mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        pair = self._simulation.mujoco
        if pair is None:
            raise AttributeError(f"{self.environment_spec.name} is not simulated by MuJoCo")
        return pair

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Begin an episode, which the seed determines if given."""
        super().reset(seed=seed)
        observation = self._simulation.reset(seed)
        self._watch()
        self._observation = observation | self._pictures()
        self._steps = 0
        return self._observation, self._episode_info()

    def step(self, action: npt.NDArray[Any]) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """Apply an action (A,) in [-1, 1], or the number of a choice, for one control period.

        A diverged simulation ends the episode, truncated, with the last observation and `stop_reason` "sim_diverged".
        """
        physical = self.environment_spec.action.to_physical(action)
        if self._observation is None:
            raise gymnasium.error.ResetNeeded("The episode is over or has not begun: call reset() before step().")
        step = self._attempt(physical)
        self._steps += 1
        if step is None:
            last = {name: value.copy() for name, value in self._observation.items()}
            self._observation = None
            free = {"costs": {cost.name: 0.0 for cost in costs}} if (costs := self.environment_spec.costs) else {}
            return last, 0.0, False, True, {**self._episode_info(), **free, "stop_reason": DIVERGED}
        observation = step.observation | self._pictures()
        at_limit = step.truncated or self._steps == self.environment_spec.max_steps
        truncated = at_limit and not step.terminated
        self._observation = None if step.terminated or truncated else observation
        return observation, float(step.reward), step.terminated, truncated, self._info(step, truncated)

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Return a picture (H, W, 3), or None unless the render mode is "rgb_array"."""
        return self._simulation.render() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Free the simulator; may be called again."""
        if not self._is_closed:
            self._is_closed = True
            if self._cameras is not None:
                self._cameras.close()
            self._simulation.close()

    def _pictures(self) -> Arrays:
        if self._cameras is None or not self._cameras.arrays or (pair := self._simulation.mujoco) is None:
            return {}
        return self._cameras.observe(pair[1])

    def _watch(self) -> None:
        """Monitor the current model and data for divergence; some simulators compile new ones for each episode."""
        pair = self._simulation.mujoco
        if pair is None:
            return
        if self._watched is not pair[1]:
            self._watched, self._monitor = pair[1], DivergenceMonitor(*pair)
        assert self._monitor is not None
        self._monitor.reset()

    def _attempt(self, action: npt.NDArray[Any]) -> SimulationStep | None:
        """Return the result of a step, or None if the simulation diverged."""
        with np.errstate(all="ignore"):  # rewards computed from NaN would warn before the divergence check
            try:
                step = self._simulation.step(action)
            except Exception:  # a diverged simulator may raise anything; other errors propagate
                if self._monitor is None or self._monitor.reason() is None:
                    raise
                return None
        sound = self._monitor is None or self._monitor.reason() is None
        return step if sound and np.isfinite(step.reward) and _all_finite(step.observation) else None

    def _episode_info(self) -> dict[str, Any]:
        instruction = self._simulation.instruction
        return {} if instruction is None else {"instruction": instruction}

    def _info(self, step: SimulationStep, truncated: bool) -> dict[str, Any]:
        info = self._episode_info()
        if step.success is not None:
            info["success"] = step.success
        if step.reward_terms:
            info["reward_terms"] = dict(step.reward_terms)
        if step.costs:
            info["costs"] = dict(step.costs)
        if step.measures:
            info[MEASURES] = dict(step.measures)
        if step.terminated:
            info["stop_reason"] = "goal" if step.success else "failure"
        elif truncated:
            info["stop_reason"] = "time_limit"
        return info


def part(name: str, size: int, unit: str, **details: Any) -> ArraySpec:
    """Return the spec of a part with `size` elements of a flat observation vector; details: fields of ArraySpec."""
    return ArraySpec(name, (size,), unit=unit, **details)


class VectorLayout:
    """Layout of a flat observation vector: splits it into named parts, in order."""

    def __init__(self, arrays: Iterable[ArraySpec]) -> None:
        self.observation = ObservationSpec(tuple(arrays))
        ends = np.cumsum([array.size for array in self.observation.arrays])
        self._parts = [(array, slice(end - array.size, end)) for array, end in zip(self.observation.arrays, ends, strict=True)]

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.observation.size

    def split(self, vector: npt.NDArray[Any]) -> Arrays:
        """Return name of a part -> new float32 array of its shape, from one flat observation (N,)."""
        values = vector.astype(np.float32)
        return {array.name: values[part].reshape(array.shape) for array, part in self._parts}


def overview(detail: str) -> Cameras:
    """Return the renderer for `render` of a task; `detail` is a name of robo_sims.cameras.DETAILS."""
    return Cameras(height=PICTURE_SIZE, width=PICTURE_SIZE, detail=detail_of(detail))


def source_camera(environment: Any) -> int | mujoco.MjvCamera:
    """Return the camera with which a Gymnasium environment renders: the number of one of its model, or a free camera."""
    source = environment.mujoco_renderer
    return source.camera_id if source.camera_id >= 0 else free_camera(environment.data, source.default_cam_config or {})


def actuator_names(model: mujoco.MjModel) -> tuple[str, ...]:
    """Return a name for each actuator of a model: its own, that of its joint, or actuator_<number>."""
    kinds = mujoco.mjtObj
    return tuple(
        mujoco.mj_id2name(model, kinds.mjOBJ_ACTUATOR, index)
        or mujoco.mj_id2name(model, kinds.mjOBJ_JOINT, int(model.actuator_trnid[index, 0]))
        or f"actuator_{index}"
        for index in range(model.nu)
    )


def _all_finite(observation: Arrays) -> bool:
    return all([np.isfinite(value).all() for value in observation.values() if value.dtype.kind == "f"])


def _log_warning(message: str) -> None:
    logging.getLogger("mujoco").info(message)
