"""Stages between a reward and the policy that learns from it: potentials, bounds, differences, sigmoids, scales."""

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
    """A stage between a reward and the policy: a frozen dataclass of settings. Its state is in the place's memory."""

    @property
    def identity(self) -> dict[str, Any]:
        """Plain values that the rewards follow from: the settings."""
        return asdict(self)

    @abstractmethod
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the rewards of steps after this stage, float64; the value of a missing one is 0, before and after."""

    def require(self, place: Place) -> None:  # noqa: B027 - most stages work everywhere
        """Raise InvalidSetting if it cannot work in that place."""

    def entries(self, place: Place) -> Sequence[str]:
        """Return the entries of an observation that it reads."""
        return ()


@dataclass(frozen=True)
class Clip(Stage):
    """Pays min(r - at, 0): a good step costs nothing, and no number of good steps adds up to a profit.

    The mechanism Clip of Gao et al. 2024, "On Designing Effective RL Reward at Training Time for LLM Reasoning"
    (arXiv:2410.15115), with their eta as `at`. Rewards are never above 0: if an episode can be ended early, that may pay.
    """

    at: float
    """Reward of a step that is good enough."""

    def __post_init__(self) -> None:
        require_allowed(self, {"at": (bool(np.isfinite(self.at)), "a finite number")})

    @override
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        return Labels(np.minimum(labels.values - self.at, 0.0), labels.valid)


@dataclass(frozen=True)
class Bound(Stage):
    """Clips rewards to `low` and `high`."""

    low: float = -np.inf
    """Lowest reward of a step."""
    high: float = np.inf
    """Highest reward of a step."""

    def __post_init__(self) -> None:
        require_allowed(self, {"low": (self.low < self.high, f"below high, which is {self.high}")})

    @property
    def identity(self) -> dict[str, Any]:
        """The settings."""
        return {name: str(value) for name, value in asdict(self).items()}

    @override
    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        return Labels(np.clip(labels.values, self.low, self.high), labels.valid)


@dataclass(frozen=True)
class Delta(Stage):
    """Pays r(t) - r(t-1), and r(0) in the first step: an episode adds up to the reward of its last step, however long it was.

    After the mechanism Delta of Gao et al. 2024 (arXiv:2410.15115), which bounds the reward of repeated steps. Theirs pays
    r(t) - r(t+1) and needs the next step; ours looks back, so that it can be paid while a policy acts.
    """

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the differences; the step after a missing one has none."""
        values, valid = np.zeros(len(steps)), np.zeros(len(steps), np.bool_)
        before = place.memory.setdefault("before", {})
        for row, index in enumerate(map(str, steps.index.tolist())):
            last, was_valid = (0.0, True) if steps.begins[row] else before[index]
            values[row], valid[row] = labels.values[row] - last, labels.valid[row] and was_valid
            before[index] = [float(labels.values[row]), bool(labels.valid[row])]
        return Labels(values, valid)


@dataclass(frozen=True)
class Tiers(Stage):
    """Pays for each threshold that the reward reaches for the first time in an episode.

    Tiers towards the best region, as in Sweet Spot Learning: an episode that came nearer has never less, and going to and fro
    earns nothing. With `adapts`, thresholds as tests that are passed: VeRPO, whose weights follow the difficulty.
    """

    thresholds: tuple[float, ...] = ()
    """Rewards from the outer tier to the best, rising; must be set."""
    weights: tuple[float, ...] = ()
    """Pay of each tier; 1 in all, alike, by default."""
    adapts: float = 0.0
    """Rate of the running share p of episodes that reach a tier; its pay is then as 1 - p. 0: fixed. In trainings alone."""

    def __post_init__(self) -> None:
        count = len(self.thresholds)
        rising = count > 0 and bool(np.isfinite(self.thresholds).all() and (np.diff(self.thresholds) > 0).all())
        fits = not self.weights or (len(self.weights) == count and all(0 < weight < np.inf for weight in self.weights))
        allowed = {"thresholds": (rising, "one or more finite numbers, each above the one before")}
        allowed |= {"adapts": (0.0 <= self.adapts <= 1.0, "0 to 1")}
        require_allowed(self, allowed | {"weights": (fits, "as many numbers above 0 as thresholds, or none")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for weights that would follow the order of recorded episodes."""
        if self.adapts and place.is_recorded:
            fix = "leave adapts out when labelling a dataset"
            raise InvalidSetting("The weights of tiers follow a training.", got=f"adapts {self.adapts}", fix=fix)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the pay of new tiers; a missing reward reaches none, and has none."""
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
    """Return weights times one less the share that passed, of the same sum; as they are if nearly all pass all."""
    wanted = np.asarray(weights) * (1.0 - np.asarray(rates))
    return (wanted * (sum(weights) / wanted.sum())).tolist() if wanted.sum() > 1e-3 * sum(weights) else [*weights]


@dataclass(frozen=True)
class PreferenceAsReward(Stage):
    """Pays nothing until the episode ends, then mean over references of sigmoid(slope * (score - reference)), less `offset`.

    score: the sum of the episode's rewards before this stage. After Fu et al. 2025, "Reward Shaping to Mitigate Reward Hacking
    in RLHF" (arXiv:2502.18770). A score that runs away earns at most 1 - offset. Never paid per step: T sigmoids would be a
    wage of about T / 2 for long episodes.
    """

    references: str
    """A JSON file {"scores": [...]} of episodes of the policy before training (`robo-rl reward references`), drawn once."""
    slope: float = 1.0
    """k of the paper, per unit of the score."""
    offset: float = 0.5
    """Subtracted from the reward; 0 as in the paper, 0.5 pays nothing for an episode as good as the references."""

    def __post_init__(self) -> None:
        require_allowed(self, {"slope": (0 < self.slope < np.inf, "above 0"), "offset": (0 <= self.offset <= 1, "0 to 1")})

    @cached_property
    def scores(self) -> tuple[float, ...]:
        """The stored scores; raises InvalidSetting for a file that holds none."""
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
        """Return 0 until the episode ends; an episode with a missing reward has none then."""
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
        """Return the reward of an episode of that score."""
        return shaped(score, self.scores, self.slope) - self.offset


@dataclass(frozen=True)
class Gate(Stage):
    """Pays the environment's own reward, and the rewards before this stage only where that has come to more than `above`.

    Gated accumulation of rewards (G-RA): terms of progress count once the outcome passes a threshold, so that they cannot be
    collected instead of it. With `at_end` the sum of an episode is paid or kept at its last step, by its whole outcome.
    """

    above: float = 0.0
    """Sum of the environment's own rewards in the episode beyond which the others count."""
    at_end: bool = True
    """Pay the others at the end of the episode; or else from the step on in which the gate opens."""
    outcome: float = 1.0
    """Factor of the environment's own reward."""

    def __post_init__(self) -> None:
        require_allowed(self, {name: (bool(np.isfinite(getattr(self, name))), "finite") for name in ("above", "outcome")})

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return the gated rewards; with `at_end` an episode with a missing reward has none at its last step."""
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
    """Return the mean over references of sigmoid(slope * (score - reference)), in [0, 1]."""
    away = slope * (score - np.asarray(references, np.float64))
    return float(np.mean(0.5 + 0.5 * np.tanh(0.5 * away)))  # the sigmoid, without an overflow


@dataclass(frozen=True)
class Potential(Stage):
    """Adds weight * (discount * phi(after) - phi(before)), phi(after) being 0 if the task ended (terminated, not truncated).

    The discounted sum over an episode that ends is then -phi(first) for any policy; at a time limit it is
    discount^T phi(last) - phi(first), and the learner's bootstrap cancels the first term.
    """

    program: str
    """Path of a reward program whose total is phi. It reads the state alone: neither `action` nor a column `previous_...`."""
    weight: float = 1.0
    """Weight of phi."""
    discount: float | None = None
    """The learner's; needed only for rewards of recorded episodes, before there is a learner."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the program's process and its potentials."""

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
        """The program and its worker."""
        return ProgramRunner(self.program, self.limits)

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for a program that reads more than the state, and for another discount than the learner's."""
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
        """Return shaped rewards: each step brings the state before it, so that no reset of an environment can come between."""
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
    """Divides by the standard deviation so far of the discounted sum of rewards; takes no mean away, which would move the goal.

    After Engstrom et al. 2020 (arXiv:2005.12729), as in Stable-Baselines3's VecNormalize. The scale changes while a policy
    learns: a replay memory then holds rewards of several scales. For on-policy learners.
    """

    least: float = 1e-4
    """Below it the standard deviation counts as this: a reward that is always the same is not blown up."""
    bound: float = 10.0
    """Largest magnitude of a scaled reward (VecNormalize: 10)."""
    discount: float | None = None
    """The learner's; of no use without a learner."""

    def __post_init__(self) -> None:
        require_allowed(self, {"least": (self.least > 0, "above 0"), "bound": (self.bound > 0, "above 0")})

    def require(self, place: Place) -> None:
        """Raise InvalidSetting for recorded episodes, whose labels must not depend on an order."""
        if place.is_recorded:
            raise InvalidSetting(
                "The stage scale follows the rewards of a training, and these episodes are recorded.",
                got="stage scale",
                fix="leave it out when labelling a dataset; weight brings rewards near 1 there",
            )
        place.discount_for("scale", self.discount)

    def apply(self, steps: Steps, labels: Labels, place: Place) -> Labels:
        """Return scaled rewards, all by the deviation after the last of them."""
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
"""Name in a recipe -> stage."""
