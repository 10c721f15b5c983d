"""Try the programs of a recipe's reward before anything learns from them, as `robo-rl reward check` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from robo_cli.environments import drawn_environment
from robo_cli.probation_rows import clips_of, fresh_episodes, recorded_episodes, stacked
from robo_cli.recipe import Recipe
from robo_cli.reward_probe import batch_sizes
from robo_datasets.dataset import Dataset
from robo_rl.errors import InvalidSetting
from robo_rl.reward_protocols import OnlineRewards
from robo_rl.rewards.online import OnlineReward
from robo_rl.rewards.programs.probation import Finding, probation
from robo_rl.rewards.programs.runner import UsedProgram
from robo_rl.types import Episode

ROWS = 500
"""Steps, whole episodes: enough for what depends on other rows, little enough to begin at once."""
FIRST_SEED = 710_000
"""Of fresh episodes: apart from those of training, demonstrations and evaluations."""
OF_REWARDS = ("sensitivity", "ranking")
"""Checks of what a total is worth as a reward, which potentials and factors are not."""


def require_sound_programs(recipe: Recipe[Any], reward: OnlineRewards | None) -> None:
    """Raises InvalidSetting if a program of the reward fails a check, or if there is nothing to try it on.

    It is tried on the recipe's demonstrations if they are recorded, else on a few fresh episodes, except on a robot.
    """
    if not recipe.reward.probation or not isinstance(reward, OnlineReward) or not reward.programs:
        return
    episodes = _episodes(recipe)
    for used in reward.programs:
        if failed := [*_failures(used, episodes, batch_sizes(recipe.learner))]:
            words = "\n           ".join(finding.text for finding in failed)
            raise InvalidSetting(
                f"The program {used.runner.path} fails its probation, and nothing was trained.",
                got=words,
                allowed="a reward of each step that follows from that step alone, is in time, and is more for success",
                fix=f"`robo-rl reward check {used.runner.path}` says more; --reward.no-probation trains with it nevertheless",
            )


def _failures(used: UsedProgram, episodes: list[Episode], sizes: Sequence[int]) -> Iterator[Finding]:
    clips = clips_of(episodes) if used.is_reward else None
    runner = used.runner
    verdict = probation(runner.program, stacked(used.view, episodes), clips=clips, limits=runner.limits, sizes=sizes)
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
