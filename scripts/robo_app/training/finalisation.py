"""End of a training: evaluation of the policy on the recipe's seeds, films, report and printed results."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from robo_app.display.display import say
from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import cost_limits, judged_environment_of
from robo_app.training.extension import ENDED
from robo_app.training.initialisation import before_and_after
from robo_datasets.dataset import Dataset
from robo_datasets.figures import normalised
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.evaluation.video import VideoRequest, render_mode_for_films
from robo_rl.protocols.components import Policy, Training
from robo_rl.report import write_report
from robo_rl.report.annotating import annotation_warnings
from robo_rl.report.hacking import probe
from robo_rl.runs.callbacks import Callbacks
from robo_rl.runs.observer import RunRecord
from robo_rl.runs.run import NO_UPDATE, Run, write_text
from robo_rl.training.updates import has_learnt, learns_too_late

if TYPE_CHECKING:
    from robo_real.console.operator import Operator


def conclude(
    run: Run,
    recipe: Recipe[Any],
    policy: Policy,
    record: RunRecord,
    operator: Operator | None = None,
    callbacks: Callbacks | None = None,
) -> None:
    """Evaluate a policy on all seeds of the recipe, write evaluation.json and report.html, print the result."""
    run.describe(training_seconds=round(record.elapsed, 1), **{ENDED: {"step": record.step, "asked": recipe.total_steps}})
    count = recipe.evaluation.episodes
    say(f"trained in {record.elapsed:.0f} s; evaluating on {count} seed{'s' * (count != 1)}")
    run.announce(record.step, "final evaluation")
    first = recipe.evaluation.seed
    seeds = range(first, first + recipe.evaluation.episodes)
    try:
        evaluation = judge(run, recipe, policy, seeds, operator=operator)
    except KeyboardInterrupt:
        say(f"interrupted in the final evaluation, the training is saved; go on with: robo-rl resume {run.path}")
        raise
    write_text(run.path / "evaluation.json", json.dumps(evaluation.to_json()))
    if callbacks is not None:
        callbacks.on_evaluation(record.step, evaluation)
    lost = regret(run, recipe)
    if lost is not None:
        run.describe(regret=round(lost, 4))
        say(f"regret   {lost:.3f}, mean shortfall over the evaluations of the online phase")
    if (found := probe(run.metrics())) is not None:
        run.describe(hacking=asdict(found) | {"is_suspicious": found.is_suspicious})
        say(f"{'WARNING' if found.is_suspicious else 'reward'}  {found}")
    if none := run.description.get(NO_UPDATE):
        say(f"WARNING  {none}")
    report = write_report([run.path], run.path / "report.html")
    say(f"{evaluation}\nreport   {report}")
    if best := best_in_training(run, record.step):
        say(best)
    if recipe.evaluation.before:
        say(before_and_after(run, evaluation))
    newest = {tag: value for line in run.metrics() for tag, value in line.items()}
    for warning in annotation_warnings(newest):  # last, where it is read
        say(f"WARNING  {warning}")


def best_in_training(run: Run, last: int) -> str:
    """Return a line about the best policy in the evaluations during a training; "" if it is the last one, or unknown."""
    if run.best is None or run.best == last:
        return ""
    found = Evaluation.read(run.evaluation_files[run.best])
    figure = f"mean return {found.mean_return.estimate:.3g}"
    if found.success_rate is not None:
        figure = f"success {found.success_rate.estimate:.0%}"
    count = f"{len(found)} episode{'s' * (len(found) != 1)}"
    return f"best     step {run.best}: {figure} in {count} during training; robo-rl evaluate {run.path} --step best"


def judge(
    run: Run,
    recipe: Recipe[Any],
    policy: Policy,
    seeds: Sequence[int],
    name: str = "evaluation",
    operator: Operator | None = None,
    *,
    attempts: int = 1,
    on_incomplete: Callable[[Evaluation], object] | None = None,
) -> Evaluation:
    """Return the evaluation of a policy, and film it if the machine can render.

    Episodes that ended before an error or Ctrl-C are kept by `keep_incomplete`.

    name: beginning of the names of films. attempts: episodes at each seed. on_incomplete: called with those episodes, too.
    """
    with closing(judged_environment_of(recipe, operator)) as environment:  # the robot must hold, whatever is raised
        mode, videos = render_mode_for_films(environment), recipe.evaluation.videos
        limits = cost_limits(recipe, environment)

        def keep(evaluation: Evaluation) -> None:
            keep_incomplete(run, name, evaluation.with_limits(limits), on_incomplete)

        stage = partial(judged_environment_of, recipe, render_mode=mode)
        return evaluate(
            policy,
            environment,
            seeds=[seed for seed in seeds for _ in range(attempts)],
            deterministic=not recipe.evaluation.stochastic,
            training_seed=recipe.seed,
            on_incomplete=keep,
            video=VideoRequest(run.path / "videos", name, videos, stage=stage) if videos else None,
        ).with_limits(limits)


def keep_incomplete(
    run: Run, name: str, evaluation: Evaluation, on_incomplete: Callable[[Evaluation], object] | None = None
) -> None:
    """Write an evaluation that ended early to a new file RUN/evaluations/NAME-incomplete-N.json, and print its path on stderr.

    name: Name that the whole evaluation would have had. on_incomplete: Called with the evaluation once it is written.
    """
    folder = run.path / "evaluations"
    folder.mkdir(exist_ok=True)
    files = (folder / f"{name}-incomplete-{number}.json" for number in itertools.count(1))
    file = next(each for each in files if not each.exists())
    write_text(file, json.dumps(evaluation.to_json()))
    print(f"The evaluation {evaluation.early_end}\n  kept:    {file}", file=sys.stderr, flush=True)
    if on_incomplete is not None:
        on_incomplete(evaluation)


def note_updates(run: Run, recipe: Recipe[Any], training: Training) -> None:
    """Store a warning in run.json if a training made no update at all."""
    replay, name = getattr(recipe.learner, "replay", None), "learning_starts"
    key = f"replay.{name}" if hasattr(replay, name) else name
    late = learns_too_late(getattr(replay, name, getattr(recipe.learner, name, 0)), recipe.steps, key)
    found = has_learnt(training)
    none = ""
    if found is False or (found is None and late and not recipe.online.steps):
        none = late or f"no update was made in {training.step} of {recipe.total_steps} steps: the policy is as it was at first"
    if none or run.description.get(NO_UPDATE):
        run.describe(**{NO_UPDATE: none})


def regret(run: Run, recipe: Recipe[Any]) -> float | None:
    """Return the mean of 1 - success, or of 1 - normalised score / 100, over the evaluations of the online phase.

    It is the regret of Luo et al. 2024 ("D5RL") and of the CORL benchmark, in [0, 1] for success. None without an online phase
    or an evaluation in it, or if the environment has no success and the dataset's card no reference scores.
    """
    if not recipe.online.steps:
        return None
    later = [Evaluation.read(file) for step, file in run.evaluation_files.items() if step > recipe.steps]
    shortfalls = [_shortfall(evaluation, recipe) for evaluation in later]
    known = [value for value in shortfalls if value is not None]
    return fmean(known) if known else None


def _shortfall(evaluation: Evaluation, recipe: Recipe[Any]) -> float | None:
    if evaluation.success_rate is not None:
        return 1.0 - evaluation.success_rate.estimate
    reference = Dataset(Path(recipe.demonstrations.dataset)).card.get("reference", {})
    if not {"random", "expert"} <= set(reference):
        return None
    return 1.0 - normalised(evaluation.mean_return.estimate, reference) / 100.0
