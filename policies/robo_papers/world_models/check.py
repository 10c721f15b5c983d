"""Check of a world model: errors against recorded episodes, calibration, use of actions, imagined against real returns.

E episodes, T steps, S elements of a state, W windows. Errors are in deviations of the recorded states, over the elements that
change at all and that a policy may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robo_papers.world_models.world import World
from robo_rl.evaluation.figures import Figure, by_episode, episode_correlation, mean_of, pooled, step_correlation
from robo_rl.evaluation.statistics import wilson
from robo_rl.evaluation.verdicts import Finding, Grade, Verdict, graded
from robo_rl.types import Episode
from robo_rl.worlds.imagining import Draw, distribution
from robo_rl.worlds.steps import Steps, coded

HORIZONS = (1, 5, 20)
"""Numbers of imagined steps after which errors are measured."""
ENOUGH = 10
"""Number of episodes below which there is no verdict."""
WINDOWS = 5
"""Number of windows of an episode, each of which begins at a step drawn at random."""
GOOD, USELESS = 0.5, 0.0
"""Share of the trivial model's error that a good world saves, and one that is of no use."""
ANSWERS, IGNORES = 0.2, 0.05
"""Share of the error that the actions save in a world that answers to them, and in one that does not."""
COVERED, CENTRAL = (0.8, 0.97), 0.9
"""Range of the share of recorded numbers inside the central 90 % of a calibrated world; above it a world is only noisy."""
LEVELS = (0.1, 0.3, 0.5, 0.7, CENTRAL, 0.99)
"""Central parts of the predictions whose share of recorded numbers is counted."""
REWARDS = 0.5
"""Share of the variance of recorded rewards that a good world model explains, at least."""
AGREES = 0.6
"""Rank correlation of imagined and real returns of policies from which on a world model can order them."""
FAR = 0.5
"""Share of a policy's imagined steps that lie outside the data above which it is told."""
MOST_PLACED = 2000
"""Steps whose distance to the data is measured, of more a random choice."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PolicyTrial:
    """Episodes of one policy in the real environment, and in the world model."""

    name: str
    real: Sequence[Episode]
    imagined: Sequence[Episode]


@dataclass(frozen=True)
class Nearness:
    """How near steps are to the recorded ones, in units of `World.distances`."""

    outside: float
    """Share of the steps that are farther from the data than 95 % of the data are from each other."""
    median: float
    """Distance that half of the steps have at most."""
    largest: float
    """Distance that 95 % of the steps have at most."""
    beyond: float
    """Share of the steps with an action that has an element below the least or above the largest recorded one."""

    @classmethod
    def of(cls, world: World, states: npt.NDArray[np.float32], actions: npt.NDArray[np.float32]) -> Nearness:
        """Measure steps: states (N, S) and the actions (N, A) there."""
        rows = np.random.default_rng(0).permutation(len(states))[:MOST_PLACED]
        distances = world.distances(states[rows], actions[rows])
        beyond = ((actions < world.actions.min(0)) | (actions > world.actions.max(0))).any(1)
        median, largest = (float(np.quantile(distances, share)) for share in (0.5, 0.95))
        return cls(float((distances > 1).mean()), median, largest, float(beyond.mean()))


@dataclass(frozen=True)
class Beside:
    """Comparison of one policy in the world model and in the real environment: success or return in both."""

    name: str
    real_return: Figure
    imagined_return: Figure
    real_success: Figure | None
    imagined_success: Figure | None
    near: Nearness
    """Its imagined steps beside the recorded ones"""

    @property
    def compared(self) -> tuple[Figure, Figure]:
        """Success rates in the real environment and in the world model, or mean returns if success is not known."""
        if self.real_success is None or self.imagined_success is None:
            return self.real_return, self.imagined_return
        return self.real_success, self.imagined_success

    @property
    def is_overrated(self) -> bool:
        """True if the world model promises clearly more than the environment keeps."""
        real, imagined = self.compared
        return imagined.low > real.high

    @property
    def is_underrated(self) -> bool:
        """True if the policy fails clearly more in the world model than in the environment."""
        real, imagined = self.compared
        return imagined.high < real.low


@dataclass(frozen=True)
class Check:
    """Result of `robo-rl world check`: errors of a world model on held-out windows, further figures, and the verdict."""

    verdict: Verdict
    errors: Mapping[int, Figure]
    """Number of imagined steps -> error of the world model, in deviations of the recorded states"""
    trivial: Mapping[int, Figure]
    """Number of imagined steps -> error of the trivial model, by which nothing changes"""
    saved: Mapping[int, Figure]
    """Number of imagined steps -> share of the trivial error that the model saves, 1 - error / trivial error"""
    by_actions: Figure
    """1 - error / error with actions of other windows, after 5 steps"""
    coverage: Mapping[float, Figure]
    """Level -> share of recorded numbers in that central part of the one-step predictions; the same, if calibrated"""
    by_doubt: Figure
    """Spearman's correlation of the members' disagreement and the error, over steps"""
    by_distance: Figure
    """Spearman's correlation of the distance to the data and the error, over steps"""
    near: Nearness
    """The compared steps beside those that the world was fitted to"""
    rewards: Figure
    """Share of the variance of recorded rewards that is explained after one step"""
    policies: Sequence[Beside] = ()
    order: Figure | None = None
    """Spearman's correlation of real and imagined mean returns over policies"""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the check's figures and verdict as plain JSON values."""
        per_horizon = {name: getattr(self, name) for name in ("errors", "trivial", "saved")}
        return {
            "schema": "robo_rl.world_check/1",
            "facts": dict(self.facts),
            "verdict": {
                "color": self.verdict.color,
                "headline": self.verdict.headline,
                "findings": [asdict(each) for each in self.verdict.findings],
            },
            **{name: {str(horizon): each.to_json() for horizon, each in found.items()} for name, found in per_horizon.items()},
            "coverage": {f"{level:g}": each.to_json() for level, each in self.coverage.items()},
            "near": asdict(self.near),
            **{name: getattr(self, name).to_json() for name in ("by_actions", "by_doubt", "by_distance", "rewards")},
            "policies": [
                {
                    "name": each.name,
                    **asdict(each.near),
                    **{
                        name: None if (figure := getattr(each, name)) is None else figure.to_json()
                        for name in ("real_return", "imagined_return", "real_success", "imagined_success")
                    },
                }
                for each in self.policies
            ],
            "order": None if self.order is None else self.order.to_json(),
        }

    def lines(self) -> list[str]:
        """Return the check's figures in words, one line each."""
        rows = [
            f"after {horizon:2d} steps: error {self.errors[horizon].interval:.3f} deviations, "
            f"{self.trivial[horizon].interval.estimate:.3f} if nothing changed; saved {self.saved[horizon].interval:.0%}"
            for horizon in self.errors
        ]
        rows.append(f"saved by the right actions, after 5 steps: {self.by_actions.interval:.0%}")
        rows.append(f"recorded numbers in the central 90 %: {self.coverage[CENTRAL].interval:.1%}")
        rows.append(f"rank correlation of the members' disagreement and the error: {self.by_doubt.interval:.2f}")
        rows.append(f"compared steps outside the data: {self.near.outside:.0%}")
        rows.append(f"variance of rewards explained: {self.rewards.interval:.0%}")
        for each in self.policies:
            kind = "return" if each.compared[0] is each.real_return else "success"
            real, imagined = (figure.interval for figure in each.compared)
            number = ".0%" if kind == "success" else ".3g"
            rows.append(
                f"{each.name}: {kind} {imagined:{number}} imagined, {real:{number}} real; "
                f"{each.near.outside:.0%} of its imagined steps outside the data"
            )
        if self.order is not None:
            rows.append(
                f"rank correlation of imagined and real returns over {len(self.policies)} policies: {self.order.interval}"
            )
        return rows


def check_world(
    world: World,
    episodes: Iterable[Episode],
    trials: Sequence[PolicyTrial] = (),
    *,
    seed: int = 0,
    facts: Mapping[str, Any] = {},
) -> Check:
    """Check a world model on recorded episodes; use ones that it was not fitted to.

    Args:
        world: The world model.
        episodes: Episodes with the spec of the world.
        trials: Policies that acted in the environment and in the world.
        seed: Seed of the windows.
        facts: Origin, JSON values.
    """
    kept = [(episode, Steps.of_episode(world.spec, episode)) for episode in episodes if len(episode)]
    random, scale = np.random.default_rng(seed), _deviations(world, [steps for _, steps in kept])
    windows = _windows([steps for _, steps in kept], random)
    right = _squares(world, windows, windows.actions, scale)
    shuffled = _squares(world, windows, windows.actions[random.permutation(len(windows.actions))], scale)
    still = _still(windows, scale)
    count = len(kept)
    errors, trivial = ({h: _root(windows, each[h], count) for h in HORIZONS} for each in (right, still))
    saved = {h: _saved(windows, right[h], still[h], count) for h in HORIZONS}
    by_actions = _saved(windows, right[5], shuffled[5], count)
    one_step = _one_step(world, [steps for _, steps in kept])
    joined = Steps.joined([steps for _, steps in kept])
    near = Nearness.of(world, joined.states, joined.actions)
    policies = [_beside(world, trial) for trial in trials]
    order = None
    if len(policies) > 2:
        means = np.array([[each.imagined_return.interval.estimate, each.real_return.interval.estimate] for each in policies])
        order = episode_correlation(means[:, 0], means[:, 1])
    verdict = _verdict(count, saved, by_actions, one_step, policies, order)
    return Check(verdict, errors, trivial, saved, by_actions, *one_step[:-1], near, one_step.rewards, policies, order, facts)


@dataclass(frozen=True)
class _Windows:
    """Stretches of recorded steps."""

    states: npt.NDArray[np.float32]
    """(W, H + 1, S); NaN beyond the end of the episode"""
    actions: npt.NDArray[np.float32]
    """(W, H, A); zeros beyond the end"""
    episode: npt.NDArray[np.intp]
    """(W,) number of the episode"""


def _windows(episodes: Sequence[Steps], random: np.random.Generator) -> _Windows:
    longest = max(HORIZONS)
    states, actions, numbers = [], [], []
    for number, steps in enumerate(episodes):
        for begin in random.choice(len(steps), min(WINDOWS, len(steps)), replace=False).tolist():
            part = slice(begin, begin + longest)
            path = np.concatenate([steps.states[begin : begin + 1], steps.following[part]])
            states.append(np.pad(path, ((0, longest + 1 - len(path)), (0, 0)), constant_values=np.nan))
            actions.append(np.pad(steps.actions[part], ((0, longest + 1 - len(path)), (0, 0))))
            numbers.append(number)
    return _Windows(np.stack(states), np.stack(actions), np.array(numbers))


def _deviations(world: World, episodes: Sequence[Steps]) -> npt.NDArray[np.float32]:
    """Return the deviation (S,) of each element; infinite for one that never changes or that no policy reads."""
    steps = Steps.joined(episodes)
    is_read = np.concatenate([np.full(each.size, each.role != "privileged") for each in world.spec.observation.arrays])
    moves = is_read & (np.abs(steps.following - steps.states).max(0) > 0)
    return np.where(moves, np.maximum(steps.states.std(0), 1e-6), np.inf).astype(np.float32)


def _squares(
    world: World, windows: _Windows, actions: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]
) -> dict[int, Floats]:
    """Return horizon -> mean squared error (W,) of the world's mean after that many steps; NaN beyond an end."""
    imagination, states, found = world.imagination, windows.states[:, 0], {}
    for step in range(max(HORIZONS)):
        with np.errstate(over="ignore", invalid="ignore"):
            states, _ = imagination.mean_step(states, actions[:, step])
            found[step + 1] = _mean_square(states - windows.states[:, step + 1], scale)
    return {horizon: found[horizon] for horizon in HORIZONS}


def _still(windows: _Windows, scale: npt.NDArray[np.float32]) -> dict[int, Floats]:
    return {h: _mean_square(windows.states[:, 0] - windows.states[:, h], scale) for h in HORIZONS}


def _mean_square(differences: npt.NDArray[np.float32], scale: npt.NDArray[np.float32]) -> Floats:
    changing = np.isfinite(scale)
    squares = np.square((differences[:, changing] / scale[changing]).astype(np.float64))
    return squares.mean(1) if changing.any() else np.full(len(differences), np.nan)


def _sums(windows: _Windows, values: Floats, count: int) -> tuple[Floats, Floats]:
    """Return the sum and the number (E,) of the known values of each episode."""
    known = np.isfinite(values)
    sums = np.bincount(windows.episode[known], values[known], count).astype(np.float64)
    return sums, np.bincount(windows.episode[known], minlength=count).astype(np.float64)


def _root(windows: _Windows, values: Floats, count: int) -> Figure:
    sums, numbers = _sums(windows, values, count)

    def statistic(counts: Floats) -> Floats:
        total = counts @ numbers
        return np.where(total > 0, np.sqrt(counts @ sums / np.maximum(total, 1)), np.nan)

    return by_episode(statistic, count, n=int(numbers.sum()), of="windows")


def _saved(windows: _Windows, model: Floats, other: Floats, count: int) -> Figure:
    """Return 1 - the ratio of root mean squares."""
    both = np.where(np.isfinite(model) & np.isfinite(other), 1.0, np.nan)
    mine, numbers = _sums(windows, model * both, count)
    others, _ = _sums(windows, other * both, count)

    def statistic(counts: Floats) -> Floats:
        below = counts @ others
        return np.where(below > 0, 1 - np.sqrt(counts @ mine / np.where(below > 0, below, 1)), np.nan)

    return by_episode(statistic, count, n=int(numbers.sum()), of="windows")


class _OneStep(NamedTuple):
    coverage: Mapping[float, Figure]
    by_doubt: Figure
    by_distance: Figure
    rewards: Figure


def _one_step(world: World, episodes: Sequence[Steps]) -> _OneStep:
    """Return what the predictions of one step say, over the steps of the episodes."""
    inside: dict[float, list[float]] = {level: [] for level in LEVELS}
    residuals, spreads, doubts, distances, errors = list[float](), list[float](), list[Floats](), list[Floats](), list[Floats]()
    mean_reward = float(np.concatenate([steps.rewards for steps in episodes]).mean())
    scale = world.dynamics.scale.cpu().numpy()
    for steps in episodes:
        mean, deviation = distribution(world.dynamics, steps.states, steps.actions)
        change = np.concatenate([steps.following - steps.states, steps.rewards[:, None]], 1)
        known = deviation > 0
        away = np.abs(change - mean)[known] / deviation[known]
        for level, shares in inside.items():
            shares.append(float((away < NormalDist().inv_cdf(0.5 + level / 2)).mean()))
        residuals.append(float(np.square(steps.rewards - mean[:, -1], dtype=np.float64).sum()))
        spreads.append(float(np.square(steps.rewards - mean_reward, dtype=np.float64).sum()))
        imagined = world.imagination.step(steps.states, steps.actions, Draw.none(world.dynamics, len(steps)))
        doubts.append(imagined.disagreement.astype(np.float64))
        distances.append(world.distances(steps.states, steps.actions))
        errors.append(_mean_square(change - mean, np.where(scale > 0, scale, np.inf)))
    left, all_ = np.array(residuals), np.array(spreads)

    def explained(counts: Floats) -> Floats:
        below = counts @ all_
        return np.where(below > 0, 1 - counts @ left / np.where(below > 0, below, 1), np.nan)

    return _OneStep(
        {level: mean_of(shares, "episodes") for level, shares in inside.items()},
        step_correlation(pooled(doubts, errors)),
        step_correlation(pooled(distances, errors)),
        by_episode(explained, len(episodes), n=sum(map(len, episodes)), of="steps"),
    )


def _beside(world: World, trial: PolicyTrial) -> Beside:
    states = np.concatenate([world.spec.observation.stack(each.observations)[:-1] for each in trial.imagined])
    actions = np.concatenate([coded(world.spec, each.actions) for each in trial.imagined])
    returns = [mean_of([each.undiscounted_return for each in side], "episodes") for side in (trial.real, trial.imagined)]
    near = Nearness.of(world, states, actions)
    return Beside(trial.name, returns[0], returns[1], _success(trial.real), _success(trial.imagined), near)


def _success(episodes: Sequence[Episode]) -> Figure | None:
    known = [each.success for each in episodes if each.success is not None]
    return Figure(wilson(sum(known), len(known)), len(known), "episodes") if known else None


def _verdict(
    count: int,
    saved: Mapping[int, Figure],
    by_actions: Figure,
    one_step: _OneStep,
    policies: Sequence[Beside],
    order: Figure | None,
) -> Verdict:
    if count < ENOUGH:
        few = Finding(f"there are {ENOUGH} episodes or more", "not known", f"There are {count} episodes only.")
        return Verdict("", "Cannot tell: too few episodes.", [few])
    findings = [_predicts(horizon, figure) for horizon, figure in saved.items()]
    findings.append(_answers(by_actions))
    findings += [
        _is_calibrated(one_step.coverage[CENTRAL]),
        _rewards(one_step.rewards),
        *map(_keeps, policies),
        *map(_stays, policies),
    ]
    if order is not None:
        findings.append(_orders(order))
    core = [findings[0], findings[len(saved)]]
    if any(each.outcome == "bad" for each in core) or any(each.is_overrated for each in policies):
        return Verdict("bad", "Do not train in it.", findings)
    outcomes = {each.outcome for each in findings}
    if {each.outcome for each in core} == {"not known"}:
        return Verdict("", "Cannot tell from this data.", findings)
    if outcomes & {"bad", "middling", "not known"}:
        return Verdict("middling", "Usable with care: short branches from recorded states.", findings)
    return Verdict("good", "It can be trained in, near data like these.", findings)


def _predicts(horizon: int, figure: Figure) -> Finding:
    rule = f"after {horizon} steps it has at most {1 - GOOD:.0%} of the error of saying that nothing changes"
    steps = "step" if horizon == 1 else "steps"
    if not figure.is_measured:
        return Finding(rule, "not known", f"No episode has windows of {horizon} {steps}.")
    worse = " Saying that nothing changes is as good." if figure.low <= USELESS else ""
    text = f"After {horizon} {steps} it saves {figure.interval:.0%} of that error.{worse}"
    return Finding(rule, graded(figure, GOOD, USELESS), text)


def _answers(figure: Figure) -> Finding:
    rule = f"the right actions save {ANSWERS:.0%} of the error after 5 steps, beside actions of other moments"
    if not figure.is_measured:
        return Finding(rule, "not known", "No episode has windows of 5 steps.")
    outcome = graded(figure, ANSWERS, IGNORES)
    nothing = " It does not answer to actions." if outcome == "bad" else ""
    return Finding(rule, outcome, f"The right actions save {figure.interval:.0%} of the error.{nothing}")


def _is_calibrated(figure: Figure) -> Finding:
    low, high = COVERED
    rule = f"{low:.0%} to {high:.0%} of recorded numbers lie in the central {CENTRAL:.0%} of its predictions"
    share = figure.interval.estimate
    word = "" if low <= share <= high else " It is too sure of itself." if share < low else " It is too unsure."
    outcome: Grade = "good" if not word else "middling" if share < low else "note"
    return Finding(rule, outcome, f"{share:.1%} of recorded numbers lie there.{word}")


def _rewards(figure: Figure) -> Finding:
    rule = f"it explains {REWARDS:.0%} of the variance of recorded rewards"
    if not figure.is_measured:
        return Finding(rule, "note", "All recorded rewards are the same.")
    return Finding(rule, graded(figure, REWARDS, 0.0), f"It explains {figure.interval:.0%} of the variance of rewards.")


def _keeps(policy: Beside) -> Finding:
    rule = "a policy is neither clearly better nor clearly worse in the world than in the environment"
    if policy.is_overrated:
        return Finding(rule, "bad", f"It promises more for {policy.name} than the environment keeps.")
    if policy.is_underrated:
        return Finding(rule, "middling", f"It does not let {policy.name} reach what that reaches in the environment.")
    return Finding(rule, "good", f"{policy.name} is about as good in it as in the environment.")


def _stays(policy: Beside) -> Finding:
    rule = f"at most {FAR:.0%} of a policy's imagined steps lie farther from the data than 95 % of them from each other"
    text = f"{policy.near.outside:.0%} of the imagined steps of {policy.name} lie outside the data."
    return Finding(rule, "good" if policy.near.outside <= FAR else "middling", text)


def _orders(figure: Figure) -> Finding:
    rule = f"imagined and real mean returns of policies have a rank correlation of {AGREES} or more"
    text = f"Imagined and real returns of policies have a rank correlation of {figure.interval:.2f}."
    return Finding(rule, graded(figure, AGREES, 0.0), text)
