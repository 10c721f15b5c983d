"""Evaluate a policy on fixed seeds, with confidence intervals for all figures.

Evaluation seeds start at one million, training resets lie in [2^30, 2^31): a policy is never trained on an evaluation start.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from robo_rl.environments.levels import FIRST_LEVEL
from robo_rl.errors import InvalidSetting, MissingExtra, RunError, UnknownName, printable
from robo_rl.evaluation.commands import Commands, commands_of
from robo_rl.evaluation.measures import Measure, cost_measures, measured_in, measures_of
from robo_rl.evaluation.statistics import (
    Comparison,
    Interval,
    paired_comparison,
    pass_at_k,
    stratified_bootstrap,
    tail_mean,
    wilson,
)
from robo_rl.evaluation.video import VideoRequest, film
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import SUCCESS_CONVENTION, rollout
from robo_rl.spec.environment import specification
from robo_rl.system.plain_files import read_object
from robo_rl.types import DIVERGED, ActionSource, Episode, Metrics

FIRST_SEED = FIRST_LEVEL["test"]


@dataclass(frozen=True)
class Incomplete:
    """Early end of an evaluation: the episode in which it ended, and those after it, are not counted."""

    planned: int
    """Number of episodes that were to be played."""
    reason: str
    """Error that ended the evaluation, in one line."""


@dataclass(frozen=True)
class Evaluation:
    """Outcome of evaluating one policy on a list of seeds.

    Each tuple has one element per episode, except `notes` and `measures`.
    """

    environment: str
    """Name of the environment."""
    spec_fingerprint: str
    success_rule: str | None
    seeds: tuple[int, ...]
    """Reset seed of each episode."""
    returns: tuple[float, ...]
    """Undiscounted return of each episode."""
    lengths: tuple[int, ...]
    """Steps of each episode."""
    successes: tuple[bool | None, ...]
    """Success of each episode; None if the environment has no success criterion."""
    stop_reasons: tuple[str, ...]
    """Stop reason of each episode, as `Episode.stop_reason`."""
    deterministic: bool
    """True if the most likely actions were executed, False for random ones of the policy (as passed to `Policy.act`)."""
    duration: float
    """Duration of all episodes [s], without films."""
    training_seed: int | None = None
    """Training seed of the policy; None if it is unknown, or the policy was not trained."""
    videos: Mapping[int, str] = field(default_factory=dict)
    """Seed -> file name of a film."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader, such as the reason for a missing film."""
    measures: tuple[Measure, ...] = ()
    """Further measures of the environment."""
    measured: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Name of a measure -> value in each episode; NaN for an episode without a value."""
    commands: Commands | None = None
    """Counts of commands that were executed as proposed; None if nothing can change commands."""
    incomplete: Incomplete | None = None
    """Early end of the evaluation; None if all episodes were played."""

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def success_rate(self) -> Interval | None:
        """Success rate with Wilson's interval; None if the environment has no success criterion."""
        known = [success for success in self.successes if success is not None]
        return wilson(sum(known), len(known)) if known else None

    @cached_property
    def mean_return(self) -> Interval:
        """Mean return with a bootstrap interval over episodes."""
        return stratified_bootstrap([self.returns], np.mean)

    @cached_property
    def pass_at(self) -> dict[int, Interval]:
        """Number k of attempts -> probability that one of k attempts at a seed succeeds, with a bootstrap interval over seeds.

        k is 1, 5, 10 and 20, as far as it is at most half of the attempts at each seed. Empty if no seed repeats, or without a
        success criterion.
        """
        if len(set(self.seeds)) == len(self.seeds) or None in self.successes:
            return {}
        tried, done = Counter(self.seeds), Counter[int]()
        for seed, success in zip(self.seeds, self.successes, strict=True):
            done[seed] += bool(success)
        found = [k for k in (1, 5, 10, 20) if 2 * k <= min(tried.values())]
        values = {k: [pass_at_k(count, done[seed], k) for seed, count in tried.items()] for k in found}
        return {k: stratified_bootstrap([each], np.mean) for k, each in values.items()}

    @cached_property
    def iqm_return(self) -> Interval:
        """Interquartile mean of the returns with a bootstrap interval over episodes."""
        return stratified_bootstrap([self.returns])

    @cached_property
    def tail_return(self) -> Interval:
        """Mean return of the worst tenth of the episodes with a bootstrap interval over episodes."""
        return stratified_bootstrap([self.returns], partial(tail_mean, share=0.1))

    def outcomes(self, metric: str) -> tuple[Any, ...]:
        """Return one value per episode of "success", "return" or a measure; raises UnknownName."""
        found: dict[str, tuple[Any, ...]] = {**self.measured, "success": self.successes, "return": self.returns}
        if metric not in found:
            raise UnknownName(f"measure of {self.environment}", metric, found)
        return found[metric]

    @cached_property
    def measure_intervals(self) -> dict[str, Interval]:
        """Name of each measure -> mean, or rate of events, with its interval."""
        return {measure.name: measure.interval(self.measured) for measure in self.measures}

    @cached_property
    def exceeded(self) -> dict[str, Interval]:
        """Name of each measure with a limit -> share of episodes above the limit, with Wilson's interval."""
        shares = {measure.name: measure.exceeded(self.measured) for measure in self.measures}
        return {name: share for name, share in shares.items() if share is not None}

    def with_limits(self, limits: Mapping[str, float]) -> Evaluation:
        """Return the evaluation with other limits of costs: name of a cost -> largest sum over an episode."""
        named = {f"cost_{name}": limit for name, limit in limits.items()}
        return replace(
            self,
            measures=tuple(replace(measure, limit=named.get(measure.name, measure.limit)) for measure in self.measures),
        )

    @property
    def diverged(self) -> int:
        """Number of episodes that ended because the simulation diverged; their returns count until then."""
        return self.stop_reasons.count(DIVERGED)

    @property
    def caveat(self) -> str:
        """Sentence for the reader on the sources of variation that the confidence intervals do not cover."""
        source = (
            "one policy, training seed unknown" if self.training_seed is None else f"one training seed ({self.training_seed})"
        )
        return f"{source}: the interval covers evaluation episodes, not training"

    @property
    def early_end(self) -> str:
        """Sentence on the early end of the evaluation; "" if all episodes were played."""
        if self.incomplete is None:
            return ""
        return f"ended early, after {len(self)} of {self.incomplete.planned} episodes: {self.incomplete.reason}"

    @property
    def metrics(self) -> Metrics:
        """Figures of the evaluation for the log, by TensorBoard tag."""
        metrics = {
            "eval/mean_reward": self.mean_return.estimate,
            "eval/iqm_reward": self.iqm_return.estimate,
            "eval/mean_ep_length": float(np.mean(self.lengths)),
        }
        metrics |= {f"eval/{name}": interval.estimate for name, interval in self.measure_intervals.items()}
        metrics |= {f"eval/{name}_exceeded": share.estimate for name, share in self.exceeded.items()}
        if self.commands is not None and self.commands.total:
            metrics |= {"eval/executed_as_proposed": self.commands.as_proposed / self.commands.total}
        return metrics | ({"eval/success_rate": self.success_rate.estimate} if self.success_rate else {})

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values, with a summary for readers without this package."""
        summary = {"success_rate": self.success_rate, "mean_return": self.mean_return, "iqm_return": self.iqm_return}
        summary |= {"tail_return": self.tail_return}
        intervals: dict[str, Any] = {name: _plain(interval) for name, interval in summary.items()}
        intervals |= {"pass_at": {str(k): _plain(share) for k, share in self.pass_at.items()}} if self.pass_at else {}
        intervals |= {"exceeded": {name: _plain(share) for name, share in self.exceeded.items()}}
        intervals |= {"measures": {name: _plain(interval) for name, interval in self.measure_intervals.items()}}
        measured = {name: [_known(value) for value in values] for name, values in self.measured.items()}
        return asdict(self) | {"measured": measured, "summary": intervals}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Evaluation:
        """Return the evaluation from the values of `to_json`; the summary is computed again."""
        values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
        values.pop("summary", None)
        values["videos"] = {int(seed): file for seed, file in data.get("videos", {}).items()}
        values["commands"] = Commands(**data["commands"]) if data.get("commands") else None
        values["incomplete"] = Incomplete(**data["incomplete"]) if data.get("incomplete") else None
        values["measures"] = tuple(Measure(**measure) for measure in data.get("measures", ()))
        measured = data.get("measured", {})
        values["measured"] = {name: tuple(np.nan if v is None else v for v in each) for name, each in measured.items()}
        return cls(**values)

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Return the evaluation in a file; raises RunError if the file is damaged, FileNotFoundError if it does not exist."""
        found = read_object(path, fix="remove it, and evaluate again")
        try:
            return cls.from_json(found)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(
                f"{path} is damaged.", got=f"{type(error).__name__}: {error}", fix="remove it, and evaluate again"
            ) from None

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {reason}" for reason, count in Counter(self.stop_reasons).most_common())
        count = f"{len(self)} episode{'s' * (len(self) != 1)}"
        lines = [f"{self.environment}: {count}, seeds {_ranges(self.seeds)}, spec {self.spec_fingerprint}"]
        if self.success_rate is not None:
            lines += [f"  success  {self.success_rate:.1%}  {sum(map(bool, self.successes))} of {len(self)}, Wilson 95%"]
        shares = (f"pass@{k} {share:.1%}" for k, share in self.pass_at.items())
        lines += [f"  attempts {', '.join(shares)}; bootstrap 95% over seeds"] if self.pass_at else []
        lines += [f"  return   mean {self.mean_return}, interquartile mean {self.iqm_return}, bootstrap 95%"]
        lines += [f"           worst tenth {self.tail_return}"]
        lines += [f"  measure  {line}" for line in self._measure_lines()]
        lines += [f"  length   {np.mean(self.lengths):.1f} steps; ended by {ends}"]
        if self.success_rate is not None:
            lines += [f"  rule     {self.success_rule or 'not stated'}; {SUCCESS_CONVENTION}"]
        lines += [f"  WARNING  {self.early_end}"] if self.early_end else []
        lines += [f"  DIVERGED {self.diverged} episode(s): the simulation failed in them"] if self.diverged else []
        lines += [f"  commands {self.commands}"] if self.commands is not None else []
        lines += [f"  WARNING  {self.commands.warning}"] if self.commands is not None and self.commands.warning else []
        lines += [f"  note     {note}" for note in (self.caveat, *self.notes)]
        return "\n".join(lines)

    def _measure_lines(self) -> list[str]:
        lines = []
        for measure in self.measures:
            unit = "" if measure.unit == "1" else f" {measure.unit}"
            value = f"{self.measure_intervals[measure.name]}{unit}"
            if measure.per:
                events, extent = (np.nansum(self.measured[each]) for each in (measure.name, measure.per))
                value += f", {events:.0f} in {extent:.3g}, Garwood 95%"
            if share := self.exceeded.get(measure.name):
                value += f", above the limit of {measure.limit:g}{unit} in {share:.0%} of the episodes, Wilson 95%"
            lines.append(f"{measure.name:17} {value}")
        return lines


def evaluation_seeds(episodes: int) -> range:
    """Return the fixed seeds of an evaluation with `episodes` episodes."""
    return range(FIRST_SEED, FIRST_SEED + episodes)


def evaluate(  # noqa: PLR0913 (keyword settings)
    policy: Policy,
    environment: gymnasium.Env[Any, Any],
    episodes: int = 50,
    *,
    seeds: Iterable[int] | None = None,
    deterministic: bool = True,
    training_seed: int | None = None,
    on_episode: Callable[[Episode], None] | None = None,
    on_incomplete: Callable[[Evaluation], object] | None = None,
    video: VideoRequest | None = None,
) -> Evaluation:
    """Play one episode per seed and return the outcome.

    A film that cannot be drawn becomes a note; it never fails the evaluation.

    Args:
        policy: Policy to evaluate.
        environment: Environment with an `environment_spec`.
        episodes: Number of episodes.
        seeds: Reset seeds; None for the first `episodes` of the fixed seeds (`evaluation_seeds`).
        deterministic: Passed to `Policy.act`.
        training_seed: Training seed of the policy, if known.
        on_episode: Called with each recorded episode.
        on_incomplete: Called with the outcome of the episodes that ended, if there are any, when an error or Ctrl-C ends the
            evaluation early; the error is raised afterwards.
        video: Films to write; None for none.

    Raises:
        SpecMismatch: The policy was made for another environment.
        InvalidSetting: There is no seed.
    """
    spec = specification(environment)
    policy.environment_spec.require_interface(spec, what=f"The policy was made for another environment than this {spec.name}")
    planned = [*(evaluation_seeds(episodes) if seeds is None else seeds)]
    if not planned:
        raise InvalidSetting("An evaluation needs at least one episode.", got=0, fix="pass episodes=50")
    started = time.monotonic()
    played: list[Episode] = []
    how: dict[str, Any] = {"deterministic": deterministic, "training_seed": training_seed}
    try:
        for seed in planned:
            episode = rollout(environment, policy, seed=seed, deterministic=deterministic)
            played.append(replace(episode, observations={}))  # pictures of many episodes would fill the memory
            if on_episode is not None:
                on_episode(episode)
    except BaseException as error:
        if played and on_incomplete is not None:
            early = Incomplete(len(planned), _reason_of(error))
            on_incomplete(_outcome(environment, played, duration=time.monotonic() - started, incomplete=early, **how))
        raise
    duration = time.monotonic() - started
    videos, notes = _film(environment, played, video)
    return _outcome(environment, played, duration=duration, videos=videos, notes=notes, **how)


def _outcome(
    environment: gymnasium.Env[Any, Any], played: list[Episode], *, notes: tuple[str, ...] = (), **facts: Any
) -> Evaluation:
    """Return the evaluation of episodes that were played; facts: further fields of it."""
    spec = specification(environment)
    measures = (*measures_of(environment), *cost_measures(spec.costs, played))
    commands = commands_of(played)
    can_be_changed = bool(commands.changed) or environment.has_wrapper_attr("hold")  # which a robot has
    if any((episode.sources == ActionSource.IMAGINED).any() for episode in played):
        notes = (*notes, "imagined in a learned world: not a figure of the real environment")
    return Evaluation(
        environment=spec.name,
        spec_fingerprint=spec.fingerprint,
        success_rule=spec.success_rule,
        seeds=tuple(episode.seed for episode in played if episode.seed is not None),
        returns=tuple(episode.undiscounted_return for episode in played),
        lengths=tuple(len(episode) for episode in played),
        successes=tuple(episode.success for episode in played),
        stop_reasons=tuple(episode.stop_reason for episode in played),
        notes=notes,
        measures=measures,
        measured=measured_in(played, measures),
        commands=commands if can_be_changed else None,
        **facts,
    )


def _reason_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    lines = [line for line in str(error).splitlines() if not line.startswith(("  allowed:", "  do:"))]
    return printable(" ".join(f"{type(error).__name__}: {' '.join(lines)}".split()))


def compare(first: Sequence[Evaluation], second: Sequence[Evaluation]) -> tuple[dict[str, Comparison], list[int]]:
    """Compare two sides on the evaluation seeds that all their runs share; each side has one evaluation per training run.

    Returns:
        Comparisons by name, and the shared seeds. "return" and each measure are compared if all runs have them for all seeds,
            "success" on the seeds for which all runs know it. Measures of events are compared as counts.

    Raises:
        InvalidSetting: The runs share no seed.
    """
    shared = sorted(set.intersection(*(set(evaluation.seeds) for evaluation in (*first, *second))))
    if not shared:
        raise InvalidSetting("The runs share no evaluation seed.", fix="evaluate them with the same evaluation.seed")
    everyone = [*first, *second]
    measures = [measure.name for measure in everyone[0].measures if all(measure.name in each.measured for each in everyone)]
    comparisons = {}
    for metric in ("success", "return", *measures):
        a, b = (_outcomes(side, metric, shared) for side in (first, second))
        known = ~np.isnan(np.concatenate((a, b))).any(axis=0)
        if known.all() or (metric == "success" and known.any()):
            comparisons[metric] = paired_comparison(a[:, known], b[:, known])
    return comparisons, shared


def _outcomes(side: Sequence[Evaluation], name: str, seeds: Sequence[int]) -> npt.NDArray[np.float64]:
    rows = [dict(zip(evaluation.seeds, evaluation.outcomes(name), strict=True)) for evaluation in side]
    return np.array([[row[seed] for seed in seeds] for row in rows], np.float64)


def _film(
    environment: gymnasium.Env[Any, Any], episodes: list[Episode], request: VideoRequest | None
) -> tuple[dict[int, str], tuple[str, ...]]:
    if request is None:
        return {}, ()
    try:
        return {seed: path.name for seed, path in film(environment, episodes, request).items()}, ()
    except Exception as error:  # OpenGL, codecs and disks fail in their own ways; none may cost the evaluation
        return {}, (f"no video: {_why_not_drawn(error)}",)


def _why_not_drawn(error: Exception) -> str:
    words = " ".join(str(error).split())
    if isinstance(error, NotImplementedError):
        return "the environment has no render()"
    if isinstance(error, TypeError | UnknownName) and "render_mode" in words:
        return "the environment takes no render_mode"
    if isinstance(error, MissingExtra):
        return words
    return f"{type(error).__name__}: {words}" if words else f"{type(error).__name__} without a message"


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _plain(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {name: _known(value) for name, value in asdict(interval).items()}


def _ranges(seeds: tuple[int, ...]) -> str:
    tried = Counter(seeds)
    if len(seeds) > len(tried) and len({*tried.values()}) == 1:
        return f"{_ranges(tuple(tried))}, {tried[seeds[0]]} attempts at each"
    if len(seeds) > 2 and seeds == tuple(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds[:8])) + (f", ... ({len(seeds)})" if len(seeds) > 8 else "")
