"""Safety-Gymnasium's navigation tasks among hazards, vases, pillars, buttons and gremlins, on the MuJoCo that is installed.

Ji et al. 2023, "Safety-Gymnasium: A Unified Safe Reinforcement Learning Benchmark", arXiv:2310.12567. Its version 1.0.0 asks
for packages of 2023 and cannot be imported by Python 3.11; `builder` loads its tasks all the same. Rewards, costs, layouts and
observations are those of the source, in named arrays; the physics is that of another MuJoCo than its published figures.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib.util
import inspect
import sys
import types
from collections.abc import Mapping
from typing import Any, Literal

import mujoco
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting, MissingExtra
from robo_rl.evaluation.measures import Measure
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_sims.simulation import Arrays, MujocoSimulation, SimulationStep, actuator_names
from robo_sims.task_family import TaskFamily

PACKAGE = "safety_gymnasium"
INSTALL = "pip install --no-deps safety-gymnasium==1.0.0 xmltodict"
LIMIT = 25.0
"""Limit of the cost that published tables use: steps with a cost per episode."""
_AGENTS = ("Point", "Car", "Racecar")
"""Those that walk, Doggo and Ant, need a NumPy before 2.4."""
_TASKS = {
    **{f"Goal{level}": "go to the goal, again and again" for level in range(3)},
    **{f"Button{level}": "press the highlighted button, again and again" for level in range(3)},
    **{f"Push{level}": "push the box to the goal, again and again" for level in range(3)},
    **{f"Circle{level}": "run around the circle" for level in range(3)},
    "Run0": "run along the track",
    **{f"Fading{ease}{level}": "go to the goal, whose mark fades" for ease in ("Easy", "Hard") for level in range(3)},
}
_NAMES = tuple(f"Safety{agent}{task}-v0" for agent in _AGENTS for task in _TASKS)
_UNITS = {"accelerometer": "m/s^2", "velocimeter": "m/s", "gyro": "rad/s", "ballangvel_rear": "rad/s"}


def _lenient_dataclass(kind: type | None = None, /, **settings: Any) -> Any:
    """Stand in for `dataclasses.dataclass`: arrays as defaults are copied, Python 3.11 refuses them."""

    def decorate(plain: type) -> type:
        for name in inspect.get_annotations(plain):
            value = vars(plain).get(name)
            if value is not None and type(value).__hash__ is None:
                setattr(plain, name, dataclasses.field(default_factory=functools.partial(copy.deepcopy, value)))
        decorated: type = _PLAIN_DATACLASS(plain, **settings)
        return decorated

    return decorate if kind is None else decorate(kind)


_PLAIN_DATACLASS: Any = dataclasses.dataclass


class _SingleJoints:
    """A MuJoCo model whose joints are found by arrays of one number, too, as the source asks for them."""

    def __init__(self, model: mujoco.MjModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def jnt(self, number: npt.NDArray[np.int32]) -> Any:
        """Return the joint of an array (1,)."""
        return self._model.jnt(int(number.item()))


def builder() -> Any:
    """Return Safety-Gymnasium's own class of environments; raises MissingExtra if the package is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or importlib.util.find_spec("xmltodict") is None:
        raise MissingExtra("Safety-Gymnasium", PACKAGE, install=INSTALL)
    return _load()


@functools.cache
def _load() -> Any:
    """Import the class with a bare package of its files: the package's own `__init__` registers with a Gymnasium of 2023."""
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None
    package: Any = types.ModuleType(PACKAGE)
    package.__path__, package.__spec__, package.__file__ = found.submodule_search_locations, found, found.origin
    dataclasses.dataclass = _lenient_dataclass
    sys.modules[PACKAGE] = package
    try:
        from safety_gymnasium.bases.base_agent import BaseAgent
        from safety_gymnasium.builder import Builder
    finally:
        dataclasses.dataclass = _PLAIN_DATACLASS
    read_joints = BaseAgent._init_jnt_sensors

    def read(agent: Any) -> None:
        engine = agent.engine
        agent.engine = types.SimpleNamespace(model=_SingleJoints(engine.model))
        try:
            read_joints(agent)
        finally:
            agent.engine = engine

    BaseAgent._init_jnt_sensors = read
    return Builder


class SafetySimulation(MujocoSimulation):
    """Simulation of one Safety-Gymnasium task; layouts are drawn from the seed of each reset."""

    measures = (Measure("goals", "1", "goals, buttons or pushes that were reached"),)

    def __init__(
        self,
        task: str,
        limit: float | str = LIMIT,
        costs: Literal["sum", "parts"] = "sum",
        camera: str = "fixedfar",
        detail: str = "plain",
    ) -> None:
        """limit: of each cost per episode.

        costs: "sum" for one cost, 1 in each step that costs something, as in published tables; "parts" for one of each kind.
        camera: viewpoint of `render`, of "fixedfar", "fixednear", "track" and "vision".
        """
        if costs not in ("sum", "parts"):
            raise InvalidSetting("Unknown costs of a Safety-Gymnasium task.", got=costs, allowed=("sum", "parts"))
        agent = next(each for each in _AGENTS if task.startswith(f"Safety{each}"))
        with np.errstate(over="ignore"):  # of infinite limits, which Gymnasium casts
            super().__init__(builder()(task, config={"agent_name": agent, "observation_flatten": False}), detail)
        self._environment.reset(seed=0)  # the model exists from the first layout on
        self._camera, self._goals = camera, 0
        self._task = self._environment.task
        names = ["cost_sum"] if costs == "sum" else sorted(set(self._task.calculate_cost()) - {"cost_sum"})
        self._costs = {("cost" if name == "cost_sum" else name.removeprefix("cost_")): name for name in names}
        plain = [CostSpec(name, LIMIT, "1", f"steps with {of} of the source above 0") for name, of in self._costs.items()]
        actions, model = self._environment.action_space, self._task.model
        self.spec = EnvironmentSpec(
            f"safety_gymnasium/{task}",
            ObservationSpec(tuple(_array(name, space) for name, space in self._environment.observation_space.spaces.items())),
            ActionSpec(
                actuator_names(model),
                tuple(map(float, actions.low)),
                tuple(map(float, actions.high)),
                ("1",) * model.nu,
                "unknown",
                float(model.opt.timestep) * self._task.sim_conf.frameskip_binom_n,
            ),
            instruction=_TASKS[task.removeprefix(f"Safety{agent}").removesuffix("-v0")],
            max_steps=self._task.num_steps,
            costs=tuple(dataclasses.replace(cost, limit=cost.limit_of(limit)) for cost in plain),
        )

    @property
    @override
    def mujoco(self) -> tuple[mujoco.MjModel, mujoco.MjData]:
        return self._task.model, self._task.data

    @override
    def reset(self, seed: int | None) -> Arrays:
        self._goals = 0
        observation, _ = self._environment.reset(seed=seed)
        self._show_all()
        return _floats(observation)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        """Move for one control period.

        If a goal is met and no place for the next is found, the episode is cut as at a time limit.
        """
        observation, reward, _, terminated, _, info = self._environment.step(np.asarray(action, np.float64))
        if info.get("goal_met"):
            self._goals += 1
            self._show_all()
        costs = {name: float(info.get(source, 0.0)) for name, source in self._costs.items()}
        is_cut = terminated and self._task.agent.is_alive()
        return SimulationStep(
            _floats(observation),
            float(reward),
            terminated and not is_cut,
            is_cut,
            costs=costs,
            measures={"goals": float(self._goals)},
        )

    def _show_all(self) -> None:
        """Draw hazards and goals, too, which the source keeps in groups that MuJoCo hides."""
        groups = self._task.model.geom_group
        np.minimum(groups, 2, out=groups)

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._overview.picture(self._task.data, self._camera)


def _array(name: str, space: Any) -> ArraySpec:
    """Return the spec of an array of the source; "lidar" is nearness in 16 directions, 1 at contact."""
    is_goal = name.startswith(("goal", "circle", "buttons"))
    array = ArraySpec(name, space.shape, unit=_UNITS.get(name, "1"), role="goal" if is_goal else "proprioception")
    return dataclasses.replace(array, low=0.0, high=1.0) if name.endswith("lidar") else array


def _floats(observation: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    return {name: np.asarray(values, np.float32) for name, values in observation.items()}


def _tasks() -> tuple[str, ...]:
    """Return the names of all tasks; raises MissingExtra."""
    builder()
    return _NAMES


FAMILY = TaskFamily("safety_gymnasium", _tasks, SafetySimulation)
"""Family of the environments "safety_gymnasium/...": navigation tasks of Safety-Gymnasium, with constraint costs."""
