"""Simulated person: a scripted expert takes over when the policy deviates from it, and hands back.

A step deviates ("is astray") if the cosine between the policy's action and the expert's is below 0.3. On the arm's pick and peg
tasks a random policy is astray in seven steps of ten, another expert in none or one of five.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.protocols.components import Policy, Stateful
from robo_rl.spec.environment import Observation
from robo_rl.types import ActionSource, Array, StateDict

AGREEMENT = 0.3  # cosine between two actions from which they count as the same intention


@dataclass(frozen=True)
class Habits:
    """Settings of a simulated person: when it takes over and hands back, its noise, delay, attention and mistakes."""

    patience: int = 8
    """Number of deviating steps, counted since the policy began to act, after which the person takes over; 1 or more."""
    trust: int = 3
    """Consecutive proposals of the policy with which the person must agree before handing back; 1 or more."""
    noise: float = 0.0
    """Standard deviation of the noise on each element of a command, in units of the action range [-1, 1]."""
    delay: int = 0
    """[steps] Reaction time: the person acts on the observation from this many steps ago."""
    attention: float = 1.0
    """Share of episodes that the person watches, 0 to 1; in the others the person never takes over."""
    mistakes: float = 0.0
    """Share of interventions in which the person commands the opposite of the expert's action, 0 to 1."""

    def __post_init__(self) -> None:
        allowed = {name: (getattr(self, name) >= 1, "1 or more") for name in ("patience", "trust")}
        allowed |= {name: (getattr(self, name) >= 0, "0 or more") for name in ("noise", "delay")}
        shares = ("attention", "mistakes")
        require_allowed(self, allowed | {name: (0 <= getattr(self, name) <= 1, "0 to 1") for name in shares})


KINDS: Mapping[str, Habits] = {
    "perfect": Habits(),
    "noisy": Habits(noise=0.3),
    "delayed": Habits(delay=2),
    "lazy": Habits(patience=12, trust=2, attention=0.3),
    "wrong": Habits(mistakes=1.0),
}
"""Name of a kind of simulated person, as in a recipe -> settings."""


def habits_of(kind: str) -> Habits:
    """Return the settings of a kind of person; raises UnknownName."""
    if kind not in KINDS:
        raise UnknownName("kind of simulated human", kind, KINDS)
    return KINDS[kind]


class SimulatedHuman(Stateful):
    """Person simulated by a scripted expert, who takes over when the policy deviates from it.

    A seed determines the whole behaviour, and a saved state continues exactly.
    """

    source = ActionSource.HUMAN

    def __init__(self, expert_for: Callable[[int], Policy], habits: Habits, seed: int) -> None:
        """Make the expert; raises InvalidSetting if the state of the expert cannot be saved.

        Args:
            expert_for: Makes an expert from a seed.
            habits: Settings of the person.
            seed: Seed of the expert, and of everything random in the person.
        """
        expert = expert_for(seed)
        if not isinstance(expert, Stateful):
            raise InvalidSetting(
                "This environment's expert cannot be saved within an episode, so that a run could not go on exactly.",
                got=type(expert).__name__,
                allowed="an expert with state_dict and load_state_dict, such as those of robo/",
            )
        self.habits = habits
        self._expert = expert
        self._random = np.random.default_rng([seed, 0])
        self._begin()

    def reset(self) -> None:
        """Draw whether the person watches this episode, and reset the expert."""
        self._expert.reset()
        self._begin()
        self._watches = bool(self._random.random() < self.habits.attention)

    def _begin(self) -> None:
        self._watches, self._acts, self._errs = True, False, False
        self._count = 0  # while the policy acts: steps astray; while the person acts: agreements in a row
        self._seen: list[
            tuple[Array, bool]
        ] = []  # the newest, without a reaction yet: (helpful action, whether an intervention is due)

    def command(self, observation: Observation, proposed: Array) -> Array | None:
        """Return the person's action (A,) float32 during an intervention, else None."""
        if not self._watches:
            return None
        helpful = np.asarray(self._expert.act(observation, deterministic=True), np.float32)
        self._seen.append((helpful, _agree(helpful, proposed)))
        if len(self._seen) <= self.habits.delay:
            return None
        helpful, agrees = self._seen.pop(0)
        self._decide(agrees)
        return self._carried_out(helpful) if self._acts else None

    def _decide(self, agrees: bool) -> None:
        if self._acts:
            self._count = self._count + 1 if agrees else 0
            enough = self.habits.trust
        else:
            self._count += not agrees
            enough = self.habits.patience
        if self._count >= enough:
            self._acts, self._count = not self._acts, 0
            self._errs = bool(self._random.random() < self.habits.mistakes) if self._acts else False

    def _carried_out(self, helpful: Array) -> Array:
        noise = self._random.normal(0.0, self.habits.noise, helpful.shape) if self.habits.noise else 0.0
        carried: Array = np.clip((-helpful if self._errs else helpful) + noise, -1.0, 1.0).astype(np.float32)
        return carried

    @override
    def state_dict(self) -> StateDict:
        return {
            "expert": self._expert.state_dict(),
            "random": self._random.bit_generator.state,
            "flags": [self._watches, self._acts, self._errs],
            "count": self._count,
            "seen": [[helpful.copy(), agrees] for helpful, agrees in self._seen],
        }

    @override
    def load_state_dict(self, state: StateDict) -> None:
        self._expert.load_state_dict(state["expert"])
        self._random.bit_generator.state = state["random"]
        self._watches, self._acts, self._errs = (bool(flag) for flag in state["flags"])
        self._count = int(state["count"])
        self._seen = [(np.array(helpful, np.float32), bool(agrees)) for helpful, agrees in state["seen"]]


def _agree(helpful: Array, proposed: Array) -> bool:
    sizes = float(np.linalg.norm(helpful)) * float(np.linalg.norm(proposed))
    return sizes == 0.0 or float(helpful @ proposed) >= AGREEMENT * sizes
