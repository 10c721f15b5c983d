"""Checks that every training loop must pass, whoever wrote it and whatever it trains.

    from robo_rl.conformance.trainings import check_training
    check_training(lambda factory, steps: MyConfig().training(factory, steps=steps, seed=0), resume="warm")

The loops are run in `Swerving`, an environment that does what a careless loop gets wrong: it executes another action than the
proposed one, reports success in the middle of an episode, charges a cost once, and diverges now and then.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from typing_extensions import override

from robo_rl.conformance.learners import _different_leaves as different_leaves
from robo_rl.conformance.rules import Rule
from robo_rl.protocols.components import Policy, Training
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.spec.cost import CostSpec
from robo_rl.spec.environment import ActionSpec, ArraySpec, EnvironmentSpec, Observation, ObservationSpec
from robo_rl.types import DIVERGED, Array, Episode, Metrics, StateDict

LENGTH, SUCCESS, COST, DIVERGENCE = 5, 2, 3, 4
"""Steps of an episode, and its steps (from 1 on) of success, of a cost and of a divergence."""
ZONE, CAMERA = "zone", "camera_front"
"""Names of the cost and of the picture."""
_PICTURE = 4, 4, 3
_ROWS = 512
_KINDS = 8  # of episodes: one diverges, of the others half terminate

MakeTraining = Callable[["Factory", int], Training]
"""Returns a training at step 0, given a factory of environments, which it may wrap, and the steps in them."""
TrainingCheck = Callable[["Trial"], None]


@dataclass
class Outcome:
    """One episode as its environment saw it."""

    length: int = 0
    """Steps."""
    episode_return: float = 0.0
    """Sum of rewards."""
    cost: float = 0.0
    """Sum of costs."""
    succeeded: bool = False
    """True from the step of success on."""
    diverged: bool = False
    """True if its last step diverged."""


class Swerving(gymnasium.Env[Any, Any]):
    """Episodes of five steps; observations hold the executed action, by which a stored transition can be judged."""

    def __init__(self, *, is_discrete: bool = False, has_camera: bool = False, terminates: bool = True) -> None:
        """has_camera: adds a picture to the observations. terminates: half of the episodes end by the task, not by time."""
        self.environment_spec = _spec(is_discrete, has_camera)
        self._terminates = terminates
        self.observation_space, self.action_space = self.environment_spec.observation.space, self.environment_spec.action.space
        self.finished: list[Outcome] = []
        """Finished episodes, the oldest first."""
        self.steps = 0
        """Steps, over all episodes."""
        self._running, self._kind = Outcome(), 0

    def executed(self, action: Array) -> Array:
        """Return the action that is executed in place of another one."""
        if self.environment_spec.action.is_discrete:
            return np.asarray((int(action) + 1) % self.environment_spec.action.size)
        return np.asarray(0.25 - 0.5 * np.asarray(action), np.float32)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._kind, self._running = int(self.np_random.integers(_KINDS)), Outcome()
        return self._observe(np.zeros(self.environment_spec.action.size, np.float32)), {}

    @override
    def step(self, action: Array) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        executed, running = self.executed(action), self._running
        running.length += 1
        self.steps += 1
        running.diverged = self._kind == 0 and running.length == DIVERGENCE
        is_last, reward = running.length == LENGTH, 1.0 / 2**running.length
        terminated = is_last and self._kind % 2 == 1 and self._terminates
        running.succeeded |= running.length == SUCCESS
        running.cost += float(running.length == COST)
        running.episode_return += reward
        info: dict[str, Any] = {
            "executed_action": executed,
            "success": running.length == SUCCESS,
            "costs": {ZONE: float(running.length == COST)},
            "reward_terms": {"hint": reward},
        }
        info |= {"stop_reason": DIVERGED} if running.diverged else {}
        if is_last or running.diverged:
            self.finished.append(running)
        seen = np.eye(self.environment_spec.action.size)[executed] if executed.ndim == 0 else executed
        return self._observe(seen), reward, terminated, (is_last and not terminated) or running.diverged, info

    def scripted_policy(self, seed: int, noise: float = 0.0) -> Policy:
        """Return an expert that always proposes the same action."""
        return _Still(self.environment_spec)

    def _observe(self, executed: Array) -> Observation:
        step = np.array([self._running.length / LENGTH, float(self._running.diverged)], np.float32)
        kind = np.array([self._kind % 2 == 1 and self._terminates], np.float32)
        seen = {"executed": np.asarray(executed, np.float32), "step": step, "kind": kind}
        has_camera = CAMERA in self.environment_spec.observation
        return seen | ({CAMERA: np.zeros(_PICTURE, np.uint8)} if has_camera else {})


class _Still:
    """A policy that proposes the same action in every step."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.environment_spec = spec

    def reset(self) -> None:
        """Nothing to forget."""

    def act(self, observation: Observation, *, deterministic: bool = False) -> Array:
        """Return the first choice, or the middle of the range."""
        action = self.environment_spec.action
        return np.asarray(0) if action.is_discrete else np.zeros(action.size, np.float32)


def _spec(is_discrete: bool, has_camera: bool) -> EnvironmentSpec:
    names = ("left", "stay", "right")[: 3 if is_discrete else 2]
    limits = {} if is_discrete else {"low": (-1.0,) * 2, "high": (1.0,) * 2, "units": ("1", "1")}
    action = ActionSpec(names, mode="discrete" if is_discrete else "joint_position", **limits)  # type: ignore[arg-type]
    arrays = [ArraySpec("executed", (action.size,)), ArraySpec("step", (2,)), ArraySpec("kind", (1,))]
    arrays += [ArraySpec(CAMERA, _PICTURE, "uint8", 0, 255, role="image")] if has_camera else []
    costs = (CostSpec(ZONE, 3.0),)
    return EnvironmentSpec("conformance/Swerving", ObservationSpec(tuple(arrays)), action, max_steps=LENGTH, costs=costs)


class Factory:
    """Makes environments and remembers them."""

    def __init__(self, environment: Callable[[], Swerving]) -> None:
        self.environment, self.made = environment, list[Swerving]()

    def __call__(self) -> Swerving:
        """Return another environment."""
        self.made.append(self.environment())
        return self.made[-1]

    @property
    def steps(self) -> int:
        """Steps over all environments."""
        return sum(each.steps for each in self.made)

    @property
    def finished(self) -> list[Outcome]:
        """Finished episodes of all environments."""
        return [outcome for each in self.made for outcome in each.finished]


@dataclass
class Log:
    """A training's observer that keeps what it is told, and the state after one of the steps."""

    keep_after: int = 0
    """Step from which on the first state is kept."""
    episodes: list[Outcome] = field(default_factory=list)
    """As reported."""
    state: StateDict | None = None
    """State of the training, a copy."""
    kept: int = 0
    """Step of that state."""

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
        """Keep a report."""
        spent = costs if episode is None else {name: float(np.nansum(each)) for name, each in episode.costs.items()}
        self.episodes.append(Outcome(length, episode_return, spent.get(ZONE, np.nan), bool(success), stop_reason == DIVERGED))

    def on_metrics(self, step: int, metrics: Metrics) -> None:
        """Metrics are not judged here."""

    def on_step(self, step: int, training: Training) -> None:
        """Keep a state."""
        if self.state is None and 0 < self.keep_after <= step:
            self.state, self.kept = copy.deepcopy(training.state_dict()), step


@dataclass(frozen=True)
class Trial:
    """A training that ran in swerving environments."""

    make: MakeTraining
    factory: Factory
    training: Training
    log: Log
    steps: int
    """Its budget in the environments."""
    updates: int
    """Steps of the training that are none of an environment: updates from recorded episodes."""
    resume: Literal["exact", "warm"]
    """Kind of resume that it declares."""
    final: StateDict
    """State of the training after its last step."""

    def rule(self, check: TrainingCheck) -> Rule:
        """Return the rule of a check."""
        return Rule(type(self.training).__name__, check.__name__.replace("_", " "))


def check_training(
    make: MakeTraining,
    *,
    environment: Callable[[], Swerving] = Swerving,
    steps: int = 123,
    updates: int = 0,
    resume: Literal["exact", "warm"] = "exact",
) -> None:
    """Run a training and every check on it; raises ConformanceFailure.

    steps: budget; choose it so that the last episode is cut. updates: steps that `make` adds for updates from recorded
    episodes. resume: declared kind.
    """
    trial = run_trial(make, environment=environment, steps=steps, updates=updates, resume=resume)
    for check in TRAINING_CHECKS:
        check(trial)


def run_trial(
    make: MakeTraining,
    *,
    environment: Callable[[], Swerving] = Swerving,
    steps: int = 123,
    updates: int = 0,
    resume: Literal["exact", "warm"] = "exact",
) -> Trial:
    """Return a training that ran to its end in swerving environments."""
    factory, log = Factory(environment), Log(keep_after=updates + steps // 2)
    training = make(factory, steps)
    training.run(log)
    return Trial(make, factory, training, log, steps, updates, resume, copy.deepcopy(training.state_dict()))


def executed_actions_are_learnt_from(trial: Trial) -> None:
    """Every memory of single steps holds the executed actions, not the proposed ones."""
    require = trial.rule(executed_actions_are_learnt_from)
    for memory in memories(trial):
        kept = rows_of(memory, trial.factory.made[0].environment_spec)
        wrong = ~np.isclose(kept.actions, kept.executed, atol=1e-6).all(-1)
        require(
            not wrong.any(),
            f"a {type(memory).__name__} holds actions that were not executed",
            got=f"{kept.actions[wrong][:1]} in {wrong.mean():.0%} of the rows",
            allowed=f"{kept.executed[wrong][:1]}, the executed one in `info`",
        )


def episodes_are_reported_as_they_were(trial: Trial) -> None:
    """Each finished episode is reported once, with its length and return; one that the budget cuts is not."""
    require = trial.rule(episodes_are_reported_as_they_were)
    told, true = ([(each.length, round(each.episode_return, 4)) for each in some] for some in _both(trial))
    require(sorted(told) == sorted(true), "reported episodes differ from those played", got=told, allowed=true)


def success_of_any_step_counts(trial: Trial) -> None:
    """An episode is a success if any of its steps was."""
    told, true = ([each.succeeded for each in some] for some in _both(trial))
    require = trial.rule(success_of_any_step_counts)
    require(sum(told) == sum(true), "successes in the middle of an episode are lost", got=sum(told), allowed=sum(true))


def costs_reach_the_log(trial: Trial) -> None:
    """The sum of each constraint cost of an episode is reported."""
    told, true = ([each.cost for each in some] for some in _both(trial))
    require = trial.rule(costs_reach_the_log)
    require(sorted(map(str, told)) == sorted(map(str, true)), "costs differ", got=told[:9], allowed=true[:9])


def divergence_ends_an_episode_and_teaches_nothing(trial: Trial) -> None:
    """A diverged simulation ends the episode, by that reason, and its step is in no memory."""
    require = trial.rule(divergence_ends_an_episode_and_teaches_nothing)
    told, true = (sum(each.diverged for each in some) for some in _both(trial))
    require(true > 0, "no episode diverged: take more steps", got=trial.steps)
    require(told == true, "diverged episodes are reported with another reason", got=told, allowed=true)
    for memory in memories(trial):
        kept = rows_of(memory, trial.factory.made[0].environment_spec).diverged.sum()
        require(not kept, f"a {type(memory).__name__} holds diverged steps", got=int(kept), allowed=0)


def budget_is_kept(trial: Trial) -> None:
    """No step beyond the budget is taken, and `step` counts those that were."""
    require = trial.rule(budget_is_kept)
    require(trial.factory.steps <= trial.steps, "the budget is exceeded", got=trial.factory.steps, allowed=trial.steps)
    counted, taken = trial.training.step, trial.factory.steps + trial.updates
    require(counted == taken, "steps are miscounted", got=counted, allowed=taken)


def only_terminated_steps_end_the_bootstrap(trial: Trial) -> None:
    """A time limit, and an episode that the budget cuts, are truncations."""
    require = trial.rule(only_terminated_steps_end_the_bootstrap)
    for memory in memories(trial):
        kept = rows_of(memory, trial.factory.made[0].environment_spec)
        wrong = kept.terminated != kept.should_terminate
        require(not wrong.any(), f"a {type(memory).__name__} takes a cut for an end, or the reverse", got=f"{wrong.mean():.0%}")


def resume_keeps_its_word(trial: Trial) -> None:
    """A restored training says "exact" or "warm" as declared, stays within the budget, and if exact ends in the same state."""
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
    resume_keeps_its_word,
)


@dataclass(frozen=True)
class Rows:
    """Transitions of a memory, (B, ...), and what their observations say of them."""

    actions: npt.NDArray[np.floating]
    """(B, A); one-hot of discrete ones."""
    executed: npt.NDArray[np.floating]
    """(B, A)"""
    terminated: npt.NDArray[np.bool_]
    should_terminate: npt.NDArray[np.bool_]
    diverged: npt.NDArray[np.bool_]


def rows_of(memory: Any, spec: EnvironmentSpec) -> Rows:
    """Return random rows of a memory: of ours, or one of Stable-Baselines3's kind."""
    batch = memory.sample(_ROWS)
    seen = batch.next_observations
    if not isinstance(seen, Mapping):
        sizes = np.cumsum([0, *(entry.size for entry in spec.observation.arrays)])
        flat = np.asarray(seen)
        seen = {entry.name: flat[:, sizes[i] : sizes[i + 1]] for i, entry in enumerate(spec.observation.arrays)}
    actions = np.asarray(batch.actions)
    if spec.action.is_discrete:
        actions = np.eye(spec.action.size)[actions.reshape(-1)]
    ended = batch.masks == 0 if hasattr(batch, "masks") else np.asarray(batch.dones).reshape(-1) > 0
    step, kind = seen["step"], seen["kind"][:, 0]
    return Rows(actions, seen["executed"], ended, (step[:, 0] > 0.99) & (kind > 0.5), step[:, 1] > 0.5)


def memories(trial: Trial) -> Iterator[Any]:
    """Yield the replay memories of steps with the environment's actions, wherever the training keeps them."""
    action = trial.factory.made[0].environment_spec.action
    seen, waiting = set[int](), list[tuple[Any, int]]([(trial.training, 0)])
    while waiting:
        thing, depth = waiting.pop()
        if id(thing) in seen or depth > 6:
            continue
        seen.add(id(thing))
        if isinstance(thing, ReplayBuffer) or _is_foreign_memory(thing):
            if _size(thing) and not (isinstance(thing, ReplayBuffer) and thing.spec.action != action):
                yield thing
            continue
        waiting += [(part, depth + 1) for part in _parts(thing)]


def _is_foreign_memory(thing: Any) -> bool:
    return hasattr(thing, "next_observations") and hasattr(thing, "sample") and hasattr(thing, "size")


def _size(memory: Any) -> int:
    return len(memory) if isinstance(memory, ReplayBuffer) else int(memory.size())


def _parts(thing: Any) -> Iterable[Any]:
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, list | tuple):
        return list(thing)[:16]
    module = type(thing).__module__.split(".")[0]
    is_data = module in ("builtins", "numpy", "torch", "gymnasium")
    return [] if is_data or isinstance(thing, type) else list(getattr(thing, "__dict__", {}).values())


def _both(trial: Trial) -> tuple[list[Outcome], list[Outcome]]:
    """Return the episodes as reported, and as they were."""
    return trial.log.episodes, trial.factory.finished


def _without_clocks(state: StateDict) -> StateDict:
    """Return a state without the seconds that it took, and without monotonic times of an episode under way."""
    if not isinstance(state, Mapping):
        return state
    return {name: _without_clocks(value) for name, value in state.items() if name not in ("seconds", "timestamps")}
