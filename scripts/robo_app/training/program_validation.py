"""Validation of reward programs before a training, on new or recorded steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robo_app.recipes.environments import drawn_environment
from robo_app.recipes.recipe import Recipe
from robo_app.training.assembly import scripted_expert
from robo_datasets.dataset import Dataset
from robo_rl.environments.make import make_environment
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.protocols.rewards import OnlineRewards
from robo_rl.rewards.programs.program import RewardProgram
from robo_rl.rewards.programs.runner import UsedProgram, UsesPrograms
from robo_rl.rewards.programs.validation import CheckResult, Clips, validate
from robo_rl.rewards.step_rewards.abstraction import Columns, EnvAbstraction
from robo_rl.rewards.step_rewards.online_scoring import OnlineReward
from robo_rl.rewards.writing.writer import Try
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import EnvironmentSpec, specification
from robo_rl.types import Array, Episode


def recorded_episodes(dataset: Dataset, rows: int, seed: int) -> list[Episode]:
    """Return random episodes of a dataset with at least `rows` steps in all; raises InvalidSetting if it has no episode."""
    order = np.random.default_rng(seed).permutation(len(dataset))
    found = _enough((dataset.read(dataset.entries()[place]) for place in order), rows)
    if not found:
        raise InvalidSetting("There is no episode to try the program on.", got=f"{dataset.path}", fix="record some")
    return found


def fresh_episodes(environment: Any, rows: int, seed: int) -> list[Episode]:
    """Return new episodes with at least `rows` steps in all, by turns of the scripted policy, if any, and a random one."""
    return _enough(_rolled_out(environment, seed), rows)


def stacked(view: EnvAbstraction, episodes: list[Episode]) -> Columns:
    """Return the columns of all steps: name -> (N, ...)."""
    found = [view.batch(episode) for episode in episodes]
    return {name: np.concatenate([columns[name] for columns in found]) for name in view.columns}


def clips_of(episodes: list[Episode]) -> Clips | None:
    """Return the episode of each step, and the success of each episode; None if the environment declares no success."""
    if any(episode.success is None for episode in episodes):
        return None
    clip = np.repeat(np.arange(len(episodes)), [len(episode) for episode in episodes])
    return Clips(clip, np.array([episode.success for episode in episodes], np.bool_))


def _rolled_out(environment: Any, seed: int) -> Iterator[Episode]:
    spec: EnvironmentSpec = specification(environment)
    policies: list[Policy] = [RandomPolicy(spec, seed)]
    if environment.has_wrapper_attr("scripted_policy"):
        policies.insert(0, environment.get_wrapper_attr("scripted_policy")(seed=seed))
    for number in count():
        yield rollout(environment, policies[number % len(policies)], seed=seed + number)


def _enough(episodes: Iterator[Episode], rows: int) -> list[Episode]:
    """Return whole episodes, without empty ones, until they have `rows` steps in all."""
    chosen: list[Episode] = []
    while sum(map(len, chosen)) < rows and (episode := next(episodes, None)) is not None:
        chosen += [episode] if len(episode) else []
    return chosen


PROBE_ROWS = 2000
"""Approximate number of recorded steps; half of them are of the scripted expert if there is one."""
PROBE_SEED = 700_000
"""First seed of resets, which differs from those of training, demonstrations and evaluations."""


def spec_and_trial(name: str, arguments: Mapping[str, Any], sizes: Sequence[int] = ()) -> tuple[EnvironmentSpec, Try]:
    """Return the spec of an environment, and a function that validates a program on newly recorded steps of it.

    The steps are recorded at once, so that an environment that fails does so before any call to a language model.
    sizes: sizes of batches in which the program is run, too.
    """
    environment = make_environment(name, **arguments)
    spec = specification(environment)
    view = EnvAbstraction.of(spec.single)
    columns = stacked(view, [*_sampled(environment, name, spec)])
    environment.close()
    return spec, partial(_tried, columns, sizes)


def batch_sizes(learner: object) -> tuple[int, ...]:
    """Return the number of steps of a rollout if the learner computes rewards of whole rollouts, () otherwise."""
    for environments, steps in (("num_envs", "steps_per_env"), ("n_envs", "n_steps")):
        if hasattr(learner, environments) and hasattr(learner, steps):
            return (getattr(learner, environments) * getattr(learner, steps),)
    return ()


def _tried(columns: Mapping[str, Array], sizes: Sequence[int], program: RewardProgram) -> tuple[str, str]:
    verdict = validate(program, columns, sizes=sizes)
    if verdict.passed:
        return "ok", ""
    failed = next(finding for finding in verdict.findings if finding.kind == "failure")
    return failed.check, verdict.feedback


def _sampled(environment: gymnasium.Env[object, object], name: str, spec: EnvironmentSpec) -> Iterator[Episode]:
    for policies in _kinds(environment, name, spec):
        rows, seed = 0, PROBE_SEED
        while rows < PROBE_ROWS // 2:
            episode = rollout(environment, policies(seed), seed=seed)
            rows, seed = rows + len(episode), seed + 1
            yield episode


def _kinds(environment: gymnasium.Env[object, object], name: str, spec: EnvironmentSpec) -> Iterator[Callable[[int], Policy]]:
    yield partial(RandomPolicy, spec)
    try:
        expert = scripted_expert(environment, name)
    except InvalidSetting:
        return
    yield lambda seed: expert(seed, noise=0.1)


ROWS = 500
"""Least number of steps, in whole episodes: enough to find dependencies between rows, few enough to begin without delay."""
FIRST_SEED = 710_000
"""First seed of new episodes, which differs from those of training, demonstrations and evaluations."""
OF_REWARDS = ("sensitivity", "ranking")
"""Checks that apply to a program's total as a reward, not to potentials and factors."""


def require_sound_programs(recipe: Recipe[Any], reward: OnlineRewards | None) -> None:
    """Raise InvalidSetting if a program of the reward fails a check, or if there are no steps for the checks.

    Checks run on the recipe's recorded demonstrations if there are any, else on a few new episodes, but not of a robot.
    """
    if not recipe.reward.probation or not isinstance(reward, OnlineReward) or not isinstance(reward.model, UsesPrograms):
        return
    if not (programs := reward.model.programs(reward.place)):
        return
    episodes = _episodes(recipe)
    for used in programs:
        if failed := [*_failures(used, episodes, batch_sizes(recipe.learner))]:
            words = "\n           ".join(finding.text for finding in failed)
            raise InvalidSetting(
                f"The program {used.runner.path} fails its probation, and nothing was trained.",
                got=words,
                allowed="a reward of each step that follows from that step alone, is in time, and is more for success",
                fix=f"`robo-rl reward check {used.runner.path}` says more; --reward.no-probation trains with it nevertheless",
            )


def _failures(used: UsedProgram, episodes: list[Episode], sizes: Sequence[int]) -> Iterator[CheckResult]:
    clips = clips_of(episodes) if used.is_reward else None
    runner = used.runner
    verdict = validate(runner.program, stacked(used.view, episodes), clips=clips, limits=runner.limits, sizes=sizes)
    for finding in verdict.findings:
        if finding.kind == "failure" and (used.is_reward or finding.check not in OF_REWARDS):
            yield finding


def _episodes(recipe: Recipe[Any]) -> list[Episode]:
    if recipe.demonstrations.dataset:
        return recorded_episodes(Dataset(Path(recipe.demonstrations.dataset)), ROWS, FIRST_SEED)
    if recipe.environment.name.startswith("robot:"):
        raise InvalidSetting(
            "There are no steps to try the reward's program on, and a robot is not moved for that.",
            got=f"{recipe.environment.name}, no recorded demonstrations",
            allowed="demonstrations.dataset, recorded on this robot or its twin",
            fix="robo-rl reward check PROGRAM --environment TWIN, then --reward.no-probation",
        )
    environment = drawn_environment(recipe)
    try:
        return fresh_episodes(environment, ROWS, FIRST_SEED)
    finally:
        environment.close()
