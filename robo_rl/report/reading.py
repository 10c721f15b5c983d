"""Read a run folder for its report, even of an unfinished run.

Missing or damaged files give warnings; only the recipe is required.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from robo_rl.errors import RoboRLError, RunError, RunNotFound
from robo_rl.evaluation.evaluation import Evaluation
from robo_rl.report.annotating import annotation_warnings
from robo_rl.report.hacking import probe
from robo_rl.runs.best_policy import best_step
from robo_rl.runs.run import NO_UPDATE, Run
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.plain_files import read_yaml

ACTIVITIES = {
    "time/env_s": "simulation and actions",  # of runs before 0.2
    "time/collect_s": "simulation and actions",  # Stable-Baselines3 does not separate them
    "time/simulate_s": "simulation",
    "time/infer_s": "choosing actions",
    "time/update_s": "learner updates",
    "time/score_s": "reward model",
    "time/render_s": "rendering",
    "time/log_s": "logging",
    "time/evaluation_s": "evaluations",
    "time/checkpoint_s": "checkpoints",
    "time/other_s": "everything else",
}
OTHER = ACTIVITIES["time/other_s"]


@dataclass(frozen=True)
class RecordedRun:
    """Contents of a run folder, read for the report: recipe, facts, metrics and evaluations."""

    path: Path
    recipe_text: str
    recipe: dict[str, Any]
    facts: dict[str, Any]
    """Contents of run.json."""
    spec: EnvironmentSpec | None
    metrics: list[dict[str, Any]]
    evaluations: list[tuple[int, Evaluation]]
    """(step, evaluation) during training, in order"""
    final: Evaluation | None
    elsewhere: dict[str, Evaluation] = field(default_factory=dict)
    """Name -> evaluation of the finished policy apart from its training, such as in another environment."""
    warnings: list[str] = field(default_factory=list)
    label: str = ""
    """Short name, unique within a report."""

    @property
    def name(self) -> str:
        """Name of the recipe."""
        return str(self.recipe.get("name", self.path.name))

    @property
    def group(self) -> str:
        """The recipe without its seed, as JSON: equal for runs that differ only in their training seed."""
        return json.dumps({key: value for key, value in self.recipe.items() if key != "seed"}, sort_keys=True, default=str)

    @property
    def seed(self) -> int | None:
        """Training seed."""
        return self.facts.get("seed", self.recipe.get("seed"))

    @property
    def environment(self) -> str:
        """Name of the environment."""
        return self.spec.name if self.spec else "unknown environment"

    @cached_property
    def newest(self) -> dict[str, Any]:
        """Newest logged value of each tag."""
        merged: dict[str, Any] = {}
        for line in self.metrics:
            merged |= line
        return merged

    @property
    def steps(self) -> int:
        """Number of environment steps, according to the log."""
        return int(self.newest.get("step", 0))

    @property
    def seconds(self) -> float:
        """[s] Duration of the training."""
        return float(self.newest.get("time", 0.0))

    @cached_property
    def time_split(self) -> dict[str, float]:
        """[s] time for each activity, the rest under OTHER; the values add up to the run's duration."""
        split = {text: float(self.newest[tag]) for tag, text in ACTIVITIES.items() if tag in self.newest}
        rest = self.seconds - sum(split.values())
        return split | ({OTHER: split.get(OTHER, 0.0) + rest} if split and rest > 0 else {})

    @property
    def best(self) -> tuple[int, Evaluation] | None:
        """(step, evaluation) of the best policy in the evaluations during training; None if the run did not keep it."""
        step = best_step(self.path)
        return next(((at, found) for at, found in self.evaluations if at == step), None)

    @property
    def judged(self) -> list[tuple[str, Evaluation]]:
        """The final evaluation and those in `elsewhere`, each with a short name."""
        final = [] if self.final is None else [(self.label, self.final)]
        return final + [(f"{self.label}, {name}", evaluation) for name, evaluation in self.elsewhere.items()]

    @property
    def curve(self) -> list[tuple[int, Evaluation]]:
        """(step, evaluation) in order; the last step has only the final evaluation, which has more episodes."""
        if self.final is None:
            return self.evaluations
        return [(step, evaluation) for step, evaluation in self.evaluations if step < self.steps] + [(self.steps, self.final)]


class RunFiles:
    """The files of a run folder; each is parsed again only after a change, so that a running training can be read often."""

    def __init__(self, path: Path, metrics: Callable[[], list[dict[str, Any]]] | None = None) -> None:
        """metrics: reads metrics.jsonl; by default the whole file is read."""
        self.path = path
        self._metrics = metrics or Run(path).metrics
        self._parsed: dict[str, tuple[tuple[int, ...], Any, str]] = {}

    def recorded(self, *, is_over: bool = True) -> RecordedRun:
        """Read the present contents of the folder; is_over: warn of missing parts, because the run has ended.

        Raises RunNotFound, or RunError or InvalidSetting for a bad recipe.
        """
        path, run = self.path, Run(self.path)
        if not (path / "recipe.yaml").is_file():
            raise RunNotFound(f"{path} is not a run folder.", got=path, allowed="a folder that holds recipe.yaml")
        warnings = list[str]()

        def attempt(file: str, read: Callable[[], Any], otherwise: Any) -> Any:
            value, warning = self._attempt(file, read, otherwise)
            warnings.extend([warning] if warning else [])
            return value

        recipe = read_yaml(path / "recipe.yaml")  # without it nothing on the page would be known to be true
        if not isinstance(recipe, dict):
            raise RunError(f"{path / 'recipe.yaml'} is damaged.", got=type(recipe).__name__, fix="take it from a copy")
        recipe_text = (path / "recipe.yaml").read_text()
        facts = attempt("run.json", lambda: dict(run.description), {})
        spec = attempt("spec.json", lambda: run.spec, None)
        metrics = attempt("metrics.jsonl", lambda: [dict(line) for line in self._metrics() if line], [])
        files = sorted((path / "evaluations").glob("*.json"))
        found = [(file, attempt(f"evaluations/{file.name}", _reader(file), None)) for file in files]
        evaluations = [(int(file.stem), evaluation) for file, evaluation in found if evaluation and file.stem.isdigit()]
        elsewhere = {file.stem: evaluation for file, evaluation in found if evaluation and not file.stem.isdigit()}
        final = attempt("evaluation.json", _reader(path / "evaluation.json"), None)
        recorded = RecordedRun(path, recipe_text, recipe, facts, spec, metrics, evaluations, final, elsewhere)
        return replace(recorded, warnings=warnings + _warnings(recorded, is_over=is_over))

    def _attempt(self, file: str, read: Callable[[], Any], otherwise: Any) -> tuple[Any, str]:
        """Return the contents of a file, or `otherwise`, and a warning."""
        try:
            now = (self.path / file).stat()
        except OSError:
            return otherwise, ""
        version = (now.st_ino, now.st_size, now.st_mtime_ns)
        if file not in self._parsed or self._parsed[file][0] != version:
            self._parsed[file] = version, *_tried(file, read, otherwise)
        return self._parsed[file][1:]


def read_runs(paths: Sequence[Path]) -> list[RecordedRun]:
    """Return the runs with unique labels; raises RunNotFound, or RunError or InvalidSetting for a bad recipe."""
    return labelled([RunFiles(Path(path)).recorded() for path in paths])


def labelled(runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Give each run a label that is unique among the runs, and return them."""
    names = {run.group: run.name for run in runs}
    one_name = len(set(names.values())) == 1
    labels = [f"seed {run.seed}" if one_name else f"{run.name}, seed {run.seed}" for run in runs]
    repeated = {label for label, count in Counter(labels).items() if count > 1}
    return [
        replace(run, label=run.path.name if label in repeated or len(names) > len(set(names.values())) else label)
        for run, label in zip(runs, labels, strict=True)
    ]


def _tried(file: str, read: Callable[[], Any], otherwise: Any) -> tuple[Any, str]:
    try:
        return read(), ""
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        OSError,
        RecursionError,
        RoboRLError,
    ) as error:
        kind = "" if isinstance(error, RoboRLError) else f"{type(error).__name__}: "
        return otherwise, f"{file} cannot be read: {kind}{' '.join(str(error).split())}"


def _reader(file: Path) -> Callable[[], Evaluation]:
    return lambda: Evaluation.read(file)


def _warnings(run: RecordedRun, *, is_over: bool) -> list[str]:
    warnings = list[str]()
    for resume in run.facts.get("resumes") or []:
        if resume.get("kind") != "exact":
            warnings.append(
                f"Resumed warm at step {resume.get('step', '?')}: the running episode was cut, so that this run is not "
                "bit for bit the one that was never interrupted."
            )
    if is_over and not run.metrics:
        warnings.append("No metrics were logged.")
    if none := run.facts.get(NO_UPDATE):
        warnings.append(f"{none[:1].upper()}{none[1:]}.")
    if (found := probe(run.metrics)) is not None and found.is_suspicious:
        warnings.append(str(found))
    warnings += annotation_warnings(run.newest)
    if run.final is None and not is_over:
        return warnings
    if run.final is None:
        warnings.append("There is no final evaluation: the run is unfinished, or was stopped.")
    else:
        warnings += [f"{note[:1].upper()}{note[1:]}" for note in run.final.notes]
        if run.final.commands is not None and (changed := run.final.commands.warning):
            warnings.append(f"{changed[:1].upper()}{changed[1:]}.")
        if run.final.diverged:
            warnings.append(f"The simulation diverged in {run.final.diverged} of {len(run.final)} evaluation episodes.")
    return warnings
