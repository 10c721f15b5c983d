"""Search by Optuna: it suggests the settings of trials, stores their results, and computes the importance of settings.

Everything is stored in Optuna's journal in the folder of the sweep, which other programs for Optuna can read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robo_app.sweeps.space import Choices, Space
from robo_rl.errors import MissingExtra

STUDY = "sweep"
FEWEST = 4
"""Smallest number of complete trials for which the importance of settings is computed."""


@dataclass(frozen=True)
class Trial:
    """One trial: values of the searched settings, and its result."""

    number: int
    values: Mapping[str, Any]
    """Path of a setting -> value."""
    state: str
    """"running", "complete", "stopped" or "failed"."""
    value: float | None = None
    """Objective of a complete trial; None for others."""
    why: str = ""
    """Reason why the trial was stopped or failed; "" for others."""


def optuna_library() -> Any:
    """Return the module optuna; raises MissingExtra if it is not installed."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise MissingExtra("robo-rl sweep", error.name or "optuna", "sweep") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Search:
    """Study of Optuna. Seed and results determine the suggestions, also after a kill."""

    def __init__(self, journal: Path, space: Space, seed: int) -> None:
        """Open the journal, or begin one. Lock the folder of the sweep first: the journal itself is not locked."""
        self._optuna = optuna_library()
        self._states = self._optuna.trial.TrialState
        self._space, self._seed = space, seed
        _cut_torn_line(journal)
        journals = self._optuna.storages.journal
        storage = self._optuna.storages.JournalStorage(journals.JournalFileBackend(str(journal), lock_obj=_Unlocked()))
        self._study = self._optuna.create_study(storage=storage, study_name=STUDY, direction="maximize", load_if_exists=True)
        for trial in self._study.get_trials(states=[self._states.RUNNING]):
            if trial.params.keys() != space.dimensions.keys():  # killed while it was suggested: nothing was trained
                self._study.tell(trial.number, state=self._states.FAIL)

    def trials(self) -> list[Trial]:
        """Return all trials in the order of their numbers."""
        return [self._trial(number, each) for number, each in enumerate(self._kept())]

    def ask(self) -> Trial:
        """Suggest a new trial: random ones first, then by TPE (Bergstra et al. 2011), which counts running trials as bad."""
        number = len(self._kept())
        chance = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])  # a kill repeats no draw
        self._study.sampler = self._optuna.samplers.TPESampler(seed=chance, constant_liar=True)
        self._study.ask({path: self._distribution(path) for path in self._space.dimensions})
        return self._trial(number, self._kept()[number])

    def complete(self, number: int, value: float) -> None:
        """Store the objective of a trial that was trained to its end."""
        self._study.tell(self._kept()[number].number, value)

    def stop(self, number: int, why: str, *, step: int = 0, value: float | None = None, failed: bool = False) -> None:
        """Store that a trial was ended early.

        Args:
            number: The trial.
            why: Reason, for the table.
            step: Step of its last score.
            value: Its score at this step; None counts as the worst.
            failed: True if it failed, False if it was stopped by the rule.
        """
        trial = self._handle(number)
        trial.set_user_attr("why", why)
        trial.set_user_attr("failed", failed)
        if value is not None:
            trial.report(value, step)
        self._study.tell(trial.number, state=self._states.PRUNED)

    def fail(self, number: int) -> int:
        """Store that a training of a trial failed, perhaps for an outside reason; returns the number of failures."""
        trial = self._handle(number)
        times = int(trial.user_attrs.get("failures", 0)) + 1
        trial.set_user_attr("failures", times)
        return times

    def importance(self) -> dict[str, float]:
        """Return path of a setting -> its importance, 0 to 1 (PED-ANOVA over complete trials); empty if there are too few."""
        complete = [each for each in self.trials() if each.value is not None]
        if len(complete) < FEWEST or len({each.value for each in complete}) == 1:
            return {}
        importance = self._optuna.importance
        found = importance.get_param_importances(self._study, evaluator=importance.PedAnovaImportanceEvaluator())
        return {path: float(share) for path, share in found.items()}

    def _handle(self, number: int) -> Any:
        # a trial that was under way when the process ended has no other way to be written to
        return self._optuna.trial.Trial(self._study, self._kept()[number]._trial_id)

    def _kept(self) -> list[Any]:
        """Return Optuna's trials without incomplete suggestions; the index of a trial in this list is its number."""
        return [each for each in self._study.get_trials(deepcopy=False) if each.state != self._states.FAIL]

    def _distribution(self, path: str) -> Any:
        found, kinds = self._space.dimensions[path], self._optuna.distributions
        if isinstance(found, Choices):
            return kinds.CategoricalDistribution(found.labels)
        if found.is_whole:
            return kinds.IntDistribution(found.low, found.high, log=found.log, step=found.step or 1)
        return kinds.FloatDistribution(found.low, found.high, log=found.log, step=found.step)

    def _trial(self, number: int, found: Any) -> Trial:
        chosen = {path: isinstance(each, Choices) for path, each in self._space.dimensions.items()}
        values = {path: json.loads(value) if chosen[path] else value for path, value in found.params.items()}
        state = {"PRUNED": "failed" if found.user_attrs.get("failed") else "stopped"}.get(
            found.state.name, found.state.name.lower()
        )
        value = found.value if state == "complete" else None
        return Trial(number, values, state, value, str(found.user_attrs.get("why", "")))


def _cut_torn_line(journal: Path) -> None:
    """Remove an incomplete last line, left by a power cut, because it would damage the next line."""
    if journal.exists() and (text := journal.read_bytes()) and not text.endswith(b"\n"):
        os.truncate(journal, text.rfind(b"\n") + 1)


class _Unlocked:
    """Replaces Optuna's lock, which after a kill makes the next process wait half a minute; the folder is locked instead."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass
