"""robo-rl envs: list the environments that can be made here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated

import tyro

from robo_app.listings import listing
from robo_app.listings.environment_pages import describe, matching
from robo_rl.entry_points import known

EXAMPLES = """robo-rl envs
robo-rl envs robo
robo-rl envs pick     (all whose name holds it)
robo-rl envs robo/ArmPick-v0
robo-rl envs --json"""
FAMILIES = {
    "carla": "routes through CARLA, or its stand-in",
    "dm_control": "suite and manipulation of DeepMind",
    "gymnasium": "MuJoCo v5",
    "gymnasium_robotics": "Fetch, hand, maze and kitchen",
    "metaworld": "fifty tasks of a tabletop arm",
    "hazards": "point mass and car among hazards, with a constraint cost",
    "safety_gymnasium": "navigation of Safety-Gymnasium, with constraint costs",
    "contact": "a mass and an arm in contact at 200 Hz, with stiffness in the action and a constraint cost",
    "quadrotor": "a quadrotor that flies a plan through way-points; actions allot times",
    "minigrid": "grids with a mission in words",
    "robo": "our own seven-axis arm",
    "bandits": "arms of which one pays, and a map that says which",
    "questions": "one of several things that look alike, with questions that cost something",
    "tabular": "MDPs with a known model, for algorithms with guarantees",
    "robot": "an arm that `robo-rl robot serve` serves, at robot:URL",
}
"""Descriptions of the package's own families."""


@dataclass(frozen=True)
class Envs:
    """List environments, or describe one: observations with units and frames, actions, success rule."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """A family or a part of names to list, or one environment to describe."""
    json: bool = False
    """Print JSON."""


def run(arguments: Envs) -> int:
    """Prints the names, or the spec of the one that was named."""
    names = listing.environments()
    found = matching(names, arguments.name)
    if arguments.name in names or not found:  # environments that cannot be made are listed with the reason
        return _describe(arguments.name, as_json=arguments.json)
    if arguments.json:
        print(json.dumps([{"name": name, "available": problem is None, "problem": problem} for name, problem in found.items()]))
        return 0
    for family, group in groupby(found.items(), key=lambda item: item[0].partition("/")[0]):
        print(f"\n# {family}: {FAMILIES.get(family, 'of an installed package')}")
        for name, problem in group:
            print(name if problem is None else f"{name}  not available: {' '.join(problem.split())}")
    print(f"\n{sum(problem is None for problem in found.values())} environments; `robo-rl envs NAME` describes one.")
    print("One of your own is package.module:Class, one of Gymnasium's registry its id, such as CartPole-v1.")
    print(f"Wrappers, --environment.wrappers.NAME.KEY VALUE: {', '.join(known('wrappers'))}.")
    return 0


def _describe(name: str, *, as_json: bool) -> int:
    from robo_rl.environments.make import make_environment
    from robo_rl.evaluation.measures import measures_of
    from robo_rl.spec.environment import specification

    environment = make_environment(name)
    spec, has_expert = specification(environment), environment.has_wrapper_attr("scripted_policy")
    measures = measures_of(environment)
    environment.close()
    if as_json:
        more = {"scripted_expert": has_expert, "measures": [asdict(each) for each in measures]}
        print(json.dumps(spec.to_json() | more, indent=1))
    else:
        print(describe(spec, measures) + ("\n\nA scripted expert can record demonstrations." if has_expert else ""))
    return 0
