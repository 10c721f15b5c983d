"""robo-rl sweep: search the settings of a recipe, with several seeds per trial; the same command resumes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import tyro

from robo_cli.cluster_training import trainings_at
from robo_cli.jobs import Begin, Crew, failure
from robo_cli.main import DIVERGED
from robo_cli.recipe import Learner, require_at_least
from robo_cli.sweep_folder import SweepFolder
from robo_cli.sweep_result import conclude_sweep, confirm, fresh_seeds, told
from robo_cli.sweep_search import Search, Trial, optuna_library
from robo_cli.sweep_space import Space, read_space
from robo_cli.sweep_stopping import Course, Stopping
from robo_cli.train import Train, parsed, resolved
from robo_cli.train_seeds import seeds_of
from robo_rl.errors import RoboRLError, require_allowed
from robo_rl.settings import plain

EXAMPLES = """robo-rl sweep arm-reach-sac --space space.yaml --trials 50 --dry-run     (check the space)
robo-rl sweep arm-reach-sac --space space.yaml --trials 50
robo-rl sweep arm-reach-sac --space space.yaml --trials 80 --confirm 5     (goes on; trains the best with 5 fresh seeds)
robo-rl sweep hopper-sac --space space.yaml --trials 30 --seeds 0-4 --steps 50000 --evaluation.every 5000"""
GIVEN_UP = 2
"""Failures of a training, each in a separate command, after which its trial counts as failed."""


@dataclass(frozen=True)
class SweepOrder(Train[Learner]):
    """Recipe, search space and budget. Options of the recipe apply to all trials."""

    space: Path = tyro.MISSING
    """YAML file that gives settings of the recipe ranges or choices (docs/sweeps.md)."""
    trials: int = tyro.MISSING
    """Number of trials; with a larger number the sweep continues."""
    seeds: str = "0-2"
    """Training seeds of every trial, such as 0-4."""
    risk: float = 0.05
    """Chance that stopping trials early stops the best of a step, over the whole sweep; 0 stops none."""
    grace: float = 0.3
    """Share of the steps in which no trial is stopped: a slow start may still win."""
    dry_run: bool = False
    """Print the search space, or its errors, and stop."""
    confirm: int = 0
    """Then train the best again, with this many unused seeds, and evaluate it in unused episodes."""

    COMMAND: ClassVar[str] = "sweep"
    EXAMPLES: ClassVar[str] = EXAMPLES

    def __post_init__(self) -> None:
        if self.trials is not tyro.MISSING:
            require_at_least(self, {"trials": 1, "confirm": 0, "jobs": 0})
        require_allowed(self, {name: (0.0 <= getattr(self, name) < 1.0, "0 or more, below 1") for name in ("risk", "grace")})


def main(arguments: list[str]) -> int:
    """Searches. The first argument names the recipe, the others override its values."""
    if not arguments or arguments[0].startswith("-"):
        print(f"usage: robo-rl sweep RECIPE --space FILE --trials N [--key value ...] [--out FOLDER]\n\n{EXAMPLES}")
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    order = parsed(SweepOrder, arguments[0], arguments[1:])
    optuna_library()
    recipe = resolved(order)
    space, seeds = read_space(order.space, recipe), seeds_of(order.seeds)
    if order.dry_run:
        print(f"{recipe.name}: {len(space.dimensions)} settings are searched, {order.trials} trials of {len(seeds)} seeds")
        print("\n".join(f"  {path}: {dimension}" for path, dimension in space.to_json().items()))
        return 0
    folder = SweepFolder(order.out / f"{recipe.name}-sweep", recipe.name, seeds, recipe.evaluation.every)
    with folder.held():
        asked = {
            "recipe": plain(recipe),
            "space": space.to_json(),
            "seeds": list(seeds),
            "risk": order.risk,
            "grace": order.grace,
        }
        folder.keep(asked)
        search = Search(folder.path / "journal.log", space, recipe.seed)
        rule = Stopping(order.risk, order.trials, len(seeds), recipe.total_steps, recipe.evaluation.every, order.grace)
        if rule.why_never:
            print(f"No trial is stopped early: {rule.why_never}.")
        sweep = Sweep(space, folder, search, rule)
        try:
            with trainings_at(order.ray, recipe.threads, order.jobs) as (begin, room):
                sweep.run(order.trials, room, begin)
        finally:  # finished trainings count, whatever else happened
            conclude_sweep(folder, search, rule, space)
        if order.confirm:
            confirm(folder, search, space, fresh_seeds(seeds, order.confirm), order.jobs, order.ray)
            conclude_sweep(folder, search, rule, space)
    return 0


class Sweep:
    """Running trials: starts trainings in free slots, stops trials that are behind, completes trained ones."""

    def __init__(self, space: Space, folder: SweepFolder, search: Search, rule: Stopping) -> None:
        self._space, self._folder, self._search, self._rule = space, folder, search, rule
        self._courses: dict[int, Course] = {}
        self._waiting: dict[int, list[int]] = {}
        """Seeds of the running trials that have not started yet."""
        self._training: dict[str, tuple[int, int]] = {}
        """Trial and seed by the name of the job."""
        self._failed: list[str] = []

    def run(self, trials: int, at_once: int, begin: Begin | None = None) -> None:
        """Run until that many trials have ended; raises RunError, after the running ones, if a training failed.

        begin: starts a training elsewhere than in a local process.
        """
        known = self._search.trials()
        left = trials - len(known)
        jobs = sum(len(self._folder.missing(each.number)) for each in known if each.state == "running")
        jobs += max(left, 0) * self._rule.seeds
        with Crew(f"sweep {self._space.recipe.name}", jobs, self._folder.path / "logs", at_once, begin) as self._crew:
            for each in known:
                self._courses[each.number] = self._folder.course(each.number)
                if each.state == "running":
                    self._take(each)
            self._say_best()
            while True:
                self._look()
                left = self._fill(left)
                if not self._waiting:
                    break
                for job, status in self._crew.ended():
                    self._end(*self._training.pop(job.name), status)
        if self._failed:
            raise failure(f"sweep {self._space.recipe.name}", self._failed, jobs, self._folder.path / "logs")

    def _fill(self, left: int) -> int:
        """Start trainings in free slots, the oldest trial first; return the number of trials left."""
        while self._crew.has_room:
            trial = next((trial for trial, seeds in self._waiting.items() if seeds and not self._has_failed(trial)), None)
            if trial is not None:
                seed = self._waiting[trial].pop(0)
                job = self._folder.training(trial, seed).job()
                self._training[job.name] = trial, seed
                self._crew.begin(job)
            elif left > 0 and not self._failed:
                self._take(self._search.ask())
                left -= 1
            else:
                break
        if self._failed and not self._crew.is_busy:
            self._waiting.clear()
        return left

    def _take(self, trial: Trial) -> None:
        """Start a trial; a combination of settings that the recipe refuses fails at once."""
        try:
            recipe = self._space.at(trial.values, self._folder.name_of(trial.number))
        except RoboRLError as error:
            self._stop(trial.number, f"refused: {' '.join(str(error).split())}", failed=True)
            self._crew.board.total -= self._rule.seeds
            return
        self._folder.write(trial.number, recipe)
        self._courses[trial.number] = self._folder.course(trial.number)
        self._waiting[trial.number] = self._folder.missing(trial.number)
        self._end_if_trained(trial.number)

    def _end(self, trial: int, seed: int, status: int) -> None:
        """Takes note of a training that has ended."""
        if trial not in self._waiting:
            return
        name = self._folder.training(trial, seed).title
        status = status or int(seed in self._folder.missing(trial))
        if status == DIVERGED:
            self._stop(trial, f"seed {seed} diverged: logs/{name}.log", failed=True)
        elif status and self._search.fail(trial) >= GIVEN_UP:
            self._stop(trial, f"seed {seed} failed again: logs/{name}.log", failed=True)
        elif status:
            self._failed.append(name)
        else:
            self._end_if_trained(trial)

    def _end_if_trained(self, trial: int) -> None:
        if self._folder.missing(trial):
            return
        value = float(np.mean([score.value for score in self._folder.final(trial).values()]))
        del self._waiting[trial]
        if np.isfinite(value):
            self._search.complete(trial, value)
            self._crew.board.say(f"trial {trial}: {value:.4g}")
            self._say_best()
        else:
            self._search.stop(trial, "its evaluation is not finite", failed=True)

    def _look(self) -> None:
        """Stops the trials that are behind the best."""
        for trial in [*self._waiting]:
            self._courses[trial] = self._folder.course(trial)
        for trial in [*self._waiting]:
            if (verdict := self._rule.verdict(trial, self._courses)) is not None:
                self._stop(trial, str(verdict), verdict.step, verdict.interval.estimate)

    def _stop(self, trial: int, why: str, step: int = 0, value: float | None = None, failed: bool = False) -> None:
        """Ends a trial and its trainings."""
        for name in [name for name, (number, _) in self._training.items() if number == trial]:
            self._crew.stop(name)
            del self._training[name]
            self._crew.board.total -= 1
        self._crew.board.total -= len(self._waiting.pop(trial, ()))
        self._search.stop(trial, why, step=step, value=value, failed=failed)
        self._crew.board.say(f"trial {trial} {'failed' if failed else 'stopped'}: {why}")

    def _has_failed(self, trial: int) -> bool:
        return any(name.startswith(f"t{trial:03}-") for name in self._failed)

    def _say_best(self) -> None:
        scored = [(each.value, each) for each in self._search.trials() if each.value is not None]
        if scored:
            value, best = max(scored, key=lambda each: each[0])
            self._crew.board.caption = f"best so far: trial {best.number}, {value:.4g}; {told(best.values)}"
