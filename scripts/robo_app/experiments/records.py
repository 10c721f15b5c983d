"""Record of a finished training: final evaluation, curve and circumstances, in a few hundred bytes instead of a run folder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.experiments.study import Cell
from robo_app.jobs.trainings import EVALUATION
from robo_datasets.figures import normalised
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.evaluation.measures import Measure
from robo_rl.runs.run import Run
from robo_rl.system.plain_files import read_yaml

DIGITS = 6
"""Significant digits of the values in a record."""
Json = dict[str, Any]
Figures = Mapping[str, float | Sequence[float] | None]
"""Name -> value, or one value for each episode."""


@dataclass(frozen=True)
class CurvePoints:
    """Evaluations during a training; the tuples have one element per evaluation."""

    environment: str = ""
    steps: tuple[int, ...] = ()
    returns: tuple[float, ...] = ()
    """Mean undiscounted return in the environment's own reward, one value for each evaluation."""
    successes: tuple[float, ...] = ()
    """Success rate; empty if the environment declares no success."""
    human_seconds: tuple[float, ...] = ()
    """[s] Time for which a person was busy until each evaluation; empty without a person."""


@dataclass(frozen=True)
class Circumstances:
    """Program and machine of a training; a value is empty if it is not known."""

    commit: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Package -> version."""
    python: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """System, processor and number of cores."""
    threads: int = 0
    """Threads of the training; 0 if not known."""


@dataclass(frozen=True)
class Record:
    """One finished training, or one result of a study that trains by itself."""

    method: str
    on: str
    """Name of the dataset or task that the method was trained on; "" if the study has neither."""
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Dotted path -> value, with every default; empty if not known."""
    content: Mapping[str, str] = field(default_factory=dict)
    """Digests of the dataset, and of its labels."""
    circumstances: Circumstances = field(default_factory=Circumstances)
    started: str = ""
    """Date and time, ISO 8601; "" if not known."""
    run: str = ""
    """Name of the run folder."""
    seconds: float | None = None
    """[s] Duration of the training."""
    final: Evaluation | None = None
    """Evaluation at the end, without films; None for a result that has only `figures`."""
    curve: CurvePoints = field(default_factory=CurvePoints)
    figures: Figures = field(default_factory=dict)
    """Results of a study that evaluates by itself, and facts of a run: regret, offline_steps, control_period,
    demonstrated_seconds."""

    @property
    def cell(self) -> Cell:
        """The training's place in the table: method, dataset or task, and seed."""
        return self.method, self.on, self.seed

    @property
    def evaluation(self) -> Evaluation:
        """The final evaluation of the training."""
        assert self.final is not None, "a result of a study that evaluates by itself"
        return self.final

    def outcomes(self, by: str) -> Sequence[float]:
        """Return an outcome by name ("return", "success", measure or figure), one or one per episode; raises UnknownName."""
        if by in self.figures:
            value = self.figures[by]
            values: Any = value if isinstance(value, Sequence) else [value]
        else:
            values = self.evaluation.outcomes(by)
        return [math.nan if value is None else float(value) for value in values]

    def counts(self, settings: Mapping[str, Any], content: Mapping[str, str]) -> bool:
        """Return whether the record is of a training with these settings and data.

        Args:
            settings: Dotted path -> value. A setting that only one side has is ignored: another version added or removed it.
            content: Digests of the data; empty if the data are missing and cannot be compared.
        """
        shared = self.settings.keys() & settings.keys()
        is_same = bool(shared) and all(self.settings[name] == settings[name] for name in shared)
        return is_same and all(self.content.get(name) == value for name, value in content.items())


def record_of(run: Path, cell: Cell, settings: Mapping[str, Any], content: Mapping[str, str] | None = None) -> Record:
    """Return the record of a run folder; its final evaluation must be there."""
    method, on, seed = cell
    opened, facts = Run(run), Run(run).description
    recipe = read_yaml(run / "recipe.yaml")
    circumstances = Circumstances(
        commit=facts.get("commit") or "",
        packages={name: version for name, version in facts.get("packages", {}).items() if version},
        python=facts.get("python", ""),
        machine=facts.get("machine", {}),
        threads=int(recipe.get("threads") or 0),
    )
    figures = {name: float(facts[name]) for name in ("regret", "demonstrated_seconds") if facts.get(name) is not None}
    if "regret" in figures:
        figures["offline_steps"] = recipe["steps"]
    period = opened.spec.action.control_period
    return Record(
        method=method,
        on=on,
        seed=seed,
        settings=settings,
        content=content or {},
        circumstances=circumstances,
        started=facts.get("started", "")[:19],
        run=run.name,
        seconds=facts.get("training_seconds"),
        final=Evaluation.read(run / EVALUATION),
        curve=_curve_of(opened, demonstrated=figures.get("demonstrated_seconds")),
        figures=figures | ({} if period is None else {"control_period": period}),
    )


def scores(returns: Sequence[float], reference: Mapping[str, Any]) -> list[float]:
    """Return normalised returns; unchanged ones without a reference."""
    return [normalised(value, reference) for value in returns] if reference else [*returns]


def busy_until(run: Run, demonstrated: float, steps: Iterable[int]) -> Iterator[float]:
    """Yield how long [s] a person was busy until each step; corrections are counted at the end of a training episode."""
    corrections = [(line["step"], line["human/seconds"]) for line in run.metrics() if "human/seconds" in line]
    for step in steps:
        until = [seconds for at, seconds in corrections if at <= step]
        yield demonstrated + (until[-1] if until else 0.0)


# as JSON


def to_json(record: Record) -> Json:
    """Return a record as JSON values, without settings and circumstances.

    Several records share these, so they are stored apart.
    """
    found: Json = {"method": record.method, "on": record.on, "seed": record.seed, "run": record.run}
    found |= {"started": record.started, "seconds": record.seconds, "content": dict(record.content)}
    found["figures"] = {name: _rounded(value) for name, value in record.figures.items()}
    found["curve"] = {each.name: _rounded(getattr(record.curve, each.name)) for each in fields(CurvePoints)}
    found["curve"] = {name: value for name, value in found["curve"].items() if value}
    found["final"] = None if record.final is None else _packed(record.final)
    return {name: value for name, value in found.items() if value not in ("", None, {})}


def from_json(
    data: Mapping[str, Any],
    settings: Mapping[str, Any],
    circumstances: Circumstances,
    measures: Mapping[str, Mapping[str, Measure]],
) -> Record:
    """Return the record of `to_json`'s values. measures: by environment and name."""
    known = {name: data[name] for name in ("run", "started", "seconds", "content", "figures") if name in data}
    curve: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data.get("curve", {}).items()
    }
    return Record(
        method=data["method"],
        on=data.get("on", ""),
        seed=data["seed"],
        settings=settings,
        circumstances=circumstances,
        final=_unpacked(data["final"], measures, data["seed"]) if "final" in data else None,
        curve=CurvePoints(**curve),
        **known,
    )


def _packed(evaluation: Evaluation) -> Json:
    """Return an evaluation without films and commands; runs of equal values are counted."""
    return {
        "environment": evaluation.environment,
        "spec": evaluation.spec_fingerprint,
        "seeds": [[seed, count] for seed, count in _ranges(evaluation.seeds)],
        "returns": _rounded(evaluation.returns),
        "lengths": _counted(evaluation.lengths),
        "successes": _counted(evaluation.successes),
        "stop_reasons": _counted(evaluation.stop_reasons),
        "deterministic": evaluation.deterministic,
        "duration": _rounded(evaluation.duration),
        "measured": {name: _rounded(values) for name, values in evaluation.measured.items()},
    }


def _unpacked(data: Mapping[str, Any], measures: Mapping[str, Mapping[str, Measure]], training_seed: int) -> Evaluation:
    measured = {name: tuple(math.nan if v is None else v for v in values) for name, values in data.get("measured", {}).items()}
    return Evaluation(
        environment=data["environment"],
        spec_fingerprint=data["spec"],
        success_rule=None,
        seeds=tuple(first + more for first, count in data["seeds"] for more in range(count)),
        returns=tuple(data["returns"]),
        lengths=_expanded(data["lengths"]),
        successes=_expanded(data["successes"]),
        stop_reasons=_expanded(data["stop_reasons"]),
        deterministic=data["deterministic"],
        duration=data["duration"],
        training_seed=training_seed,
        measures=tuple(measures[data["environment"]][name] for name in measured),
        measured=measured,
    )


def _curve_of(run: Run, demonstrated: float | None) -> CurvePoints:
    """Return the evaluations during the training of a run."""
    found = {step: Evaluation.read(file) for step, file in run.evaluation_files.items()}
    if not found:
        return CurvePoints()
    declared = all(success is not None for each in found.values() for success in each.successes)
    return CurvePoints(
        next(iter(found.values())).environment,
        tuple(found),
        tuple(float(np.mean(each.returns)) for each in found.values()),
        tuple(float(np.mean(np.asarray(each.successes, float))) for each in found.values()) if declared else (),
        () if demonstrated is None else tuple(busy_until(run, demonstrated, found)),
    )


def _rounded(value: Any) -> Any:
    """Return a value or sequence with `DIGITS` significant digits; a value that is not finite becomes None."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(each) for each in value]
    if not isinstance(value, float):
        return value
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _counted(values: Sequence[Any]) -> list[list[Any]]:
    return [[value, len([*group])] for value, group in groupby(values)]


def _expanded(counted: Sequence[tuple[Any, int]]) -> tuple[Any, ...]:
    return tuple(value for value, count in counted for _ in range(count))


def _ranges(seeds: Sequence[int]) -> list[tuple[int, int]]:
    """Return (first, count) of the stretches of consecutive seeds."""
    starts = [at for at, seed in enumerate(seeds) if at == 0 or seed != seeds[at - 1] + 1]
    return [(seeds[at], end - at) for at, end in zip(starts, [*starts[1:], len(seeds)], strict=True)]
