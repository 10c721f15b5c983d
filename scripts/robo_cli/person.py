"""The person whom a recipe puts into the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from robo_cli.recipe import Recipe
from robo_rl.errors import InvalidSetting
from robo_rl.human import PersonInTheLoop
from robo_rl.protocols import Policy, SelfTrainedConfig
from robo_rl.simulated_human import SimulatedHuman, habits_of
from robo_rl.spec import EnvironmentSpec

FIRST_SEED = 7_000_000  # apart from the seeds of demonstrations, whose experts would have the same habits


def person_of(recipe: Recipe[Any], spec: EnvironmentSpec, expert_for: Callable[[int], Policy]) -> PersonInTheLoop:
    """Returns who corrects the policy in training; raises UnknownName, InvalidSetting."""
    human = SimulatedHuman(expert_for, habits_of(recipe.human.kind), FIRST_SEED + recipe.seed)
    return PersonInTheLoop(human, spec.action.control_period)


def require_place_for_person(recipe: Recipe[Any]) -> None:
    """Raises InvalidSetting where a training has no place for the recipe's person, or cannot do without one."""
    sampling = getattr(recipe.learner, "sampling", None)
    is_self_trained = sampling is None or isinstance(recipe.learner, SelfTrainedConfig)
    is_offline = not is_self_trained and sampling.offline_fraction == 1.0
    if recipe.human.kind and (is_self_trained or (is_offline and not recipe.online.steps)):
        raise InvalidSetting(
            f"Nobody can correct the learner {recipe.algorithm} in training.",
            got=f"human.kind {recipe.human.kind}",
            allowed="learners that act step by step, such as hil-serl, rlpd and sac; hg-dagger with online.steps",
            fix="leave human out" if is_self_trained else "set online.steps, or leave human out",
        )
    if not recipe.human.kind and is_offline and sampling.keeps_corrections and recipe.online.steps:
        raise InvalidSetting(
            f"The learner {recipe.algorithm} learns online from a person's corrections alone, and there is nobody.",
            got=f"online.steps {recipe.online.steps}, no human.kind",
            fix="set human.kind, or use bc",
        )
