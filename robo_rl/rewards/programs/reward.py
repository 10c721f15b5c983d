"""A reward program as a reward model: labels datasets, and pays a policy while it acts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from robo_rl.errors import RewardUnavailable, require_allowed
from robo_rl.reward_protocols import DelayedRewards
from robo_rl.rewards.episode_sums import EpisodeSums
from robo_rl.rewards.identity import hash_of
from robo_rl.rewards.online import lived
from robo_rl.rewards.programs.abstraction import EnvAbstraction
from robo_rl.rewards.programs.gates import Limits
from robo_rl.rewards.programs.judging import Judged, ProgramJudge, UsedProgram
from robo_rl.rewards.running import MOST_MISSING
from robo_rl.rewards.steps import StepQueue, Steps
from robo_rl.spec import EnvironmentSpec, Observation
from robo_rl.stopwatch import timed
from robo_rl.types import Array, Episode, Labels, Metrics, RewardLabels, StateDict, StepRewards


@dataclass(frozen=True)
class ProgramReward:
    """What a reward program says of each step; the program runs in a confined process."""

    path: str
    """Of the .py file of the program."""
    every: int = 256
    """Steps that are judged in one call while a policy acts; without influence on the rewards."""
    limits: Limits = field(default_factory=Limits)
    """Of its process, and of what counts as a reward."""

    def __post_init__(self) -> None:
        require_allowed(self, {"every": (self.every >= 1, "1 or more")})

    @cached_property
    def judge(self) -> ProgramJudge:
        """The program and its worker."""
        return ProgramJudge(self.path, self.limits)

    @property
    def identity(self) -> tuple[str, str]:
        """Name, and hash of program and limits: comments and the place of the file do not count."""
        limits = json.dumps(asdict(self.limits), sort_keys=True)
        return "program", hash_of(self.judge.program.hash.encode(), limits.encode())

    def judged(self, episode: Episode) -> Judged:
        """Returns total and terms of every step of a recorded episode; raises ProgramFailed.

        Raises InvalidProgram where the episode lacks a column.
        """
        view = self.judge.view(EnvAbstraction.of_recording(episode), "the recorded episode")
        return self.judge.judge(view.batch(episode))

    def label(self, episode: Episode) -> RewardLabels:
        """Returns the totals; a step for which the program has no finite number has no label."""
        found = self.judged(episode)
        values = np.where(found.valid, found.total, 0.0).astype(np.float32)
        return RewardLabels(values, found.valid & np.isfinite(values), *self.identity, prompt_hash="none")

    def online(self, spec: EnvironmentSpec, *, weight: float, discount: float | None) -> OnlineProgram:
        """Returns what gives the program's rewards in an environment; raises InvalidProgram where that lacks a column."""
        del discount
        return OnlineProgram(self, self.judge.view(EnvAbstraction.of(spec, images=True), spec.name), weight)


@dataclass(frozen=True)
class OnlineProgram:
    """A program that pays a policy while it acts; implements `robo_rl.reward_protocols.OnlineRewards`."""

    model: ProgramReward
    view: EnvAbstraction
    """The columns that the program reads."""
    weight: float = 1.0
    """Factor of its rewards."""

    def __post_init__(self) -> None:
        require_allowed(self, {"weight": (bool(np.isfinite(self.weight)), "a finite number")})

    @property
    def identity(self) -> Mapping[str, str | float]:
        """Name, hash of the program, factor."""
        name, program = self.model.identity
        return {"model": name, "weights": program, "weight": self.weight}

    @property
    def programs(self) -> tuple[UsedProgram, ...]:
        """The one program."""
        return (UsedProgram(self.model.judge, self.view, is_reward=True),)

    def visible(self, spec: EnvironmentSpec) -> EnvironmentSpec:
        """Returns the spec as it is: nothing is drawn for a program."""
        return spec

    def running(self, environments: int) -> DelayedRewards:
        """Returns what judges the steps of so many environments under way."""
        del environments
        return RunningProgram(self.model.judge, self.view, weight=self.weight, every=self.model.every)

    def labelled(self, episode: Episode, spec: EnvironmentSpec) -> Iterator[Episode]:
        """Yields a recorded episode with the program's rewards, cut where one is missing."""
        return lived(episode, self.running(1), spec)


class RunningProgram:
    """Judges the steps of environments under way, many in one call; implements `robo_rl.reward_protocols.DelayedRewards`.

    The environment's own reward is never read.
    """

    def __init__(self, judge: ProgramJudge, view: EnvAbstraction, *, weight: float, every: int) -> None:
        self._judge, self._view, self._weight, self._every = judge, view, weight, every
        self._queue = StepQueue(view.entries)
        self._sums = EpisodeSums()
        self._steps = self._missing = self._missing_in_a_row = 0

    @property
    def is_due(self) -> bool:
        """True once `every` steps wait."""
        return len(self._queue) >= self._every

    @property
    def metrics(self) -> Metrics:
        """Means over recent episodes of what program and terms added up to, and the share of missing rewards."""
        sums = {f"reward/{name}": mean for name, mean in self._sums.means.items()}
        return {**sums, "reward/missing": self._missing / max(self._steps, 1)}

    def restart(self) -> None:
        """Forgets what waits."""
        self._queue.clear()
        self._sums.restart()

    def begin(self, index: int, observation: Observation, instruction: str | None) -> None:
        """Environment `index` begins an episode."""
        del instruction
        self._queue.begin(index, observation)

    def add(
        self, index: int, observation: Observation, *, action: Array, reward: float, terminated: bool, truncated: bool
    ) -> None:
        """Environment `index` took a step."""
        del reward
        self._queue.add(index, observation, action=action, reward=0.0, terminated=terminated, truncated=truncated)

    def score(self) -> StepRewards:
        """Return the rewards of the steps since the last call; a program ends no task."""
        steps = self._queue.take()
        if not len(steps):
            return StepRewards(Labels.missing(0), np.zeros(0, np.bool_))
        found = timed("score", lambda: self._judge.judge(self._view.batch_of(steps.before, steps.actions, steps.after)))
        labels = Labels.finite(self._weight * found.total, found.valid)
        self._count(steps, found, labels.valid)
        return StepRewards(labels, np.zeros(len(steps), np.bool_))

    def _count(self, steps: Steps, found: Judged, known: npt.NDArray[np.bool_]) -> None:
        named = {**found.terms, "model_return": self._weight * found.total}
        self._sums.add(steps, {name: np.where(known, values, np.nan) for name, values in named.items()})
        self._steps += len(steps)
        self._missing += int((~known).sum())
        last = np.flatnonzero(known)
        self._missing_in_a_row = len(steps) - 1 - int(last[-1]) if len(last) else self._missing_in_a_row + len(steps)
        if self._missing_in_a_row >= MOST_MISSING:
            raise RewardUnavailable(
                f"The program {self._judge.path} has given no usable number for {self._missing_in_a_row} steps.",
                got=f"{self._missing} of {self._steps} steps without a reward",
                allowed=f"less than {MOST_MISSING} in a row",
                fix="robo-rl reward check PROGRAM says where it divides by zero or the like",
            )

    def state_dict(self) -> StateDict:
        """Returns what waits, the sums for the log and the counts."""
        counts = [self._steps, self._missing, self._missing_in_a_row]
        return {"queue": self._queue.state_dict(), "sums": self._sums.state_dict(), "counts": counts}

    def load_state_dict(self, state: StateDict) -> None:
        """Restores what `state_dict` returned."""
        self._queue.load_state_dict(state["queue"])
        self._sums.load_state_dict(state["sums"])
        self._steps, self._missing, self._missing_in_a_row = state["counts"]
