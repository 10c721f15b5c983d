"""Reward machines: automata that read the labels of each step, change their state, and pay.

Toro Icarte, Klassen, Valenzano and McIlraith 2022, "Reward Machines: Exploiting Reward Function Structure in Reinforcement
Learning", arXiv:2010.03950.

U states, K labels, 2^K sets of labels; a set is a number whose bit k says if label k holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robo_papers.reward_machines.formulas import FALSE, TRUE, Formula, is_fulfilled, parsed, progressed
from robo_rl.errors import InvalidSetting, UnknownName
from robo_rl.system.plain_files import read_yaml

MOST_LABELS, MOST_STATES = 12, 200
ANY = "*"
"""Value of "from" in an edge: every state that is not terminal."""


@dataclass(frozen=True)
class RewardMachine:
    """Reward machine: an automaton that reads the labels of each step, changes its state and pays rewards.

    Each of its U states has one edge for each of the 2^K sets of K labels.
    """

    labels: tuple[str, ...]
    states: tuple[str, ...]
    """Names of the states; the first one is the initial state."""
    following: npt.NDArray[np.int64]
    """(U, 2^K) next state, by state and set of labels."""
    rewards: npt.NDArray[np.float64]
    """(U, 2^K) reward, by state and set of labels."""
    terminal: npt.NDArray[np.bool_]
    """(U,) True for states in which the task is over."""
    success: npt.NDArray[np.bool_]
    """(U,) True for states that count as a success when the episode ends."""
    at_end: npt.NDArray[np.float64]
    """(U,) additional reward if an episode ends in this state, for states that are not terminal."""

    def number(self, holds: Iterable[str]) -> int:
        """Return the number of the set of labels that hold: bit k stands for label k. Raises UnknownName for another label."""
        found = 0
        for name in holds:
            if name not in self.labels:
                raise UnknownName("label of the machine", name, self.labels)
            found |= 1 << self.labels.index(name)
        return found

    def step(self, state: int, holds: int) -> tuple[int, float]:
        """Return the next state and the reward; holds: number of the set of labels that hold after the step."""
        return int(self.following[state, holds]), float(self.rewards[state, holds])

    def potentials(self, discount: float) -> npt.NDArray[np.float64]:
        """Return the largest discounted reward that can follow each state, for the shaping of rewards.

        The machine is treated as a task of its own, in which the best set of labels can be chosen at every step.

        Args:
            discount: Weight of a reward one step later.

        Returns:
            (U,) values; 0 for terminal states.
        """
        values = np.zeros(len(self.states))
        for _ in range(10_000):
            found = np.where(self.terminal, 0.0, (self.rewards + discount * values[self.following]).max(1))
            if np.abs(found - values).max() < 1e-10:
                break
            values = found
        return values

    @classmethod
    def read(cls, source: Path | Mapping[str, Any], labels: Sequence[str]) -> RewardMachine:
        """Read a machine from a YAML file or its content, which has a `formula` or `edges`; labels: names of the labels.

        Raises InvalidSetting, UnknownName.
        """
        content = read_yaml(source) if isinstance(source, Path) else source
        name = str(source) if isinstance(source, Path) else "The machine"
        if not isinstance(content, Mapping) or ("formula" in content) == ("edges" in content):
            got = sorted(content) if isinstance(content, Mapping) else type(content).__name__
            raise InvalidSetting(f"{name} is no machine.", got=got, allowed="either a formula or edges")
        if "formula" in content:
            return cls.of_formula(parsed(str(content["formula"])), labels)
        return cls.of_edges(content, labels)

    @classmethod
    def of_formula(cls, formula: Formula, labels: Sequence[str]) -> RewardMachine:
        """Build the machine of a formula on finite traces: it pays 1 when the formula becomes true, or holds at the end.

        It pays 0 when the formula fails.
        """
        used = _used(formula.names, labels)
        sets = [frozenset(name for bit, name in enumerate(used) if number >> bit & 1) for number in range(2 ** len(used))]
        found, edges = [formula], list[list[int]]()
        for state in found:  # grows
            row = [progressed(state, holds) for holds in sets]
            for each in row:
                if each not in found:
                    found.append(each)
            if len(found) > MOST_STATES:
                got = f"more than {MOST_STATES} states"
                raise InvalidSetting(f"{str(formula)[:200]} has too large a machine.", got=got, fix="say it in simpler words")
            edges.append([found.index(each) for each in row])
        following = np.array(edges, np.int64)
        terminal = np.array([each in (TRUE, FALSE) for each in found])
        fulfilled = np.array([is_fulfilled(each) for each in found])
        done = np.array([each == TRUE for each in found])
        rewards = np.where(done[following] & ~terminal[:, None], 1.0, 0.0)
        at_end = np.where(fulfilled & ~terminal, 1.0, 0.0)
        return cls(used, tuple(map(str, found)), following, rewards, terminal, fulfilled, at_end).reduced()

    @classmethod
    def of_edges(cls, content: Mapping[str, Any], labels: Sequence[str]) -> RewardMachine:
        """Build a machine from a list of edges {from, to, when, reward}; if no edge holds, it stays and pays nothing."""
        allowed = {"edges", "initial", "terminal", "success", "at_end", "repeats"}
        if unknown := sorted(set(content) - allowed):
            raise InvalidSetting("A machine has unknown keys.", got=unknown, allowed=sorted(allowed))
        edges = [_edge(number, each) for number, each in enumerate(content["edges"])]
        terminal, success = (_listed(content.get(key, ())) for key in ("terminal", "success"))
        named = [str(content["initial"])] if "initial" in content else []
        named += [name for start, end, _, _ in edges for name in (start, end) if name != ANY]
        states = [*dict.fromkeys(named)]
        for name in (*terminal, *success, *content.get("at_end", {})):
            if name not in states:
                raise UnknownName("state of the machine", str(name), states)
        used = _used(frozenset[str]().union(*(when.names for _, _, when, _ in edges)), labels)
        size = 2 ** len(used)
        following = np.tile(np.arange(len(states))[:, None], (1, size))
        rewards = np.zeros(following.shape)
        for place, state in enumerate(states):
            leaving = [each for each in edges if each[0] == state or (each[0] == ANY and state not in terminal)]
            if state in terminal and leaving:
                raise InvalidSetting(f"The state {state!r} is terminal.", got="edges from it", fix="remove one of the two")
            for number in range(size):
                holds = frozenset(name for bit, name in enumerate(used) if number >> bit & 1)
                taken = [each for each in leaving if progressed(each[2], holds) == TRUE]
                if len({(end, reward) for _, end, _, reward in taken}) > 1:
                    raise InvalidSetting(
                        f"Two edges from {state!r} hold at once.",
                        got=f"labels {', '.join(sorted(holds)) or 'none'}: to {' and '.join(end for _, end, _, _ in taken)}",
                        allowed="at most one edge for each set of labels",
                        fix="say in one of them when it does not count: & !label",
                    )
                if taken:
                    following[place, number], rewards[place, number] = states.index(taken[0][1]), taken[0][3]
        at_end = np.array([float(content.get("at_end", {}).get(state, 0.0)) for state in states])
        is_terminal, is_success = (np.isin(states, [*names]) for names in (terminal, success))
        found = cls(used, tuple(states), following, rewards, is_terminal, is_success, at_end)
        found.require_sound(repeats=bool(content.get("repeats", False)))
        return found

    def reduced(self) -> RewardMachine:
        """Return an equal machine with the fewest states: it joins states that no later labels tell apart (Moore 1956)."""
        rows = zip(self.terminal, self.success, self.at_end, self.rewards.tolist(), strict=True)
        groups = _numbered([str(row) for row in rows])
        while True:
            finer = _numbered([f"{group} {groups[row].tolist()}" for group, row in zip(groups, self.following, strict=True)])
            if finer.max() == groups.max():
                break
            groups = finer
        members = [np.flatnonzero(groups == group).tolist() for group in range(groups.max() + 1)]
        names = [min((self.states[each] for each in group), key=len) for group in members]
        kept = np.array([group[0] for group in members])
        parts = (self.rewards[kept], self.terminal[kept], self.success[kept], self.at_end[kept])
        return RewardMachine(self.labels, tuple(names), groups[self.following[kept]], *parts)

    def require_sound(self, *, repeats: bool) -> None:
        """Raise InvalidSetting for a state that is never reached, or a reward that can be earned without end.

        repeats: True if earning a reward again and again is wanted.
        """
        reaches = np.eye(len(self.states), dtype=np.bool_)
        for _ in self.states:
            reaches |= _onward(reaches, self.following)
        if lost := [name for name, is_met in zip(self.states, reaches[0], strict=True) if not is_met]:
            raise InvalidSetting(
                "States of the machine are never reached.", got=", ".join(lost), fix="add an edge, or drop them"
            )
        again = [
            (self.states[state], self.states[end])
            for state, row in enumerate(self.following)
            for number, end in enumerate(row)
            if self.rewards[state, number] > 0 and reaches[end, state]
        ]
        if again and not repeats:
            start, end = again[0]
            raise InvalidSetting(
                "A reward can be had again and again.",
                got=f"the edge from {start!r} to {end!r}, from which {start!r} can be reached",
                fix="repeats: true, if that is the task",
            )


def _numbered(keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a number for each key: equal keys have the same one, counted in the order in which they first appear."""
    places = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([places[key] for key in keys], np.int64)


def _onward(reaches: npt.NDArray[np.bool_], following: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return states reached by one step more (U, U)."""
    size = len(reaches)
    edges = np.zeros((size, size), np.bool_)
    edges[np.repeat(np.arange(size), following.shape[1]), following.ravel()] = True
    return (reaches.astype(np.int64) @ edges.astype(np.int64)) > 0


def _used(names: frozenset[str], labels: Sequence[str]) -> tuple[str, ...]:
    for name in sorted(names):
        if name not in labels:
            raise UnknownName("label of the machine", name, labels)
    if len(names) > MOST_LABELS:
        raise InvalidSetting("A machine reads too many labels.", got=len(names), allowed=f"{MOST_LABELS} at most")
    return tuple(name for name in labels if name in names)


Edge = tuple[str, str, Formula, float]


def _edge(number: int, given: Any) -> Edge:
    keys = {"from", "to", "when", "reward"}
    if not isinstance(given, Mapping) or not {"from", "to", "when"} <= set(given) <= keys:
        raise InvalidSetting(f"Edge {number} of the machine is not complete.", got=given, allowed="from, to, when, and reward")
    when, reward = parsed(str(given["when"])), given.get("reward", 0.0)
    if when.looks_ahead:
        raise InvalidSetting(f"Edge {number} looks ahead.", got=given["when"], allowed="names, ! & | -> and brackets")
    if isinstance(reward, bool) or not isinstance(reward, (int, float)) or not np.isfinite(reward):
        raise InvalidSetting(f"Edge {number} has no finite reward.", got=reward, allowed="a number")
    return str(given["from"]), str(given["to"]), when, float(reward)


def _listed(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(map(str, names))
