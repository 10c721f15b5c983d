"""Agents that others trained with Stable-Baselines3: "zoo:PATH" in the place of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import gymnasium

from robo_rl.environments.make import GYMNASIUM, make_environment, tasks_of
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.spec.environment import EnvironmentSpec, specification

if TYPE_CHECKING:
    from robo_policies.sb3.agents import Agent, AgentPolicy

ZOO = "zoo:"
OF_RUNS = ("routes", "videos", "step", "split", "shadow", "perturb", "carla_host", "carla_port")
"""Options of `robo-rl evaluate` that need the folder of a run, and are refused for an agent of others."""
_VERSION = re.compile(r"-v(\d+)$")


def agent_policy(text: str, spec: EnvironmentSpec) -> tuple[Agent, AgentPolicy]:
    """Return the agent of "zoo:PATH" and its policy for environments of a spec.

    Raises SpecMismatch, InvalidSetting or UnknownName.
    """
    from robo_policies.sb3.agents import read_agent  # brings torch, which listings do without

    agent = read_agent(Path(text.removeprefix(ZOO)))
    return agent, agent.policy(spec)


def environment_for(task: str) -> str:
    """Return the newest version of a task, by preference of the family that has units; raises UnknownName."""
    stem = _VERSION.sub("", task)
    for names, prefix in ((tasks_of(GYMNASIUM), f"{GYMNASIUM}/"), ([*gymnasium.registry], "")):
        if same := [name for name in names if re.fullmatch(rf"{prefix}{re.escape(stem)}-v\d+", name)]:
            return max(same, key=lambda name: int(_VERSION.findall(name)[0]))
    raise UnknownName("environment of the agent", task, gymnasium.registry, fix="name one with --environment")


def evaluate_agent(asked: Mapping[str, Any], on_incomplete: Callable[[Evaluation], object] | None = None) -> Evaluation:
    """Return the evaluation of "zoo:PATH", by default in the newest version of its task.

    asked: options of `robo-rl evaluate`. on_incomplete: as of `robo_rl.evaluate`.

    Raises InvalidSetting for an option that needs the folder of a run.
    """
    if wrong := [f"--{name.replace('_', '-')}" for name in OF_RUNS if asked[name]] + ["--attempts"] * (asked["attempts"] > 1):
        raise InvalidSetting(
            "An agent of others has no run folder.",
            got=", ".join(wrong),
            allowed="--episodes, --seed, --environment, --environment.arguments, --stochastic, --json",
        )
    from robo_policies.sb3.agents import read_agent

    agent = read_agent(Path(asked["run"].removeprefix(ZOO)))
    name, seed = asked["environment"] or environment_for(agent.task), asked["seed"]
    with closing(make_environment(name, **asked["arguments"])) as made:
        policy, seeds = agent.policy(specification(made)), range(seed, seed + asked["episodes"])
        found = evaluate(policy, made, seeds=seeds, deterministic=not asked["stochastic"], on_incomplete=on_incomplete)
    return replace(found, notes=(*found.notes, *_notes(agent, name)))


def _notes(agent: Agent, environment: str) -> list[str]:
    task = environment.rpartition("/")[2]
    notes = [f"weights of {agent.name}, whose training normalised observations: moments read as data" * bool(agent.moments)]
    if task != agent.task:
        notes.append(f"trained in {agent.task}, played in {environment}: versions may differ in physics and reward")
    if (own := agent.evaluation) is not None:
        spread = f", deviation {stdev(own.returns):,.4g}" if len(own.returns) > 1 else ""
        mean = f"mean return {fmean(own.returns):,.5g}{spread} of {len(own.returns)} episodes"
        notes.append(f"published with it: {mean} in {agent.task}, after {own.step:,} steps")
    return [note for note in notes if note]
