"""Grid worlds with subgoals: observation `subgoal`, and in training `subgoal_bonus`, the bonus of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_papers.words_as_beacons.forms import FORMS, SubgoalForm
from robo_papers.words_as_beacons.level import Level, Subgoal, level_of
from robo_papers.words_as_beacons.reward import BONUS
from robo_papers.words_as_beacons.teachers import LanguageTeacher, Teacher, read_teacher
from robo_papers.words_as_beacons.tracker import SubgoalTracker
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.protocols.components import Stateful
from robo_rl.settings import settings_as
from robo_rl.spec.environment import ArraySpec, EnvironmentSpec, ObservationSpec
from robo_rl.types import Metrics, StateDict
from robo_sims.batched.environment import BatchStep, SimulationBatch
from robo_sims.batched.generators import Generators
from robo_sims.grids.batch import MiniGridBatch
from robo_sims.grids.cells import EMPTY, LOOKS, Array, cell_of, cells_of
from robo_sims.grids.simulation import MiniGridSimulation
from robo_sims.simulation import Arrays, Simulation, SimulationStep

SUBGOAL = "subgoal"
NOWHERE = -1, -1


@dataclass(frozen=True)
class Teaching:
    """Settings of a teacher of subgoals, for training environments only."""

    teacher: str
    """Kind of teacher: perfect, noisy or llm."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the teacher, by name."""
    unguided: float = 0.5
    """Share of levels without observed subgoals, though with their bonus, so that students learn to act alone."""
    levels: int = 0
    """Number of levels (seeds from 0), which limits the calls of the teacher; 0 for unlimited."""

    def __post_init__(self) -> None:
        require_allowed(self, {"unguided": (0.0 <= self.unguided <= 1.0, "0 to 1"), "levels": (self.levels >= 0, "0 or more")})
        read_teacher(self.teacher, self.settings).close()  # report invalid settings early


@dataclass(frozen=True)
class Guidance:
    """What a student observes of subgoals; all zero without a teacher, as in evaluation."""

    subgoals: str
    """Encoding of subgoals, one of FORMS."""
    teaching: Teaching | None = None

    def __post_init__(self) -> None:
        if self.subgoals not in FORMS:
            raise UnknownName("form of subgoals", self.subgoals, FORMS)

    def added_to(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Return the spec with the subgoal, and with the bonus if there is a teacher."""
        if spec.max_steps is None:
            raise InvalidSetting("Subgoals need a time limit that is known.", got=spec.name, allowed="MiniGrid's own tasks")
        arrays = [*spec.observation.arrays, ArraySpec(SUBGOAL, (self._form().size,), frame="ego", role="goal")]
        if self.teaching is not None:
            arrays.append(ArraySpec(BONUS, (1,), low=0.0, high=1.0, role="privileged"))
        return replace(spec, observation=ObservationSpec(tuple(arrays)))

    def tracker(self, num_envs: int, spec: EnvironmentSpec) -> SubgoalTracker:
        """Make the tracker of subgoals for `num_envs` environments."""
        given = self.teaching
        teacher = _NoTeacher() if given is None else read_teacher(given.teacher, given.settings)
        if isinstance(teacher, LanguageTeacher):
            teacher.require(spec.name)
        unguided = 0.0 if given is None else given.unguided
        return SubgoalTracker(self._form(), teacher, num_envs, unguided=unguided, max_steps=spec.max_steps or 1)

    def draw(self, num_envs: int) -> LevelDraw:
        """Make the object that draws the levels of `num_envs` environments."""
        return LevelDraw(0 if self.teaching is None else self.teaching.levels, num_envs)

    def _form(self) -> SubgoalForm:
        return FORMS[self.subgoals]()


def guidance(subgoals: str, teaching: Mapping[str, Any] | None) -> Guidance:
    """Make the guidance from an environment's arguments; raises UnknownName or InvalidSetting."""
    if not subgoals:
        raise InvalidSetting("Teaching needs a form of subgoals.", got=teaching, allowed=f"subgoals: one of {sorted(FORMS)}")
    return Guidance(subgoals, None if teaching is None else settings_as(Teaching, teaching, source="teaching"))


class GuidedBatch(SimulationBatch):
    """Batched simulation that adds the observation of subgoals to those of the task."""

    def __init__(self, batch: MiniGridBatch, guidance: Guidance) -> None:
        self._batch, self.num_envs, self._has_bonus = batch, batch.num_envs, guidance.teaching is not None
        self.spec = guidance.added_to(batch.spec)
        self.tracker = guidance.tracker(batch.num_envs, batch.spec)
        self.instructions = batch.instructions
        self._draw = guidance.draw(batch.num_envs)

    @override
    def begin(self, seeds: Mapping[int, int | None]) -> Array:
        vectors = self._batch.begin(self._draw(seeds))
        self._start_levels(seeds)
        subgoals = self._subgoals(np.zeros(self.num_envs, np.float32))
        return np.concatenate((vectors, subgoals[list(seeds)]), axis=1)

    @override
    def step(self, control: Array, seeds: Mapping[int, int | None]) -> BatchStep:
        step = self._batch.step(control, self._draw(seeds))
        batch = self._batch
        earned = self.tracker.step(self._agents, batch.changed_places, batch.before, batch.after)
        if seeds:
            self._start_levels(seeds)
            earned[list(seeds)] = 0.0
        return step._replace(vectors=np.concatenate((step.vectors, self._subgoals(earned)), axis=1))

    @override
    def render(self) -> Sequence[Array]:
        return self._batch.render()

    @override
    def state_dict(self) -> StateDict:
        return {"batch": self._batch.state_dict(), "guide": self.tracker.state_dict(), "draw": self._draw.state_dict()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._batch.load_state_dict(state["batch"])
        self.tracker.load_state_dict(state["guide"])
        self._draw.load_state_dict(state["draw"])

    @override
    def close(self) -> None:
        self.tracker.close()
        self._batch.close()

    @property
    @override
    def metrics(self) -> Metrics:
        return self.tracker.metrics

    @property
    def _agents(self) -> Array:
        return np.stack(self._batch.views.place(self._batch.places), axis=1)

    def _start_levels(self, seeds: Mapping[int, int | None]) -> None:
        batch, agents = self._batch, self._agents
        for index in seeds:
            grid = batch.views.inner(batch.cells[index][None])[0]
            x, y = agents[index].tolist()
            self.tracker.begin(index, level_of(grid, (x, y), int(batch.directions[index]), batch.instructions[index]))

    def _subgoals(self, earned: Array) -> Array:
        subgoals = self.tracker.observe(self._agents, self._batch.directions)
        return np.concatenate((subgoals, earned[:, None]), axis=1) if self._has_bonus else subgoals


class GuidedSimulation(Simulation):
    """Simulation that adds the observation of subgoals to those of the task."""

    def __init__(self, simulation: MiniGridSimulation, guidance: Guidance) -> None:
        self._simulation, self._has_bonus = simulation, guidance.teaching is not None
        self.spec = guidance.added_to(simulation.spec)
        self.tracker = guidance.tracker(1, simulation.spec)
        self._draw = guidance.draw(1)

    @override
    def reset(self, seed: int | None) -> Arrays:
        observation, source = self._simulation.reset(self._draw({0: seed})[0]), self._simulation.source
        self.instruction = self._simulation.instruction
        self.tracker.begin(0, self._level())
        return observation | self._subgoal(source, 0.0)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        source = self._simulation.source
        front = tuple(int(part) for part in source.front_pos)
        before = cell_of(source.grid.get(*front)) or EMPTY
        step = self._simulation.step(action)
        after = cell_of(source.grid.get(*front)) or EMPTY
        changed, looks = front if after != before else NOWHERE, np.array([[before], [after]]) & LOOKS - 1
        earned = self.tracker.step(np.array([source.agent_pos]), np.array([changed]), *looks)
        return replace(step, observation=step.observation | self._subgoal(source, float(earned[0])))

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        return self._simulation.render()

    @override
    def close(self) -> None:
        self.tracker.close()
        self._simulation.close()

    @property
    @override
    def metrics(self) -> Metrics:
        return self.tracker.metrics

    def _level(self) -> Level:
        source = self._simulation.source
        x, y = (int(part) for part in source.agent_pos)
        return level_of(cells_of(source), (x, y), int(source.agent_dir), source.mission)

    def _subgoal(self, source: Any, earned: float) -> Arrays:
        subgoal = self.tracker.observe(np.array([source.agent_pos], np.int64), np.array([source.agent_dir]))[0]
        bonus = {BONUS: np.array([earned], np.float32)} if self._has_bonus else {}
        return {SUBGOAL: subgoal.astype(np.float32), **bonus}


class LevelDraw(Stateful):
    """Draws the levels of N environments from a limited number."""

    def __init__(self, levels: int, num_envs: int) -> None:
        self._levels, self._generators = levels, Generators(num_envs)

    def __call__(self, seeds: Mapping[int, int | None]) -> Mapping[int, int | None]:
        """Return the level seed of each environment; the seed of an episode also determines those after it."""
        if not self._levels:
            return seeds
        return {index: int(self._generators.seeded(index, seed).integers(self._levels)) for index, seed in seeds.items()}

    @override
    def state_dict(self) -> StateDict:
        return {"generators": self._generators.states()}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._generators.restore(state["generators"])


class _NoTeacher(Teacher):
    """Teacher without subgoals."""

    @override
    def subgoals(self, level: Level) -> Sequence[Subgoal]:
        del level
        return ()


class SubgoalGuide:
    """Adds a teacher's subgoals to MiniGrid's environments; the entry point of `robo_rl.guides`."""

    def simulation(self, simulation: MiniGridSimulation, subgoals: str, teaching: Mapping[str, Any] | None) -> GuidedSimulation:
        """Wrap a MiniGrid simulation so that it has subgoals.

        Args:
            simulation: The simulation.
            subgoals: Encoding of subgoals, one of FORMS.
            teaching: Settings of the teacher (`Teaching`); None for no teacher.
        """
        return GuidedSimulation(simulation, guidance(subgoals, teaching))

    def batch(self, batch: MiniGridBatch, subgoals: str, teaching: Mapping[str, Any] | None) -> GuidedBatch:
        """Wrap a batch of MiniGrid simulations so that it has subgoals; arguments as for `simulation`."""
        return GuidedBatch(batch, guidance(subgoals, teaching))


GUIDE = SubgoalGuide()
"""The guide that adds a teacher's subgoals to MiniGrid's environments."""
