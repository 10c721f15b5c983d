"""Stages that transform a reward before a policy learns from it: potentials, bounds, differences, sigmoids, scales."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import override

from robo_rl.errors import InvalidSetting, require_allowed
from robo_rl.rewards.programs.output_checks import Limits
from robo_rl.rewards.programs.runner import ProgramRunner
from robo_rl.rewards.step_rewards.abstraction import EnvAbstraction
from robo_rl.rewards.step_rewards.place import Place
from robo_rl.rewards.step_rewards.steps import Steps
from robo_rl.types import Array, Labels


@dataclass(frozen=True)
class Stage(ABC):
    """Base class of stages, which transform the rewards of steps; a subclass is a frozen dataclass of settings.

    A stage keeps its state in the memory of the place (`Place.memory`), which is saved with the run.
    """

    @property
    def identity(self) -> dict[str, Any]:
        """Name -> value of all settings of the stage; a part of the hash that identifies the rewards."""
        return asdict(self)

    @abstractmethod
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the rewards of K steps after this stage, float64; the value of a missing reward is 0 before and after it.

        Args:
            steps: The K steps.
            labels: Their rewards before the stage.
            place: Context of the reward, with the stage's memory of earlier steps.
        """

    def require(self, place: Place) -> None:  # noqa: B027 - most stages work everywhere
        """Raise InvalidSetting if the stage cannot be used in this place."""

    def entries(self, place: Place) -> Sequence[str]:
        """Return the names of the observation entries that the stage reads."""
        return ()


@dataclass(frozen=True)
class Clip(Stage):
    """Stage that pays min(r - at, 0): a good step costs nothing, and no number of good steps adds up to a profit.

    This is the mechanism Clip of Gao et al. 2024, "On Designing Effective RL Reward at Training Time for LLM Reasoning"
    (arXiv:2410.15115), with their eta as `at`. Rewards are never above 0: if a policy can end an episode early, that may pay
    for it.
    """

    at: float
    """Reward r from which on a step costs nothing."""

    def __post_init__(self) -> None:
        require_allowed(self, {"at": (bool(np.isfinite(self.at)), "a finite number")})

    @override
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        return Labels(np.minimum(labels.values - self.at, 0.0), labels.valid)


@dataclass(frozen=True)
class Bound(Stage):
    """Stage that clips rewards to the range from `low` to `high`."""

    low: float = -np.inf
    """Lowest reward of a step."""
    high: float = np.inf
    """Highest reward of a step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"low": (self.low < self.high, f"below high, which is {self.high}")})

    @property
    def identity(self) -> dict[str, Any]:
        """Values of `low` and `high` as text; a part of the hash that identifies the rewards."""
        return {name: str(value) for name, value in asdict(self).items()}

    @override
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        return Labels(np.clip(labels.values, self.low, self.high), labels.valid)


@dataclass(frozen=True)
class Delta(Stage):
    """Stage that pays r(t) - r(t-1), and r(0) in the first step: an episode adds up to the reward of its last step.

    After the mechanism Delta of Gao et al. 2024 (arXiv:2410.15115), which limits the reward of repeated steps. Theirs pays r(t)
    - r(t+1) and needs the next step; this one looks back, so that it can be paid while a policy acts.
    """

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the difference of each reward from the one before; the step after a missing reward is missing, too."""
        values, valid = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        before = place.memory.setdefault("before", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            last, was_valid = (0.0, True) if steps.begins[row] else before[index]
            values[row], valid[row] = labels.values[row] - last, labels.valid[row] and was_valid
            before[index] = [float(labels.values[row]), bool(labels.valid[row])]
        return Labels(values, valid)


@dataclass(frozen=True)
class Tiers(Stage):
    """Stage that pays for each threshold which the reward reaches for the first time in an episode.

    With tiers towards the best region, as in Sweet Spot Learning, an episode that came nearer never gets less, and moving back
    and forth earns nothing. With `adapts` a threshold is a test that an episode passes, and pays more the fewer episodes pass
    it (VeRPO).
    """

    thresholds: tuple[float, ...] = ()
    """Rewards at which the tiers begin, rising; at least one."""
    weights: tuple[float, ...] = ()
    """Pay for each tier, above 0; empty for equal pay that adds up to 1."""
    adapts: float = 0.0
    """Rate of the running share p of episodes that reach a tier, 0 to 1; the pay of the tier is then proportional to 1 - p. 0
    for a fixed pay. Only for trainings."""

    def __post_init__(self) -> None:
        count = len(self.thresholds)
        rising = count > 0 and bool(np.isfinite(self.thresholds).all() and (np.diff(self.thresholds) > 0).all())
        fits = not self.weights or (len(self.weights) == count and all(0 < weight < np.inf for weight in self.weights))
        allowed = {"thresholds": (rising, "one or more finite numbers, each above the one before")}
        allowed |= {"adapts": (0.0 <= self.adapts <= 1.0, "0 to 1")}
        require_allowed(self, allowed | {"weights": (fits, "as many numbers above 0 as thresholds, or none")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting if `adapts` is set for recorded episodes, whose labels must not depend on their order."""
        if self.adapts and place.is_recorded:
            fix = "leave adapts out when labelling a dataset"
            raise InvalidSetting("The weights of tiers follow a training.", got=f"adapts {self.adapts}", fix=fix)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the pay for newly reached tiers; a missing reward reaches no tier, and stays missing."""
        count = len(self.thresholds)
        first = list[float](self.weights) or [1.0 / count] * count
        values, reached, pay = np.zeros(len(steps)), *(place.memory.setdefault(name, {}) for name in ("tiers", "pay"))
        rates = place.memory.setdefault("passed", [0.0] * count)
        for row, index in enumerate(map(str, steps.index.tolist())):
            if steps.begins[row]:
                reached[index], pay[index] = 0, weighed(first, rates)
            best, paid = int(reached[index]), pay[index]
            here = int(np.searchsorted(self.thresholds, labels.values[row], side="right")) if labels.valid[row] else 0
            values[row], reached[index] = sum(paid[best : max(here, best)]), max(here, best)
            if steps.ended[row]:
                passed = np.arange(count) < reached[index]
                rates[:] = [rate + self.adapts * (float(new) - rate) for rate, new in zip(rates, passed, strict=True)]
        return Labels(values, labels.valid)


def weighed(weights: Sequence[float], rates: Sequence[float]) -> list[float]:
    """Return weights multiplied by 1 - rate and scaled to the same sum; unchanged if nearly all episodes pass all tests.

    rates: share of episodes that pass each test.
    """
    wanted = np.asarray(weights) * (1.0 - np.asarray(rates))
    return (wanted * (sum(weights) / wanted.sum())).tolist() if wanted.sum() > 1e-3 * sum(weights) else [*weights]


@dataclass(frozen=True)
class PreferenceAsReward(Stage):
    """Stage that pays once, at the end of the episode: how much better its score is than those of reference episodes.

    The pay is the mean over references of sigmoid(slope * (score - reference)), minus `offset`. The score is the sum of the
    episode's rewards before this stage. After Fu et al. 2025, "Reward Shaping to Mitigate Reward Hacking in RLHF"
    (arXiv:2502.18770). A score that grows without limit earns at most 1 - offset. It is not paid per step, because T sigmoids
    would add up to about T / 2 in long episodes.
    """

    references: str
    """JSON file {"scores": [...]} with the scores of episodes before training (`robo-rl reward references`)."""
    slope: float = 1.0
    """k of the paper, per unit of the score; above 0."""
    offset: float = 0.5
    """Value subtracted from the reward, 0 to 1; 0 as in the paper, with 0.5 an episode as good as the references gets 0."""

    def __post_init__(self) -> None:
        require_allowed(self, {"slope": (0 < self.slope < np.inf, "above 0"), "offset": (0 <= self.offset <= 1, "0 to 1")})

    @cached_property
    def scores(self) -> tuple[float, ...]:
        """Scores in the file; raises InvalidSetting if it holds none."""
        try:
            found = json.loads(Path(self.references).read_text())["scores"]
            scores = tuple(float(score) for score in found)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidSetting(
                f"{self.references} holds no references.",
                got=f"{type(error).__name__}: {error}",
                allowed='JSON such as {"scores": [0.2, 0.5]}',
                fix="robo-rl reward references REWARD --dataset DATASET --out FILE",
            ) from None
        if not scores or not np.isfinite(scores).all():
            raise InvalidSetting(f"{self.references} holds no references.", got=found, allowed="one finite number or more")
        return scores

    @property
    @override
    def identity(self) -> dict[str, Any]:
        return {"scores": list(self.scores), "slope": self.slope, "offset": self.offset}

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return 0 until the episode ends; the last reward is missing if any reward of the episode was missing."""
        values, valid, ended = np.zeros(len(steps)), labels.valid.copy(), steps.ended
        sums = place.memory.setdefault("sums", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            total, was_valid = (0.0, True) if steps.begins[row] else sums[index]
            total, all_valid = total + float(labels.values[row]), was_valid and bool(labels.valid[row])
            sums[index] = [total, all_valid]
            if ended[row]:
                values[row], valid[row] = (self.of(total) if all_valid else 0.0), all_valid
        return Labels(values, valid)

    def of(self, score: float) -> float:
        """Return the reward of an episode with this score."""
        return shaped(score, self.scores, self.slope) - self.offset


@dataclass(frozen=True)
class Gate(Stage):
    """Stage that pays the incoming reward only once the environment's own rewards exceed `above`; it always pays those.

    Gated accumulation of rewards (G-RA): terms of progress count only once the outcome passes a threshold, so that a policy
    cannot collect them instead of the outcome. The gate compares the sum of the environment's own rewards in the episode so
    far. With `at_end` the sum of the gated rewards is paid in the last step, if the gate is open then.
    """

    above: float = 0.0
    """Sum of the environment's own rewards in an episode above which the gate is open."""
    at_end: bool = True
    """True to pay the gated rewards in the last step of the episode; False to pay them in each step from which on the gate is
    open."""
    outcome: float = 1.0
    """Factor by which the environment's own reward is multiplied."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (bool(np.isfinite(getattr(self, name))), "finite") for name in ("above", "outcome")})

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return `outcome` times the environment's own rewards, plus the gated rewards while the gate is open.

        With `at_end` the last reward of an episode is missing if the gate is open and any gated reward of the episode was
        missing.
        """
        values, valid, ended = self.outcome * steps.rewards, labels.valid.copy(), steps.ended
        sums = place.memory.setdefault("gate", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            own, total, was_valid = (0.0, 0.0, True) if steps.begins[row] else sums[index]
            own, total = own + float(steps.rewards[row]), total + float(labels.values[row])
            all_valid = was_valid and bool(labels.valid[row])
            sums[index] = [own, total, all_valid]
            is_open = own > self.above
            if not self.at_end:
                values[row] += float(labels.values[row]) if is_open else 0.0
                valid[row] |= not is_open
            else:
                valid[row] = all_valid or not ended[row] or not is_open
                values[row] += total if ended[row] and is_open else 0.0
        return Labels(np.where(valid, values, 0.0), valid)


def shaped(score: float, references: Sequence[float], slope: float = 1.0) -> float:
    """Return the mean over the references of the sigmoid of slope * (score - reference), a number in [0, 1]."""
    away = slope * (score - np.asarray(references, np.float64))
    return float(np.mean(0.5 + 0.5 * np.tanh(0.5 * away)))  # the sigmoid, without an overflow


@dataclass(frozen=True)
class Potential(Stage):
    """Stage that adds potential-based shaping: weight * (discount * phi(after) - phi(before)).

    Phi(after) is 0 if the task terminated, but not if it was truncated. The discounted sum of the added rewards over an episode
    that terminates is then -phi(first) for any policy. At a time limit it is discount^T phi(last) - phi(first), and the
    learner's bootstrap value cancels the first term.
    """

    program: str
    """Path of a reward program whose total is phi. It may read the state only: neither `action` nor a column `previous_...`."""
    weight: float = 1.0
    """Weight of the potential phi in the reward."""
    discount: float | None = None
    """Discount of the learner, above 0 to 1; needed only for rewards of recorded episodes, without a learner."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the program's process and of its values."""

    def __post_init__(self) -> None:
        discount = 1.0 if self.discount is None else self.discount
        require_allowed(
            self,
            {
                "weight": (bool(np.isfinite(self.weight)), "a finite number"),
                "discount": (0 < discount <= 1, "above 0, up to 1, or none"),
            },
        )

    @property
    @override
    def identity(self) -> dict[str, Any]:
        program, limits = self.runner.program, asdict(self.limits)
        return {"program": program.hash, "weight": self.weight, "discount": self.discount, "limits": limits}

    @cached_property
    def runner(self) -> ProgramRunner:
        """The program with its worker process."""
        return ProgramRunner(self.program, self.limits)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for a program that reads more than the state, or a discount other than the learner's."""
        place.discount_for("potential", self.discount)
        states = self._states(place)
        if beyond := [
            each for each in self.runner.program.columns if each in place.view.columns and each not in states.columns
        ]:
            raise InvalidSetting(
                f"A potential follows from the state alone, and {self.program} reads more.",
                got=", ".join(beyond),
                allowed=", ".join(states.columns),
                fix="use it as a source of rewards, or write a program of the state",
            )
        self._view(place)

    @override
    def entries(self, place: Place) -> Sequence[str]:
        return self._view(place).entries

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the rewards with the shaping added.

        Phi(before) comes from the same step as phi(after), so that a reset never lies between the two.
        """
        view, count = self._view(place), len(steps)
        both: Mapping[str, Array] = {name: np.concatenate((steps.before[name], steps.after[name])) for name in view.entries}
        found = self.runner.run(view.batch_of({}, np.concatenate((steps.actions, steps.actions)), both))
        phi = self.weight * np.where(found.valid, found.total, 0.0)
        after = np.where(steps.terminated, 0.0, phi[count:])
        valid = labels.valid & found.valid[:count] & (found.valid[count:] | steps.terminated)
        return Labels(labels.values + place.discount_for("potential", self.discount) * after - phi[:count], valid)

    def _states(self, place: Place) -> EnvAbstraction:
        return place.view.only({name for name, column in place.view.columns.items() if column.moment == "after"})

    def _view(self, place: Place) -> EnvAbstraction:
        return self.runner.view(self._states(place), place.name)


@dataclass(frozen=True)
class Scale(Stage):
    """Stage that divides rewards by the running standard deviation of their discounted sum.

    No mean is subtracted, as that changes the task. After Engstrom et al. 2020 (arXiv:2005.12729), as in Stable-Baselines3's
    VecNormalize. The scale changes during a training, so that a replay memory would hold rewards of several scales: use it with
    on-policy learners.
    """

    least: float = 1e-4
    """Smallest standard deviation to divide by, so that a constant reward is not magnified."""
    bound: float = 10.0
    """Largest absolute value of a scaled reward (VecNormalize: 10)."""
    discount: float | None = None
    """Discount of the learner; without a learner it has no use."""

    def __post_init__(self) -> None:
        require_allowed(self, {"least": (self.least > 0, "above 0"), "bound": (self.bound > 0, "above 0")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for recorded episodes, whose labels must not depend on their order."""
        if place.is_recorded:
            raise InvalidSetting(
                "The stage scale follows the rewards of a training, and these episodes are recorded.",
                got="stage scale",
                fix="leave it out when labelling a dataset; weight brings rewards near 1 there",
            )
        place.discount_for("scale", self.discount)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the rewards, divided by the standard deviation of the discounted return over the whole training so far.

        The quotients are clipped to [-bound, bound].
        """
        memory, discount = place.memory, place.discount_for("scale", self.discount)
        returns = memory.setdefault("returns", {})
        count, mean, spread = memory.get("moments", (0, 0.0, 0.0))  # spread: sum of squared deviations (Welford 1962)
        for row in np.flatnonzero(labels.valid).tolist():
            index = str(steps.index[row])
            before = 0.0 if steps.begins[row] else returns.get(index, 0.0)
            returns[index] = value = before * discount + float(labels.values[row])
            count, away = count + 1, value - mean
            mean += away / count
            spread += away * (value - mean)
        memory["moments"] = [count, mean, spread]
        deviation = max(float(np.sqrt(spread / max(count, 1))), self.least)
        return Labels(np.clip(labels.values / deviation, -self.bound, self.bound), labels.valid)


STAGES: dict[str, type[Stage]] = {
    "potential": Potential,
    "clip": Clip,
    "bound": Bound,
    "delta": Delta,
    "tiers": Tiers,
    "par": PreferenceAsReward,
    "gate": Gate,
    "scale": Scale,
}
"""Name of a stage in a recipe -> its class."""
