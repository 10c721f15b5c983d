"""Find environments by name, and describe one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robo_rl.evaluation.measures import Measure
    from robo_rl.spec.environment import EnvironmentSpec

DOUBLES = {"robot/Fake-v0"}
"""Environments that only tests use, in place of a robot."""


def matching(names: Mapping[str, str | None], text: str) -> dict[str, str | None]:
    """Return the environments that a text names.

    They are those of the family with this name; without such a family those that begin with the text; without these those that
    contain it. Environments for tests are left out unless the text begins with "robot".

    names: name of an environment -> reason why it cannot be used, or None. Returns the matching entries.
    """
    shown = {name: problem for name, problem in names.items() if name not in DOUBLES or text.startswith("robot")}
    for fits in (
        lambda name: name.partition("/")[0] == text,
        lambda name: name.startswith(text),
        lambda name: text.lower() in name.lower(),
    ):
        if found := {name: problem for name, problem in shown.items() if fits(name)}:
            return found
    return {}


def describe(spec: EnvironmentSpec, measures: Sequence[Measure] = ()) -> str:
    """Return a description of a spec, and of the measures of an episode, as a page of text."""
    action = spec.action
    lines = [f"{spec.name}   spec {spec.fingerprint}"]
    lines += [f"task         {spec.instruction}"] if spec.instruction else []
    lines += [f"success      {spec.success_rule}"] if spec.success_rule else []
    lines += [f"time limit   {spec.max_steps} steps"] if spec.max_steps else []
    period = f" every {action.control_period:g} s" if action.control_period else ""
    lines += ["", f"action: {action.mode}{period}" + (f", frame {action.frame}" if action.frame else "")]
    if action.is_discrete:
        lines += [f"  {index} {choice}" for index, choice in enumerate(action.names)]
    else:
        rows = zip(action.names, action.low, action.high, action.units, strict=True)
        lines += [f"  {element:28} [{low:g}, {high:g}] {unit}" for element, low, high, unit in rows]
    lines += ["", "observation:"]
    for array in spec.observation.arrays:
        frame = f"  frame {array.frame}" if array.frame else ""
        lines += [f"  {array.name:28} {array.dtype}{list(array.shape)}  {array.unit}{frame}  {array.role}"]
    lines += ["", "constraint costs, limits for the sum over an episode:"] if spec.costs else []
    lines += [f"  {cost.name:28} {cost.limit:g} {cost.unit}  {cost.meaning}" for cost in spec.costs]
    lines += ["", "measures of an episode:"] if measures else []
    lines += [f"  {measure.name:28} {measure.unit}  {measure.meaning}" for measure in measures]
    return "\n".join(lines)
