"""Bandit with several arms, one of which pays in all of an episode, and a map that says which: exploration as memory.

After the ablations of Rentschler and Roberts 2025, "Exploitation Is All You Need... for Exploration", arXiv:2508.01287. K arms,
n pulls. The best total of a policy is n / K without a memory, from n = K on n - (K - 1) / 2 if it thinks of the next pull
alone, and n - 1 if it reads the map first, which pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.errors import InvalidSetting
from robo_rl.evaluation.measures import Measure
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, ObservationSpec
from robo_sims.simulation import Arrays, Simulation, SimulationStep
from robo_sims.task_family import TaskFamily

TASKS = ("Map-v0",)


class MapSimulation(Simulation):
    """Simulation of a bandit: K actions pull an arm each, the last action reads the map."""

    measures = (Measure("maps", "1", "readings of the map"),)

    def __init__(self, task: str, *, arms: int = 8, pulls: int = 20, shows: bool = True, redraws: bool = False) -> None:
        """Raise InvalidSetting for a number out of range.

        arms: K. pulls: n, the steps of an episode. shows: False hides the outcome of an action, so that there is nothing to
        remember, a control. redraws: another arm pays at each pull, a control.
        """
        for name, value, least in (("arms", arms, 2), ("pulls", pulls, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidSetting(f"{name} is out of range.", got=value, allowed=f"an integer from {least}")
        self._arms, self._pulls, self._shows, self._redraws = arms, pulls, bool(shows), bool(redraws)
        entries = (
            ArraySpec("last_action", (arms + 1,), low=0.0, high=1.0, meaning="one-hot; zeros at first"),
            ArraySpec("last_reward", (1,), low=0.0, high=1.0, meaning="its reward"),
            ArraySpec("shown", (arms,), low=0.0, high=1.0, meaning="one-hot arm that pays, after a reading of the map"),
            ArraySpec("time", (1,), low=0.0, high=1.0, meaning="share of the pulls that is over"),
        )
        names = (*(f"arm_{arm}" for arm in range(arms)), "map")
        self.spec = EnvironmentSpec(
            f"bandits/{task}", ObservationSpec(entries), ActionSpec(names, mode="discrete"), max_steps=pulls
        )
        self._random = np.random.default_rng()
        self._paying, self._step, self._maps = 0, 0, 0

    @override
    def reset(self, seed: int | None) -> Arrays:
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._paying, self._step, self._maps = int(self._random.integers(self._arms)), 0, 0
        return self._observe(None, 0.0)

    @override
    def step(self, action: npt.NDArray[Any]) -> SimulationStep:
        chosen = int(action)
        paid, self._step, self._maps = float(chosen == self._paying), self._step + 1, self._maps + (chosen == self._arms)
        observation = self._observe(chosen, paid)
        if self._redraws:
            self._paying = int(self._random.integers(self._arms))
        return SimulationStep(observation, paid, False, reward_terms={"pull": paid}, measures={"maps": float(self._maps)})

    @override
    def render(self) -> npt.NDArray[np.uint8]:
        """Return a picture (height, width, 3) of the map: a row of squares, in which the one that pays is green."""
        picture = np.full((64, 64 * self._arms, 3), 230, np.uint8)
        for arm in range(self._arms):
            picture[16:48, 64 * arm + 16 : 64 * arm + 48] = (60, 170, 80) if arm == self._paying else (180, 180, 180)
        return picture

    @override
    def close(self) -> None:
        """Do nothing: the simulation holds nothing that must be closed."""

    def _observe(self, chosen: int | None, paid: float) -> Arrays:
        last, shown = np.zeros(self._arms + 1, np.float32), np.zeros(self._arms, np.float32)
        if self._shows and chosen is not None:
            last[chosen] = 1.0
            if chosen == self._arms:
                shown[self._paying] = 1.0
        reward = np.array([paid if self._shows else 0.0], np.float32)
        return {
            "last_action": last,
            "last_reward": reward,
            "shown": shown,
            "time": np.array([self._step / self._pulls], np.float32),
        }


def best_totals(arms: int, pulls: int) -> tuple[float, float, float]:
    """Return three best expected totals of an episode: with foresight, by the next pull alone, and without a memory.

    They are found by counting.
    """
    greedy = sum(min(pull + 1, arms) / arms for pull in range(pulls))  # by then arms were tried, and the right one stays
    return max(greedy, pulls - 1.0), greedy, pulls / arms


def _tasks() -> Iterable[str]:
    return TASKS


FAMILY = TaskFamily("bandits", _tasks, MapSimulation, drawing=("render_mode",))
"""Family of the environments "bandits/...": arms of which one pays, and a map that says which."""
