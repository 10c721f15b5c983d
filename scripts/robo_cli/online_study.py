"""A study without datasets: recipes that learn in their environments, with several seeds and rewards, compared by true returns.

A YAML file over the dataclasses below. Everything lies in one folder, and what is there already is not made again:

    OUT/programs/  what language models wrote          OUT/models/  reward models that were learned
    OUT/runs/      runs                                OUT/logs/    what all of these printed
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pydantic

from robo_cli.recipe import read_recipe
from robo_cli.selection import runs_of
from robo_cli.study_labels import STRICT, Model, is_made, require_as_made, reward_folders
from robo_cli.study_options import Settings, Words, options
from robo_cli.study_runs import differing
from robo_rl.errors import InvalidSetting, UnknownName, require_allowed
from robo_rl.evaluation import Evaluation
from robo_rl.plain_files import read_yaml
from robo_rl.runs import Run
from robo_rl.statistics import Interval, paired_comparison, stratified_bootstrap

EVALUATION = "evaluation.json"
Commands = Mapping[str, Words]
"""Name of a job -> its command."""
Found = Mapping[str, Mapping[int, Path]]
"""Method -> seed -> run that is finished."""


@dataclass(frozen=True)
class Program:
    """A latent reward that a language model writes before the trainings (`robo-rl reward latent`)."""

    __pydantic_config__ = STRICT
    environment: str
    llm: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class OnlineMethod:
    """A recipe that learns in its own environment."""

    __pydantic_config__ = STRICT
    recipe: str
    settings: Settings = field(default_factory=dict)
    program: str = ""
    """Of the study, which its reward reads."""
    model: str = ""
    """Of the study, which its reward reads, and the completion beside it."""


@dataclass(frozen=True)
class OnlineClaim:
    """An order of true returns that is expected, stated before it is measured."""

    __pydantic_config__ = STRICT
    better: str
    than: str
    by: str = "return"
    """Or "success", or what the environment measures of an episode: returns of two rewards mean two things."""
    fewer: bool = False
    """Whether less of it is better, as of infractions."""


@dataclass(frozen=True)
class OnlineStudy:
    """A table of methods in one environment."""

    __pydantic_config__ = STRICT
    name: str
    summary: str
    methods: dict[str, OnlineMethod]
    programs: dict[str, Program] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    """Reward models that are learned before the trainings."""
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Settings = field(default_factory=dict)
    """Of every training."""
    claims: tuple[OnlineClaim, ...] = ()

    def __post_init__(self) -> None:
        named: list[tuple[str, str, Mapping[str, object]]]
        named = [("program", method.program, self.programs) for method in self.methods.values() if method.program]
        named += [("model", method.model, self.models) for method in self.methods.values() if method.model]
        named += [("method", name, self.methods) for claim in self.claims for name in (claim.better, claim.than)]
        for kind, name, known in named:
            if name not in known:
                raise UnknownName(f"{kind} of the study {self.name}", name, known)
        require_allowed(self, {"seeds": (len(set(self.seeds)) == len(self.seeds) >= 1, "one or more, all different")})

    def trainings(self) -> Iterator[tuple[str, int]]:
        """Yields (method, seed), one seed of everything before the next, so that a table grows evenly."""
        return ((method, seed) for seed in self.seeds for method in self.methods)

    def words(self, method: str, seed: int, out: Path) -> Words:
        """Returns how a method is trained."""
        chosen = self.methods[method]
        settings = self.settings | chosen.settings
        settings |= reward_folders(chosen.model, chosen.recipe, settings, out)
        if "seed" in read_recipe(chosen.recipe).reward.settings:  # what the reward learns begins anew with each seed, too
            settings["reward.settings.seed"] = seed
        if chosen.program:
            settings["reward.settings.path"] = str(program_file(chosen.program, out))
        return [chosen.recipe, "--seed", str(seed), *options(settings), "--name", method]

    def run_of(self, method: str, seed: int, out: Path) -> Path | None:
        """Returns the newest run of a training with these settings."""
        words = self.words(method, seed, out)
        return next((run for run in runs_of(method, seed, out / "runs") if not differing(run, words)), None)


def read_online_study(path: Path) -> OnlineStudy:
    """Returns the study of a YAML file; raises InvalidSetting."""
    try:
        return pydantic.TypeAdapter(OnlineStudy).validate_python({"name": path.stem, **read_yaml(path)})
    except (pydantic.ValidationError, TypeError) as error:
        raise InvalidSetting(f"{path} is not a study.", got=error, fix="docs/return-decomposition.md shows one") from None


def program_file(name: str, out: Path) -> Path:
    """Returns where a program of a study lies."""
    return out / "programs" / f"{name}.py"


def programs(study: OnlineStudy, out: Path) -> Commands:
    """Returns the programs that have to be written."""
    files = {name: program_file(name, out) for name in study.programs}
    return {name: _writing(study.programs[name], path) for name, path in files.items() if not path.exists()}


def models(study: OnlineStudy, out: Path) -> Commands:
    """Returns the reward models that have to be learned."""
    folders = {name: out / "models" / name for name in study.models}
    for name, folder in folders.items():
        require_as_made(folder.with_suffix(".json"), study.models[name])
    return {name: study.models[name].command(folder) for name, folder in folders.items() if not is_made(folder)}


def trainings(study: OnlineStudy, out: Path) -> Commands:
    """Returns the trainings that have to be begun, or resumed."""
    commands: dict[str, Words] = {}
    for method, seed in study.trainings():
        run = study.run_of(method, seed, out)
        if run is None:
            commands[f"{method}-{seed}"] = ["train", *study.words(method, seed, out), "--out", str(out / "runs")]
        elif not (run / EVALUATION).exists():
            commands[f"{method}-{seed}"] = ["resume", str(run)]
    return commands


STAGES: Sequence[Callable[[OnlineStudy, Path], Commands]] = (programs, models, trainings)


def finished(study: OnlineStudy, out: Path) -> Found:
    """Returns the runs that have their final evaluation."""
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for method, seed in study.trainings():
        run = study.run_of(method, seed, out)
        if run is not None and (run / EVALUATION).exists():
            found[method][seed] = run
    return found


def online_table(study: OnlineStudy, found: Found) -> dict[str, Any]:
    """Returns what the finished runs achieved, as plain values, and whether what was expected holds."""
    evaluations = {method: {seed: _evaluation(run) for seed, run in runs.items()} for method, runs in found.items()}
    rows = {
        method: {
            "seeds": sorted(runs),
            "returns": [float(np.mean(evaluations[method][seed].returns)) for seed in sorted(runs)],
            "success": [_success(evaluations[method][seed]) for seed in sorted(runs)],
            "while learning": [_while_learning(runs[seed]) for seed in sorted(runs)],
            "measures": _measured(evaluations[method].values()),
            "mean": _interval([evaluations[method][seed].returns for seed in sorted(runs)]),
        }
        for method, runs in found.items()
    }
    claims = [_verdict(claim, evaluations) for claim in study.claims if {claim.better, claim.than} <= evaluations.keys()]
    return {"study": study.name, "methods": rows, "claims": claims}


def online_markdown(facts: Mapping[str, Any]) -> str:
    """Returns the table for a page."""
    lines = [
        "| method | return | of each seed | success of each seed | mean of the evaluations while learning |",
        "|---|---|---|---|---|",
    ]
    for method, row in facts["methods"].items():
        mean, low, high = row["mean"]
        ends = "" if low is None else f" [{low:.4g}, {high:.4g}]"
        each = [
            ", ".join("" if value is None else f"{value:.4g}" for value in row[key]) for key in ("returns", "while learning")
        ]
        successes = ", ".join("" if rate is None else f"{rate:.0%}" for rate in row["success"])
        lines.append(f"| {method} | {mean:.4g}{ends} | {each[0]} | {successes} | {each[1]} |")
    lines += _measure_rows(facts)
    lines += ["", "| expected | difference | holds |", "|---|---|---|"]
    for claim in facts["claims"]:
        difference, low, high = claim["difference"]
        lines.append(f"| {_words(claim)} | {difference:+.4g} [{low:+.4g}, {high:+.4g}] | {claim['holds']} |")
    return "\n".join(lines) + "\n"


def _words(claim: Mapping[str, Any]) -> str:
    by, fewer = claim.get("by", "return"), claim.get("fewer", False)
    return f"{claim['better']} {'<' if fewer else '>'} {claim['than']}" + ("" if by == "return" else f", {by}")


def _measure_rows(facts: Mapping[str, Any]) -> list[str]:
    """Returns a table of what environments measure, over all episodes of all seeds; nothing where none does."""
    told = {method: row["measures"] for method, row in facts["methods"].items() if row.get("measures")}
    names = list(dict.fromkeys(name for measures in told.values() for name in measures))
    if not names:
        return []
    lines = ["", "| method | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for method, measures in told.items():
        cells = (measures.get(name) for name in names)
        lines.append(f"| {method} | " + " | ".join("" if cell is None else _ends(cell) for cell in cells) + " |")
    return lines


def _ends(cell: Sequence[float | None]) -> str:
    value, low, high = cell
    return "" if value is None else f"{value:.3g}" + ("" if low is None else f" [{low:.3g}, {high:.3g}]")


def _measured(evaluations: Iterable[Evaluation]) -> dict[str, list[float | None]]:
    """Returns figure and interval of each measure that all evaluations tell, over all of their episodes."""
    found = list(evaluations)
    told = {name: [value for each in found for value in each.measured.get(name, ())] for name in found[0].measured}
    intervals = {measure.name: measure.interval(told) for measure in found[0].measures}
    return {name: _plain(interval) for name, interval in intervals.items()}


def _plain(interval: Interval) -> list[float | None]:
    ends = (interval.estimate, interval.low, interval.high)
    return [float(value) if np.isfinite(value) else None for value in ends]


def _writing(program: Program, path: Path) -> Words:
    words = ["reward", "latent", program.environment, "--llm", program.llm, "--out", str(path)]
    return [*words, *options(program.settings)]


def _evaluation(run: Path) -> Evaluation:
    return Evaluation.read(run / EVALUATION)


def _joined(values: Sequence[float | None], number: str) -> str:
    return ", ".join("" if value is None else f"{value:{number}}" for value in values)


def _success(evaluation: Evaluation) -> float | None:
    return None if evaluation.success_rate is None else evaluation.success_rate.estimate


def _while_learning(run: Path) -> float | None:
    """Returns the mean true return over all evaluations of a training; None where there were none."""
    lines = [json.loads(line) for line in (Run(run).path / "metrics.jsonl").read_text().splitlines()]
    returns = [line["eval/mean_reward"] for line in lines if "eval/mean_reward" in line]
    return float(np.mean(returns)) if returns else None


def _interval(returns: Sequence[Sequence[float]]) -> list[float | None]:
    """Returns the mean and the ends of its interval, which are None where all returns are the same."""
    return _plain(stratified_bootstrap(returns, np.mean))


def _verdict(claim: OnlineClaim, evaluations: Mapping[str, Mapping[int, Evaluation]]) -> dict[str, Any]:
    """Says yes or no where the interval does."""
    sides = (claim.better, claim.than) if claim.fewer else (claim.than, claim.better)
    worse, better = ([each.outcomes(claim.by) for _, each in sorted(evaluations[name].items())] for name in sides)
    interval = paired_comparison(np.array(worse), np.array(better)).mean_difference
    holds = "yes" if interval.low > 0 else "no" if interval.high < 0 else "undecided"
    difference = (float(interval.estimate), float(interval.low), float(interval.high))
    told = {"better": claim.better, "than": claim.than, "by": claim.by, "fewer": claim.fewer}
    return told | {"difference": difference, "holds": holds}
