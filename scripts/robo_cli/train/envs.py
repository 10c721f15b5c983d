"""robo-rl envs: list the environments that can be made here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated

import tyro

from robo_app.listings.environment_pages import describe, matching
from robo_app.listings.purposes import purpose
from robo_rl.entry_points import known
from robo_rl.environments.make import environment_names

EXAMPLES = """robo-rl envs
robo-rl envs robo     (the environments of a family)
robo-rl envs pick     (all whose name holds it; asks every simulator, which takes seconds)
robo-rl envs robo/ArmPick-v0
robo-rl envs --json"""


@dataclass(frozen=True)
class Envs:
    """List families of environments, their environments, or describe one: observations with units and frames, actions."""

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")] = ""
    """A family or a part of names to list, or one environment to describe."""
    json: bool = False
    """Print JSON."""


def run(arguments: Envs) -> int:
    """Print the families, the names of one, or the spec of the environment that was named."""
    if not arguments.name and not arguments.json:
        return _list_families()
    family = arguments.name.partition("/")[0]
    names = environment_names([family] if family in known("environments") else None)
    found = matching(names, arguments.name)
    if arguments.name in names or not found:  # environments that cannot be made are listed with the reason
        return _describe(arguments.name, as_json=arguments.json)
    if arguments.json:
        print(json.dumps([{"name": name, "available": problem is None, "problem": problem} for name, problem in found.items()]))
        return 0
    for family, group in groupby(found.items(), key=lambda item: item[0].partition("/")[0]):
        print(f"\n# {family}")
        for name, problem in group:
            print(name if problem is None else f"{name}  not available: {' '.join(problem.split())}")
    print(f"\n{sum(problem is None for problem in found.values())} environments; `robo-rl envs NAME` describes one.")
    return 0


def _list_families() -> int:
    for family, point in known("environments").items():
        print(f"{family:20} {purpose('environments', point)}")
    print("\n`robo-rl envs FAMILY` lists the environments of one, `robo-rl envs TEXT` all whose name holds a text.")
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
