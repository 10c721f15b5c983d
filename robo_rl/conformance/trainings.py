"""Conformance suite of training loops, built in or third party.

    from robo_rl.conformance.trainings import check_training
    check_training(lambda factory, steps: MyConfig().training(factory, steps=steps, seed=0), resume="warm")

The loops run in `Swerving`, an environment with everything that careless loops get wrong: it executes another action than the
proposed one, reports success in the middle of an episode, charges a cost once, imagines a step, and sometimes diverges.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from robo_rl.conformance.corrector import COMMAND, CORRECTED
from robo_rl.conformance.kept_steps import Rows, memories, rows_of
from robo_rl.conformance.learners import different_leaves
from robo_rl.conformance.rules import Rule
from robo_rl.conformance.swerving import IMAGINED, ZONE, Factory, Outcome, Swerving
from robo_rl.protocols.components import Training
from robo_rl.replay.recorded import RecordedReplay
from robo_rl.types import DIVERGED, ActionSource, Episode, Metrics, StateDict

MakeTraining = Callable[[Factory, int], Training]
"""Function that returns a training at step 0 from a factory of environments, which it may wrap, and a number of steps."""
TrainingCheck = Callable[["Trial"], None]


@dataclass
class Log:
    """Observer of a training that keeps the reported episodes, and the state of the training after one step."""

    keep_after: int = 0
    """Step of the training after which the state is kept."""
    episodes: list[Outcome] = field(default_factory=list)
    """Episodes as they were reported."""
    state: StateDict | None = None
    """Copy of the state of the training."""
    kept: int = 0
    """Step of the kept state."""

    def on_episode(
        self,
        step: int,
        *,
        episode_return: float,
        length: int,
        success: bool | None,
        stop_reason: str,
        episode: Episode | None = None,
        costs: Mapping[str, float] = MappingProxyType({}),
        place: tuple[int, int] = (0, 1),
    ) -> None:
        """Store the reported episode in `episodes`."""
        spent = costs if episode is None else {name: float(np.nansum(each)) for name, each in episode.costs.items()}
        self.episodes.append(Outcome(length, episode_return, spent.get(ZONE, np.nan), bool(success), stop_reason == DIVERGED))

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Do nothing: metrics are not checked here."""

    def on_step(self, step: int, training: Training) -> None:
        """Keep the state of the training after the first step from `keep_after` on."""
        if self.state is None and 0 < self.keep_after <= step:
            self.state, self.kept = copy.deepcopy(training.state_dict()), step


@dataclass(frozen=True)
class Trial:
    """A training that has run to its end in `Swerving` environments; the checks read it."""

    make: MakeTraining
    factory: Factory
    training: Training
    log: Log
    steps: int
    """Number of environment steps that the training may take; 0 for one from recorded episodes alone."""
    updates: int
    """Steps of the training without an environment: updates from recorded episodes."""
    resume: Literal["exact", "warm"]
    """Kind of resume that the training loop declares."""
    final: StateDict
    """State of the training after its last step."""
    corrected: bool = False
    """True if the training has a `Corrector`, a scripted person who takes over."""

    def rule(self, check: TrainingCheck) -> Rule:
        """Return the rule that a check function checks, named after this training's class and the function."""
        return Rule(type(self.training).__name__, check.__name__.replace("_", " "))

    def kept(self) -> Iterator[tuple[str, Rows]]:
        """Yield the class of each memory of single steps, and random rows of it."""
        spec = self.factory.environment().environment_spec
        for memory in memories(self.training, spec.action):
            yield type(memory).__name__, rows_of(memory, spec)


def check_training(
    make: MakeTraining,
    *,
    environment: Callable[[], Swerving] = Swerving,
    steps: int = 123,
    updates: int = 0,
    resume: Literal["exact", "warm"] = "exact",
    corrected: bool = False,
) -> None:
    """Run a training and every check on it; raises ConformanceFailure at the first broken rule.

    Args:
        make: Makes the training.
        environment: Makes an environment.
        steps: Environment steps; choose them so that the last episode is cut.
        updates: Steps that `make` adds for updates from recorded episodes.
        resume: Kind of resume that the training loop declares.
        corrected: True if `make` adds a `robo_rl.conformance.corrector.Corrector`.
    """
    trial = run_trial(make, environment=environment, steps=steps, updates=updates, resume=resume, corrected=corrected)
    for check in TRAINING_CHECKS:
        check(trial)


def run_trial(
    make: MakeTraining,
    *,
    environment: Callable[[], Swerving] = Swerving,
    steps: int = 123,
    updates: int = 0,
    resume: Literal["exact", "warm"] = "exact",
    corrected: bool = False,
) -> Trial:
    """Return a training that has run to its end; the arguments are those of `check_training`."""
    factory, log = Factory(environment), Log(keep_after=updates + steps // 2 if steps else (updates + 1) // 2)
    training = make(factory, steps)
    training.run(log)
    return Trial(make, factory, training, log, steps, updates, resume, copy.deepcopy(training.state_dict()), corrected)


def executed_actions_are_learnt_from(trial: Trial) -> None:
    """Require that every memory of single steps holds the executed actions, not the proposed ones."""
    require = trial.rule(executed_actions_are_learnt_from)
    for memory, kept in trial.kept():
        wrong = ~np.isclose(kept.actions, kept.executed, atol=1e-6).all(-1)
        require(
            not wrong.any(),
            f"a {memory} holds actions that were not executed",
            got=f"{kept.actions[wrong][:1]} in {wrong.mean():.0%} of the rows",
            allowed=f"{kept.executed[wrong][:1]}, the executed one in `info`",
        )


def episodes_are_reported_as_they_were(trial: Trial) -> None:
    """Require that each ended episode is reported once, with its length and return, and that the cut last one is not."""
    require = trial.rule(episodes_are_reported_as_they_were)
    told, true = ([(each.length, round(each.episode_return, 4)) for each in some] for some in _both(trial))
    require(sorted(told) == sorted(true), "reported episodes differ from those played", got=told, allowed=true)


def success_of_any_step_counts(trial: Trial) -> None:
    """Require that an episode is reported as a success if any of its steps was one."""
    told, true = ([each.succeeded for each in some] for some in _both(trial))
    require = trial.rule(success_of_any_step_counts)
    require(sum(told) == sum(true), "successes in the middle of an episode are lost", got=sum(told), allowed=sum(true))


def costs_reach_the_log(trial: Trial) -> None:
    """Require that the sum of each constraint cost over an episode is reported."""
    told, true = ([each.cost for each in some] for some in _both(trial))
    require = trial.rule(costs_reach_the_log)
    require(sorted(map(str, told)) == sorted(map(str, true)), "costs differ", got=told[:9], allowed=true[:9])


def divergence_ends_an_episode_and_teaches_nothing(trial: Trial) -> None:
    """Require that a diverged episode is reported with this stop reason, and that its last step is in no memory."""
    require = trial.rule(divergence_ends_an_episode_and_teaches_nothing)
    told, true = (sum(each.diverged for each in some) for some in _both(trial))
    require(true > 0 or not trial.steps, "no episode diverged: take more steps", got=trial.steps)
    require(told == true, "diverged episodes are reported with another reason", got=told, allowed=true)
    for memory, kept in trial.kept():
        count = int(kept.diverged.sum())
        require(not count, f"a {memory} holds diverged steps", got=count, allowed=0)


def budget_is_kept(trial: Trial) -> None:
    """Require that no more than `steps` environment steps are taken, and that `step` counts them."""
    require = trial.rule(budget_is_kept)
    require(trial.factory.steps <= trial.steps, "the budget is exceeded", got=trial.factory.steps, allowed=trial.steps)
    counted, taken = trial.training.step, trial.factory.steps + trial.updates
    require(counted == taken, "steps are miscounted", got=counted, allowed=taken)


def only_terminated_steps_end_the_bootstrap(trial: Trial) -> None:
    """Require that a time limit, and the end of the budget, are stored as truncations, not as terminations."""
    require = trial.rule(only_terminated_steps_end_the_bootstrap)
    for memory, kept in trial.kept():
        wrong = kept.terminated != kept.should_terminate
        require(not wrong.any(), f"a {memory} takes a cut for an end, or the reverse", got=f"{wrong.mean():.0%}")


def corrections_arrive(trial: Trial) -> None:
    """Require that the environment gets the person's commands, and that exactly these steps are stored as the person's."""
    if not trial.corrected:
        return
    require = trial.rule(corrections_arrive)
    for made in trial.factory.made:
        for outcome in made.finished:
            given = [number for number, action in enumerate(outcome.received, 1) if np.all(action == COMMAND)]
            require({*CORRECTED} <= {*given}, "commands do not reach the environment", got=given, allowed=CORRECTED)
    kept_by = [(memory, kept.numbers, kept.sources) for memory, kept in trial.kept() if kept.sources is not None]
    kept_by = [each for each in kept_by if each[0] != RecordedReplay.__name__]  # demonstrations have no corrector
    told = [(memory, numbers, sources == ActionSource.HUMAN) for memory, numbers, sources in kept_by]
    found = any(is_human.any() for _, _, is_human in told)
    require(found, "no memory holds a step of the person", got=[memory for memory, _, _ in told])
    for memory, numbers, is_human in told:
        share = float(np.mean(is_human != np.isin(numbers, CORRECTED)))
        require(share == 0.0, f"a {memory} takes steps of the person for the policy's, or the reverse", got=f"{share:.0%}")


def imagined_steps_are_marked(trial: Trial) -> None:
    """Require that the steps which the environment reports as imagined, and no others, are stored as imagined."""
    require = trial.rule(imagined_steps_are_marked)
    for memory, kept in trial.kept():
        if kept.sources is not None:
            share = float(np.mean((kept.sources == ActionSource.IMAGINED) != (kept.numbers == IMAGINED)))
            require(share == 0.0, f"a {memory} takes imagined steps for real ones, or the reverse", got=f"{share:.0%}")


def resume_keeps_its_word(trial: Trial) -> None:
    """Require that a restored training declares its kind of resume, keeps the budget and, if exact, ends in the same state."""
    require = trial.rule(resume_keeps_its_word)
    state = trial.log.state
    require(state is not None, "on_step was not called in the second half of the training", got=trial.steps)
    assert state is not None
    factory, log = Factory(trial.factory.environment), Log()
    training = trial.make(factory, trial.steps)
    training.load_state_dict(copy.deepcopy(state))
    require(training.resumed == trial.resume, "another kind of resume is declared", got=training.resumed, allowed=trial.resume)
    replayed, budget = factory.steps, trial.steps + trial.updates
    training.run(log)
    taken = max(trial.log.kept + factory.steps - replayed, training.step)
    require(taken <= budget, "a resumed training exceeds the budget", got=taken, allowed=budget)
    if trial.resume == "exact":
        difference = different_leaves(_without_clocks(trial.final), _without_clocks(training.state_dict()))
        require(not difference, "an exact resume ends in another state", got=difference[:5])


TRAINING_CHECKS: tuple[TrainingCheck, ...] = (
    executed_actions_are_learnt_from,
    episodes_are_reported_as_they_were,
    success_of_any_step_counts,
    costs_reach_the_log,
    divergence_ends_an_episode_and_teaches_nothing,
    budget_is_kept,
    only_terminated_steps_end_the_bootstrap,
    corrections_arrive,
    imagined_steps_are_marked,
    resume_keeps_its_word,
)


def _both(trial: Trial) -> tuple[list[Outcome], list[Outcome]]:
    """Return the episodes as reported, and as they really were."""
    return trial.log.episodes, trial.factory.finished


def _without_clocks(state: StateDict) -> StateDict:
    """Return a state without elapsed seconds and monotonic times, which differ in every run."""
    if not isinstance(state, Mapping):
        return state
    return {name: _without_clocks(value) for name, value in state.items() if name not in ("seconds", "timestamps")}
