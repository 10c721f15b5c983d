"""Rewards of episodes that recipes name: their return at the end, return decomposition from states, RRD, and LaRe.

LaRe: the decoder sees factors that a language model has written as a program, instead of raw states. Qu et al. 2025, "Latent
reward: LLM-empowered credit assignment in episodic reinforcement learning" (AAAI, arXiv:2412.11120). The program runs in the
sandbox of reward programs; its terms are the factors, its total is not used.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from robo_papers.lare.decoder import DecoderConfig
from robo_papers.lare.draws import Drawing, EveryStep, RepeatedSteps, SomeSteps
from robo_papers.lare.learned import Decomposition, Floats, StatesAndActions, StepInputs
from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.runner import ProgramRunner, UsedProgram, UsesPrograms
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.reward import StepReward
from robo_rl.rewards.step_rewards.steps import StepQueue, Steps, StepScores
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Episode, Labels, Metrics, RewardLabels


@dataclass(frozen=True)
class EpisodicReward(StepReward):
    """Reward that withholds the environment's reward until the episode ends, and then pays its sum."""

    name: ClassVar[str] = "episodic"

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the sum of rewards at the last step of an episode and 0 before; a sum that is not finite is missing."""
        totals, values, ended = place.memory.setdefault("totals", {}), np.zeros(len(steps)), steps.ended
        for row, index in enumerate(map(str, steps.index.tolist())):
            before = 0.0 if steps.begins[row] else totals[index]
            totals[index] = before + float(steps.rewards[row])
            values[row] = totals[index] if ended[row] else 0.0
        return StepScores(Labels.finite(values, dtype=np.float64), {})

    def is_due(self, waiting: StepQueue) -> bool:
        """Return True at once: the reward of a step is known when it is taken."""
        return len(waiting) > 0

    def entries(self, place: Place) -> tuple[str, ...]:
        """Return no names: observations are not read."""
        return ()


Sampling = Literal["without replacement", "with replacement"]
DRAWINGS: dict[Sampling, type[SomeSteps] | type[RepeatedSteps]] = {
    "without replacement": SomeSteps,
    "with replacement": RepeatedSteps,
}
"""Name in a recipe -> way to draw the steps."""


@dataclass(frozen=True, kw_only=True)
class DecomposedReward(StepReward):
    """Base class of step rewards that are learned from the returns of a training's episodes."""

    learns_in_a_run: ClassVar[bool] = True
    is_weighted: ClassVar[bool] = True
    remedy: ClassVar[str] = (
        "look at the returns of the environment, and at the program's factors of its states, then resume the run"
    )
    decoder: DecoderConfig = field(default_factory=DecoderConfig)
    """Settings of the network that gives the rewards."""
    seed: int = 0
    """Seed of its initial weights and of draws."""
    permuted: bool = False
    """Give each episode the return of a random one of the newest: a control condition."""

    def __post_init__(self) -> None:
        require_allowed(self, {"seed": (self.seed >= 0, "0 or more")})
        _ = self.drawing

    @property
    @abstractmethod
    def drawing(self) -> Drawing:
        """Way to draw the steps of an update; raises InvalidSetting for a number of steps that cannot be drawn."""

    def inputs(self, place: Place) -> StepInputs:
        """Return the function that maps steps to the network's inputs; raises InvalidSetting without float observations."""
        return StatesAndActions(place.spec)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for an environment from which no inputs can be computed."""
        self.inputs(place)

    def require_demonstrations(self) -> None:
        """Raise InvalidSetting: rewards that change cannot be written into recorded episodes."""
        raise InvalidSetting(
            f"The reward {self.name} is learned from the returns of a run, and has none for recorded episodes.",
            got="demonstrations",
            fix="set demonstrations.episodes to 0, or use another reward",
        )

    @override
    def entries(self, place: Place) -> Sequence[str]:
        return self.inputs(place).entries

    def is_due(self, waiting: StepQueue) -> bool:
        """Return False until the episode ends: before that its return is unknown."""
        return False

    @override
    def facts(self, place: Place) -> Mapping[str, str | float]:
        return self.inputs(place).identity

    def label(self, episode: Episode) -> RewardLabels:
        """Return only missing labels, because nothing is learned before a training."""
        return Labels.missing(len(episode)).by(self.identity)

    @override
    def relabelling(self, place: Place) -> Decomposition:

        def make() -> Decomposition:
            inputs, weight = self.inputs(place), place.weight
            return Decomposition(inputs, self.drawing, self.decoder, seed=self.seed, weight=weight, permuted=self.permuted)

        return place.memory.part("decomposition", make)

    def score_steps(self, steps: Steps, place: Place) -> StepScores:
        """Return the places of the steps in place of rewards; steps of an incomplete episode have none."""
        return StepScores(Labels.finite(self.relabelling(place).places(steps)), {})

    def metrics(self, place: Place) -> Metrics:
        """Return the decoder's mean return of recent episodes."""
        return self.relabelling(place).metrics


@dataclass(frozen=True)
class ReturnDecomposition(DecomposedReward):
    """Reward RD (return decomposition): learned from states and actions, adds up to the returns of whole episodes.

    All steps of an episode are used in each update.
    """

    name: ClassVar[str] = "return-decomposition"

    @property
    def drawing(self) -> Drawing:
        """Way to draw the steps of an update: all of them."""
        return EveryStep()


@dataclass(frozen=True, kw_only=True)
class DrawnSteps:
    """Settings of rewards that are learned from some steps of each episode, drawn anew in every update (Ren et al. 2022)."""

    steps: int = 64
    """K, number of steps drawn from each episode."""
    sampling: Sampling = "without replacement"
    """How the steps are drawn. "without replacement": an episode of K steps or fewer is used whole; "with replacement": K
    steps, however short the episode is."""
    unbiased: bool = True
    """Subtract the variance of the mean of K steps from the loss; without it rewards are pulled together."""

    @property
    def drawing(self) -> Drawing:
        """Way to draw the steps of an update."""
        return DRAWINGS[self.sampling](self.steps, self.unbiased)


@dataclass(frozen=True)
class RandomizedReturnDecomposition(DrawnSteps, DecomposedReward):
    """Reward RRD (randomised return decomposition, Ren et al. 2022): as RD, but learned from K drawn steps of each episode."""

    name: ClassVar[str] = "rrd"


class ProgramFactors:
    """Inputs of the decoder that are the terms of a program, by name; their order in the program does not matter."""

    def __init__(self, runner: ProgramRunner, view: EnvAbstraction) -> None:
        self._runner, self._view = runner, view
        self._names = sorted(runner.program.terms)
        self.size = len(self._names)

    @property
    def entries(self) -> Sequence[str]:
        """Names of the observation entries that the program reads."""
        return self._view.entries

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Names of the factors, and a hash of the program."""
        return {"inputs": ", ".join(self._names), "program": self._runner.program.hash}

    def of(self, observations: Mapping[str, Array], actions: Array) -> Floats:
        """Return the factors (T, D) of the steps of an episode; a row without finite factors is NaN. Raises ProgramFailed.

        They are computed once for each step, when its episode has ended.
        """
        sides = (slice(None, -1), slice(1, None))
        before, after = ({name: values[side] for name, values in observations.items()} for side in sides)
        found = timed("score", lambda: self._runner.run(self._view.batch_of(before, actions, after)))
        factors = np.stack([found.terms[name] for name in self._names], axis=1)
        with np.errstate(over="ignore"):
            return np.where(found.valid[:, None], factors, np.nan).astype(np.float32)


@dataclass(frozen=True)
class LatentReward(DrawnSteps, DecomposedReward, UsesPrograms):
    """Reward LaRe (Qu et al. 2025): learned from returns, with factors as inputs that a language model wrote as a program.

    The command `robo-rl reward latent` has the program written.
    """

    name: ClassVar[str] = "lare"
    path: str
    """Path of the .py file of the program whose terms are the factors."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the program's process and of its values."""

    @cached_property
    def runner(self) -> ProgramRunner:
        """The program with its worker process."""
        return ProgramRunner(self.path, self.limits)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of program and settings: comments and the place of the file do not count."""
        settings = {name: value for name, value in asdict(self).items() if name != "path"}
        return self.name, hash_of(self.runner.program.hash.encode(), json.dumps(settings, sort_keys=True).encode())

    def inputs(self, place: Place) -> ProgramFactors:
        """Return the factors as inputs; raises InvalidProgram if the environment lacks a column that the program reads."""
        return ProgramFactors(self.runner, self._view(place))

    @override
    def require_recorded(self, spec: EnvironmentSpec) -> None:
        self.programs(Place(spec))  # raises for missing columns and other frames, which an episode does not state

    @override
    def programs(self, place: Place) -> Sequence[UsedProgram]:
        return (UsedProgram(self.runner, self._view(place), is_reward=False),)

    def _view(self, place: Place) -> EnvAbstraction:
        return self.runner.view(place.view, place.name)
