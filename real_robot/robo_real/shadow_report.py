"""Report of shadow runs: difference between a policy's actions and the commands that moved the robot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_real.arm_spec import GRIP
from robo_real.shadow import SHADOW, VERDICT
from robo_rl.errors import InvalidSetting
from robo_rl.spec.environment import ActionSpec
from robo_rl.types import ActionSource, Episode

PERSON = "person"
Rows = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AxisDifference:
    """Difference between the policy's actions and the commands in one element of the action, policy minus command."""

    name: str
    """name of the element"""
    unit: str
    """physical unit of all three numbers, per action"""
    rms: float
    """root mean square of the difference"""
    bias: float
    """mean of the difference"""
    commanded: float
    """root mean square of the commands themselves"""


@dataclass(frozen=True)
class ShadowReport:
    """Differences between policy and commands, and verdicts of the guard, over all episodes of a shadow run."""

    commands: str
    """source of the commands: person, scripted or zero"""
    episodes: int
    steps: int
    """number of steps of all episodes, each with an action that the guard judged"""
    compared: int
    """number of steps in which the source commanded, and the guard let its command through unchanged"""
    axes: tuple[AxisDifference, ...]
    """one difference per element of the action but the gripper's; empty without a compared step"""
    gripper_agreement: float | None
    """share of the compared steps in which policy and command both open, or both close, the gripper; None without a gripper or
    a compared step"""
    changed: int
    """number of judged actions that the guard would have changed or refused"""
    reasons: dict[str, int]
    """reason of the guard -> number of judged actions"""

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"shadow   {self.episodes} episodes, {self.steps} actions judged and not sent; commands: {self.commands}"
        share = f"{self.changed / self.steps:.1%}" if self.steps else "none"
        reasons = ", ".join(f"{reason} {count}" for reason, count in self.reasons.items())
        yield f"guard    would change {share} of the policy's actions{f' ({reasons})' if reasons else ''}"
        if not self.compared:
            yield "compare  no step: the commands came from nowhere else, or the guard changed all of them"
            return
        yield f"compare  {self.compared} steps, policy minus command, per action"
        for axis in self.axes:
            yield (
                f"  {axis.name:8} RMS {axis.rms:.4g} {axis.unit}, mean {axis.bias:+.3g} {axis.unit}; "
                f"commands themselves RMS {axis.commanded:.4g} {axis.unit}"
            )
        if self.gripper_agreement is not None:
            yield f"  gripper  agrees in {self.gripper_agreement:.1%} of the steps"


def shadow_report(episodes: Sequence[Episode], action: ActionSpec) -> ShadowReport:
    """Return the report of the recorded episodes of one shadow run.

    Steps in which the guard changed the command are not compared. If a person commanded, neither are the steps in which the
    arm merely held.

    Args:
        episodes: Episodes of one shadow run.
        action: Spec of the episodes' actions.

    Raises:
        InvalidSetting: An episode is of no shadow run, or the episodes are of several ones.
    """
    sources = {str(episode.metadata.get(SHADOW, "")) for episode in episodes}
    if len(sources) != 1 or sources == {""}:
        raise InvalidSetting(
            "These are not the episodes of one shadow run.", got=sorted(sources), allowed="one source of commands"
        )
    commands = sources.pop()
    verdicts = [reasons for episode in episodes for reasons in episode.metadata.get(VERDICT, {}).values()]
    counts = Counter(reason for reasons in verdicts for reason in reasons)
    pairs = [_physical(episode, action, commands) for episode in episodes]
    policy, command = (np.concatenate(side) for side in zip(*pairs, strict=True))
    return ShadowReport(
        commands=commands,
        episodes=len(episodes),
        steps=sum(len(episode) for episode in episodes),
        compared=len(policy),
        axes=tuple(_axes(policy, command, action)) if len(policy) else (),
        gripper_agreement=_agreement(policy, command, action) if len(policy) and GRIP in action.names else None,
        changed=len(verdicts),
        reasons=dict(counts.most_common()),
    )


def _physical(episode: Episode, action: ActionSpec, commands: str) -> tuple[Rows, Rows]:
    """Return the policy's actions and the commands of the compared steps, both (N, A) in physical units."""
    source = ActionSource.HUMAN if commands == PERSON else ActionSource.SCRIPT
    is_compared = np.asarray(episode.sources) == source
    for step in episode.metadata.get("guard", {}):
        is_compared[int(step)] = False
    proposed, sent = episode.policy_actions[is_compared], episode.actions[is_compared]
    return action.to_physical_batch(proposed, len(proposed)), action.to_physical_batch(sent, len(sent))


def _axes(policy: Rows, command: Rows, action: ActionSpec) -> Iterator[AxisDifference]:
    difference = policy - command
    for index, (name, unit) in enumerate(zip(action.names, action.units, strict=True)):
        if name != GRIP:
            rms, commanded = (float(np.sqrt(np.mean(rows[:, index] ** 2))) for rows in (difference, command))
            yield AxisDifference(name, unit, rms, float(difference[:, index].mean()), commanded)


def _agreement(policy: Rows, command: Rows, action: ActionSpec) -> float:
    at = action.names.index(GRIP)
    middle = (action.low[at] + action.high[at]) / 2
    return float(np.mean((policy[:, at] > middle) == (command[:, at] > middle)))
