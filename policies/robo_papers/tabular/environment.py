"""Tabular MDPs with a known model, for algorithms with guarantees: every policy has an exact value.

S states, A actions, H steps; rewards are 0 or 1, drawn with probability r(s, a); dynamics are the same in all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Stateful
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import StateDict
from robo_sims.policy_iteration import optimal_values
from robo_sims.simulation import Arrays, Simulation, SimulationStep
from robo_sims.task_family import TaskFamily

Array = npt.NDArray[np.float64]
TRAPS, LINKS = 6, 6
"""Number of actions that may end in the trap, and number of states of the chain before it."""
TASKS = ("Trap-v0", "Random-v0", "FourRooms-v0")
ROOMS = 7
"""Number of cells along each side of the four rooms."""


class TabularSimulation(Simulation):
    """Simulation of one tabular MDP; the policy observes state and time, one-hot each."""

    def __init__(self, task: str, *, horizon: int | None = None, mdp_seed: int = 0) -> None:
        """horizon: H, by default 60 of FourRooms-v0 and 6 of the others. mdp_seed: draws the model of Random-v0."""
        horizon = (60 if task == "FourRooms-v0" else 6) if horizon is None else horizon
        if not isinstance(horizon, int) or isinstance(horizon, bool) or horizon < 1:
            raise InvalidSetting("horizon is out of range.", got=horizon, allowed="integer from 1")
        self.moves, self.rewards, self.baseline = MODELS[task](np.random.default_rng(mdp_seed))
        """(S, A, S) and (S, A) probabilities, and the baseline's action (S,)"""
        self.horizon = horizon
        states, actions = self.rewards.shape
        self.spec = EnvironmentSpec(
            f"tabular/{task}",
            ObservationSpec((one_hot("state", states), one_hot("time", horizon))),
            ActionSpec(tuple(f"action_{number}" for number in range(actions)), mode="discrete"),
            max_steps=horizon,
        )
        self.scripted_policy = lambda seed, noise=0.0: BaselinePolicy(self.spec, self.baseline, seed, noise)
        self._random = np.random.default_rng()
        self._state = self._time = 0

    def value(self, policy: Array) -> float:
        """Return the exact value of a policy (H, S, A) from the first state, by backward induction."""
        following = np.zeros(len(self.rewards))
        for step in reversed(range(self.horizon)):
            following = (policy[step] * (self.rewards + self.moves @ following)).sum(1)
        return float(following[0])

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._state = self._time = 0
        return self._observe()

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        reward = float(self._random.random() < self.rewards[self._state, int(action)])
        self._state = int(self._random.choice(len(self.rewards), p=self.moves[self._state, int(action)]))
        self._time += 1
        return SimulationStep(self._observe(), reward)

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        """Return a row of squares, the present state dark."""
        picture = np.full((64, 64 * len(self.rewards), 3), 230, np.uint8)
        picture[8:56, 64 * self._state + 8 : 64 * self._state + 56] = (50, 80, 200)
        return picture

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""

    def _observe(self) -> Arrays:
        time = np.arange(self.horizon) == min(self._time, self.horizon - 1)
        return {"state": np.eye(len(self.rewards), dtype=np.float32)[self._state], "time": time.astype(np.float32)}


class BaselinePolicy(Stateful):
    """Scripted policy, the MDP's known baseline; `noise` is the share of its actions that are random."""

    def __init__(self, spec: EnvironmentSpec, actions: npt.NDArray[np.int64], seed: int, noise: float) -> None:
        self.environment_spec, self._actions, self._noise = spec, actions, noise
        self._random = np.random.default_rng(seed)

    def reset(self) -> None:
        """Do nothing: there is no memory of earlier steps."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> npt.NDArray[np.int64]:
        """Return the baseline's action, or a random one, an int64 scalar."""
        if not deterministic and self._random.random() < self._noise:
            return np.asarray(self._random.integers(self.environment_spec.action.size))
        return np.asarray(self._actions[int(np.argmax(observation["state"]))])

    @override
    def state_dict(self) -> StateDict:
        return {"random": self._random.bit_generator.state}

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._random.bit_generator.state = state["random"]


def one_hot(name: str, size: int) -> ArraySpec:
    """Return the spec of an observation entry that is a one-hot vector of `size` numbers."""
    return ArraySpec(name, (size,), low=0.0, high=1.0, meaning="one-hot")


def trap(_: np.random.Generator) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Return the model of a chain in which one action is a little better than the baseline's, and others are traps.

    The others pay more at once, and with probability 0.6 lead to where nothing is ever paid.
    """
    actions = 2 + TRAPS
    moves, rewards = np.zeros((LINKS + 1, actions, LINKS + 1)), np.zeros((LINKS + 1, actions))
    for link in range(LINKS):
        following = min(link + 1, LINKS - 1)
        moves[link, :, following] = 1.0, 1.0, *(0.4,) * TRAPS
        moves[link, 2:, LINKS] = 0.6
        rewards[link] = 0.6, 0.75, *(0.9,) * TRAPS
    moves[LINKS, :, LINKS] = 1.0
    return moves, rewards, np.zeros(LINKS + 1, np.int64)


def drawn(random: np.random.Generator) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Return a random model of five states and three actions, with a baseline that sees the next reward alone."""
    rewards = random.random((5, 3))
    return random.dirichlet(np.full(5, 0.5), (5, 3)), rewards, rewards.argmax(1)


def four_rooms(_: np.random.Generator | None = None) -> tuple[Array, Array, npt.NDArray[np.int64]]:
    """Return the model of four rooms with doors: from the upper left corner to the upper right one, which pays 1 and ends.

    Actions lead up, right, down or left with probability 0.9, else in one of the other directions. The baseline is optimal for
    a discount of 0.95.
    """
    middle, far = ROOMS // 2, ROOMS - 2
    doors = {(middle, 1), (middle, far), (1, middle), (far, middle)}
    squares = [(row, column) for row in range(ROOMS) for column in range(ROOMS)]
    cells = [square for square in squares if middle not in square or square in doors]
    places, end = {cell: number for number, cell in enumerate(cells)}, len(cells)
    moves, rewards = np.zeros((end + 1, 4, end + 1)), np.zeros((end + 1, 4))
    for (row, column), place in places.items():
        for action in range(4):
            for number, (down, right) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
                there = places.get((row + down, column + right), place)
                moves[place, action, there] += 0.9 if number == action else 0.1 / 3
    goal = places[0, ROOMS - 1]
    moves[goal], rewards[goal] = np.eye(end + 1)[end], 1.0
    moves[end, :, end] = 1.0
    return moves, rewards, optimal_values(moves, rewards, 0.95).argmax(1)


Model = tuple[Array, Array, npt.NDArray[np.int64]]
"""Model of an MDP: probabilities of transitions (S, A, S) and of rewards (S, A), and the baseline's actions (S,)"""

MODELS: dict[str, Callable[[np.random.Generator], Model]] = {"Trap-v0": trap, "Random-v0": drawn, "FourRooms-v0": four_rooms}
"""Name of a task -> function that makes its model, given a random generator."""


def _tasks() -> Iterable[str]:
    return TASKS


FAMILY = TaskFamily("tabular", _tasks, TabularSimulation, drawing=("render_mode",))
"""Family of the environments "tabular/...": MDPs with a known model, for algorithms with guarantees."""
