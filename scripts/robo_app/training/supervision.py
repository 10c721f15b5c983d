"""The real or simulated person who corrects the policy in a recipe's training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

from robo_app.display.browser import open_page
from robo_app.recipes.loop_choice import ROBOT, loop_of
from robo_app.recipes.recipe import Recipe
from robo_rl.errors import InvalidSetting
from robo_rl.protocols.components import Policy
from robo_rl.rollout.intervention import PersonInTheLoop
from robo_rl.rollout.simulated_human import SimulatedHuman, habits_of
from robo_rl.runs.observer import RunRecord
from robo_rl.spec.environment import EnvironmentSpec
from robo_rl.system.pages.server import ADDRESS

if TYPE_CHECKING:
    from robo_real.console.operator import Operator
    from robo_real.teleoperation.teleoperator import Teleoperator

CONSOLE = "console"
"""Kind of a real person."""
FIRST_SEED = 7_000_000  # apart from the seeds of demonstrations, or the experts would behave alike


def robot_at(address: str) -> str:
    """Return the name of the environment for a robot's address."""
    return f"{ROBOT}{address.removeprefix(ROBOT)}"


def person_of(recipe: Recipe[Any], spec: EnvironmentSpec, expert_for: Callable[[int], Policy]) -> PersonInTheLoop:
    """Return the simulated person who corrects the policy in training; raises UnknownName, InvalidSetting."""
    human = SimulatedHuman(expert_for, habits_of(recipe.human.kind), FIRST_SEED + recipe.seed)
    return PersonInTheLoop(human, spec.action.control_period)


def beside(recipe: Recipe[Any], environment: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment; a robot's twin is re-armed automatically if the recipe's person is simulated."""
    if recipe.human.kind in ("", CONSOLE) or not recipe.environment.name.startswith(ROBOT):
        return environment
    from robo_real.auto_rearm import with_auto_rearm

    return with_auto_rearm(environment, tell=partial(print, flush=True))


@contextmanager
def operator_of(recipe: Recipe[Any]) -> Iterator[Operator | None]:
    """Open the console of a recipe with a real person, and yield the operator; otherwise yield None.

    Raises InvalidSetting if the environment allows no takeover.
    """
    if recipe.human.kind != CONSOLE:
        yield None
        return
    _require_robot(recipe)
    loop_of(recipe)
    from robo_real.teleoperation.teleoperator import make_teleoperator

    human = recipe.human
    device = make_teleoperator(human.teleoperator, human.settings) if human.teleoperator else None
    with open_operator(
        recipe.environment.name, address=human.address, port=human.port, browser=human.browser, device=device
    ) as operator:
        yield operator


@contextmanager
def open_operator(
    environment: str, *, address: str = ADDRESS, port: int, browser: bool = True, device: Teleoperator | None = None
) -> Iterator[Operator]:
    """Open the console of a robot's environment, print its address and yield the operator.

    browser: True to open the page in a browser. device: device that drives the robot in addition to the page.
    """
    from robo_real.console.operator import operator_at

    show = partial(print, flush=True)
    operator = operator_at(environment, address=address, port=port, notify=show)
    try:
        if device is not None:
            operator.drive_with(device)
        show(f"the console is at {operator.server.url}")
        open_page(operator.server.url, is_wanted=browser)
        yield operator
    finally:
        operator.close()


def asking(record: RunRecord, operator: Operator | None) -> Callable[[], None]:
    """Return the handler of the first Ctrl-C: the training ends after the current step and waits for no operator."""

    def ask() -> None:
        record.request_stop()
        if operator is not None:
            operator.cancel()

    return ask


def _require_robot(recipe: Recipe[Any]) -> None:
    if not recipe.environment.name.startswith(ROBOT):
        raise InvalidSetting(
            "Only a robot that is served has an operator.",
            got=f"human.kind {CONSOLE}, environment {recipe.environment.name}",
            allowed="an environment robot:http://HOST:PORT (robo-rl robot serve)",
            fix="--environment.name robot:URL, or a simulated person: --human.kind perfect",
        )
    if recipe.demonstrations.episodes and not recipe.demonstrations.dataset:
        raise InvalidSetting(
            "The demonstrations would move the robot before its operator begins an episode.",
            got=f"demonstrations.episodes {recipe.demonstrations.episodes} of the scripted expert",
            allowed="recorded episodes",
            fix="record them (robo-rl record, or robo-rl console --out) and name them: --demonstrations.dataset DATASET",
        )
    if recipe.evaluation.every:
        raise InvalidSetting(
            "An evaluation would interrupt the operator's episode.",
            got=f"evaluation.every {recipe.evaluation.every}",
            allowed="0; evaluation.before evaluates before the first step, and the end is always evaluated",
            fix="--evaluation.every 0",
        )
