"""Actors of a recording: scripted expert, random actions, trained policy, function of anybody's, or a mixture of these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from robo_app.training.assembly import policy_of, recipe_of, scripted_expert
from robo_app.training.foreign_agents import ZOO, agent_policy
from robo_rl.code_names import object_named
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.any_policy import as_policy
from robo_rl.protocols.components import Policy
from robo_rl.rollout.episode import RandomPolicy
from robo_rl.runs.run import Run, find_run
from robo_rl.spec.environment import specification

MIX = "mix:"
AT = "@"
OTHERS = ("scripted", "random", "MODULE:FUNCTION", "zoo:PATH", "mix:NAME=SHARE,NAME=SHARE")
"""Actors that are no runs, as the command names them."""


class Actor(NamedTuple):
    """Policy of one episode, its name in the dataset, and True in `deterministic` if it takes its most likely actions."""

    name: str
    policy: Policy
    deterministic: bool = False


class ActorSettings(Protocol):
    """Options of `robo-rl record` on which actors depend."""

    @property
    def noise(self) -> float:
        """Standard deviation of the noise on the scripted expert's actions, which lie in [-1, 1]."""

    @property
    def stochastic(self) -> bool:
        """True if trained policies sample their actions."""

    @property
    def runs(self) -> Path:
        """Folder that holds the runs."""


def actor(text: str, environment: gymnasium.Env[Any, Any], settings: ActorSettings) -> Callable[[int], Actor]:
    """Return a function from the seed of an episode to the actor that plays this episode.

    Args:
        text: "random", "scripted", RUN, RUN@STEP (the run's policy at a step), zoo:PATH (a published agent of
            Stable-Baselines3), MODULE:FUNCTION (from an observation, as the environment returns it, to an action), or
            mix:NAME=SHARE,NAME=SHARE,..., where each NAME is one of the other texts. The seed of an episode draws its
            actor with these probabilities, which add up to 1.
        environment: Environment of the recording.
        settings: Options of the command.

    Raises:
        InvalidSetting: The text is no actor, or the environment has no scripted expert.
        UnknownName: There is no such run or agent.
        SpecMismatch: The policy was trained in another environment.
    """
    if text.startswith(MIX):
        return _mixed(text.removeprefix(MIX), environment, settings)
    spec = specification(environment)
    if text == "random":
        return lambda seed: Actor(text, RandomPolicy(spec, seed))
    if text == "scripted":
        expert_for = scripted_expert(environment, spec.name)
        return lambda seed: Actor(text, expert_for(seed, noise=settings.noise))
    if text.startswith(ZOO):
        agent, of_others = agent_policy(text, spec)
        return lambda seed: Actor(f"{ZOO}{agent.name}", of_others.seeded(seed), deterministic=not settings.stochastic)
    if ":" in text and not Path(text).exists():
        allowed = "PACKAGE.MODULE:FUNCTION, from an observation to an action; or a class of such objects"
        named = object_named(text, "policy", allowed=allowed)
        of_a_module = as_policy(named() if isinstance(named, type) else named, environment, text)
        return lambda _: Actor(text, of_a_module, deterministic=True)
    run, step = _run_or_policy(text, settings.runs)
    policy = policy_of(run, recipe_of(run), step)
    what = f"The run {run.path.name} was trained in another environment"
    policy.environment_spec.require_interface(spec, what=what)
    name = run.path.name if step is None else f"{run.path.name}{AT}{step}"
    trained = Actor(name, policy, deterministic=not settings.stochastic)
    return lambda _: trained


def _run_or_policy(text: str, runs: Path) -> tuple[Run, int | None]:
    """Return what `run_at` returns; the error for an unknown run also lists the actors that are no runs."""
    try:
        return run_at(text, runs)
    except UnknownName as error:
        place = f"runs are looked for in {runs.absolute()}/; --runs names another folder"
        raise UnknownName("policy", text, [*OTHERS, *error.known], fix=place) from None


def run_at(text: str, runs: Path) -> tuple[Run, int | None]:
    """Return the run and the step that RUN@STEP names; the step is None for RUN."""
    name, _, step = text.rpartition(AT)
    return (find_run(name, runs), int(step)) if name and step.isdigit() else (find_run(text, runs), None)


def _mixed(text: str, environment: gymnasium.Env[Any, Any], settings: ActorSettings) -> Callable[[int], Actor]:
    """Return a function that draws one of several actors, determined by the episode's seed."""
    names, shares = [], []
    for part in text.split(","):
        name, _, share = part.rpartition("=")
        try:
            shares.append(float(share))
        except ValueError:
            shares.append(0.0)
        names.append(name)
    if not min(shares) > 0 or not abs(sum(shares) - 1) <= 1e-6 or not all(names):
        raise InvalidSetting(
            "The mixture's shares do not add up to 1.", got=text, allowed="mix:NAME=SHARE,NAME=SHARE, positive and 1 in all"
        )
    actors = [actor(name, environment, settings) for name in names]
    return lambda seed: actors[np.random.default_rng([seed, 0]).choice(len(actors), p=shares)](seed)
