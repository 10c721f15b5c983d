"""Run all trials of a sweep: start their trainings, stop hopeless ones early, and store the results."""

from __future__ import annotations

import numpy as np

from robo_app.jobs.exit_status import DIVERGED
from robo_app.jobs.jobs import Begin, Crew, failure
from robo_app.sweeps.folder import SweepFolder
from robo_app.sweeps.result import format_values
from robo_app.sweeps.search import Search, Trial
from robo_app.sweeps.space import Space
from robo_app.sweeps.stopping import Course, Stopping
from robo_rl.errors import RoboRLError

GIVEN_UP = 2
"""Number of failures of a trial's trainings, counted over repeated commands, after which the trial counts as failed."""


class Sweep:
    """Runs the trials: starts trainings in free slots, stops trials that are behind, and ends those that are trained."""

    def __init__(self, space: Space, folder: SweepFolder, search: Search, rule: Stopping) -> None:
        self._space, self._folder, self._search, self._rule = space, folder, search, rule
        self._courses: dict[int, Course] = {}
        self._waiting: dict[int, list[int]] = {}
        """Running trial -> seeds whose training has not begun yet."""
        self._training: dict[str, tuple[int, int]] = {}
        """Name of a running job -> its trial and seed."""
        self._failed: list[str] = []

    def run(self, trials: int, at_once: int, begin: Begin | None = None) -> None:
        """Run until the sweep has `trials` ended trials.

        Args:
            trials: Number of trials, earlier ones included.
            at_once: Largest number of concurrent trainings.
            begin: Starts a training, such as on a cluster; None for a process on this machine.

        Raises:
            RunError: A training failed; raised after the running ones have ended.
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
                    if job.name in self._training:  # else another seed has just stopped its trial
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
        """Store the end of a training with its exit status, and end its trial if all seeds are trained."""
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
        """Stop the trials that are behind the best."""
        for trial in [*self._waiting]:
            self._courses[trial] = self._folder.course(trial)
        for trial in [*self._waiting]:
            if (verdict := self._rule.verdict(trial, self._courses)) is not None:
                self._stop(trial, str(verdict), verdict.step, verdict.interval.estimate)

    def _stop(self, trial: int, why: str, step: int = 0, value: float | None = None, failed: bool = False) -> None:
        """End a trial and its trainings."""
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
            self._crew.board.caption = f"best so far: trial {best.number}, {value:.4g}; {format_values(best.values)}"
