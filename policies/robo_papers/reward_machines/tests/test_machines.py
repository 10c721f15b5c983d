"""Reward machines and formulas: semantics by brute force, and machines that mean something else than they say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from factories import rest_slow
from robo_papers.reward_machines.formulas import FALSE, TRUE, Formula, is_fulfilled, joined, negated, parsed, progressed
from robo_papers.reward_machines.machine import RewardMachine
from robo_rl.errors import InvalidSetting, UnknownName

SETS = [frozenset(), frozenset("a"), frozenset("b"), frozenset("ab")]
TRACES = [trace for length in range(1, 6) for trace in product(SETS, repeat=length)]
"""All of at most five steps over two labels."""


def holds(formula: Formula, trace, step: int) -> bool:  # noqa: PLR0911
    """Return True if a formula holds at a step of a whole trace, by its definition."""
    later = range(step, len(trace))
    parts = formula.parts
    match formula.kind:
        case "true" | "false":
            return formula.kind == "true"
        case "name":
            return formula.name in trace[step]
        case "not":
            return not holds(parts[0], trace, step)
        case "and":
            return all(holds(part, trace, step) for part in parts)
        case "or":
            return any(holds(part, trace, step) for part in parts)
        case "X":
            return step + 1 < len(trace) and holds(parts[0], trace, step + 1)
        case "N":
            return step + 1 >= len(trace) or holds(parts[0], trace, step + 1)
        case "F":
            return any(holds(parts[0], trace, each) for each in later)
        case "G":
            return all(holds(parts[0], trace, each) for each in later)
        case "U":
            return any(
                holds(parts[1], trace, end) and all(holds(parts[0], trace, each) for each in range(step, end)) for end in later
            )
        case _:  # R, the dual of U
            return all(
                holds(parts[1], trace, end) or any(holds(parts[0], trace, each) for each in range(step, end)) for end in later
            )


def drawn(random: np.random.Generator, depth: int) -> str:
    """Return a formula at random, in words."""
    if depth == 0 or random.random() < 0.2:
        return str(random.choice(["a", "b", "true", "false"], p=[0.45, 0.45, 0.05, 0.05]))
    if random.random() < 0.5:
        return f"{random.choice(['!', 'X ', 'N ', 'F ', 'G '])}({drawn(random, depth - 1)})"
    sign = random.choice(["&", "|", "U", "->"])
    return f"({drawn(random, depth - 1)}) {sign} ({drawn(random, depth - 1)})"


@pytest.mark.parametrize("seed", rest_slow(range(40), fast=6))
def test_progression_is_the_semantics(seed):
    """All traces of at most five steps; X, N and negation of temporal formulas among them."""
    formula = parsed(drawn(np.random.default_rng(seed), 3))
    opposite = negated(formula)
    for trace in TRACES:
        rest, other = formula, opposite
        for step in trace:
            rest, other = progressed(rest, step), progressed(other, step)
        assert is_fulfilled(rest) == holds(formula, trace, 0), (str(formula), trace)
        assert is_fulfilled(other) != is_fulfilled(rest)


@pytest.mark.parametrize("text", ["X G a", "X !a", "N a", "!X a", "F X a", "G N a", "X X true", "a U X b", "!(a U b)"])
def test_last_steps_are_right(text):
    formula = parsed(text)
    for trace in TRACES:
        rest = formula
        for step in trace:
            rest = progressed(rest, step)
        assert is_fulfilled(rest) == holds(formula, trace, 0), trace


def test_formulas_are_canonical():
    assert parsed("a & b & a") == parsed("b & a") and parsed("a & !a") == FALSE and parsed("F a | !F a") == TRUE
    assert str(parsed("a -> b U c")) == "(!a | (b U c))"
    assert joined("or", ()) == FALSE and joined("and", ()) == TRUE


@pytest.mark.parametrize(
    "text", ["", "a b", "(a", "a &", "& a", "a # b", "X", "a U", ")", "(" * 80 + "a" + ")" * 80, "!" * 99 + "a"]
)
def test_broken_formulas_are_one_error(text):
    with pytest.raises(InvalidSetting, match="no formula"):
        parsed(text)


ORDER = {
    "edges": [
        {"from": "start", "to": "has_a", "when": "a & !b"},
        {"from": "has_a", "to": "done", "when": "b", "reward": 1.0},
        {"from": "*", "to": "lost", "when": "c", "reward": -1.0},
    ],
    "terminal": ["done", "lost"],
    "success": "done",
}


def without_c(content):
    edges = [{**each, "when": f"({each['when']}) & !c"} if each["from"] != "*" else each for each in content["edges"]]
    return {**content, "edges": edges}


def test_a_machine_is_its_monitor_on_random_traces():
    machine = RewardMachine.read(without_c(ORDER), ("a", "b", "c", "d"))
    assert machine.labels == ("a", "b", "c") and machine.states == ("start", "has_a", "done", "lost")
    random = np.random.default_rng(0)
    for _ in range(10_000):
        state, paid, has_a, expected = 0, 0.0, False, 0.0
        is_over = False
        for number in random.integers(8, size=random.integers(1, 8)).tolist():
            if machine.terminal[state]:
                break
            state, reward = machine.step(state, number)
            paid += reward
            a, b, c = (bool(number >> bit & 1) for bit in range(3))
            if c:
                expected, is_over = expected - 1.0, True
            elif not has_a:
                has_a = a and not b
            elif b:
                expected, is_over = expected + 1.0, True
        assert paid == expected and bool(machine.terminal[state]) == is_over


def test_a_formula_pays_when_it_is_fulfilled():
    machine = RewardMachine.read({"formula": "F (a & X F b) & G !c"}, ("a", "b", "c"))
    random = np.random.default_rng(1)
    formula = parsed("F (a & X F b) & G !c")
    for _ in range(2000):
        trace = [frozenset(np.array(["a", "b", "c"])[random.random(3) < [0.4, 0.4, 0.1]]) for _ in range(random.integers(1, 7))]
        state, paid = 0, 0.0
        for step, labels in enumerate(trace):
            state, reward = machine.step(state, machine.number(labels))
            paid += reward
            if machine.terminal[state]:
                assert step == len(trace) - 1 or paid in (0.0, 1.0)
                break
        else:
            paid += machine.at_end[state]
        assert paid == float(holds(formula, trace, 0))


def test_machines_of_formulas_have_no_state_too_many():
    assert len(RewardMachine.read({"formula": "F (a & X F b)"}, ("a", "b")).states) == 3
    assert len(RewardMachine.read({"formula": "F a & F a & (G !c | false)"}, ("a", "c")).states) == 3
    assert RewardMachine.read({"formula": "a | !a"}, ("a",)).states == ("true",)


def test_potentials_are_discounted_distances():
    machine = RewardMachine.read({**ORDER, "edges": ORDER["edges"][:2], "terminal": "done"}, ("a", "b"))
    assert machine.potentials(0.9).tolist() == pytest.approx([0.9, 1.0, 0.0])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (ORDER, "hold at once"),
        ({"edges": []} | {"formula": "a"}, "either a formula or edges"),
        ([], "no machine"),
        ({"edges": [{"from": "x", "to": "y"}]}, "not complete"),
        ({"edges": [{"from": "x", "to": "y", "when": "F a"}]}, "looks ahead"),
        ({"edges": [{"from": "x", "to": "y", "when": "F a & b"}]}, "looks ahead"),
        ({"edges": [{"from": "x", "to": "y", "when": "!(a U b) | c"}]}, "looks ahead"),
        ({"edges": [{"from": "x", "to": "y", "when": "a", "reward": "much"}]}, "no finite reward"),
        ({"edges": [{"from": "x", "to": "y", "when": "a", "reward": float("nan")}]}, "no finite reward"),
        ({"edges": [{"from": "x", "to": "x", "when": "a", "reward": 1}]}, "again and again"),
        ({"edges": [{"from": "x", "to": "y", "when": "a"}], "initial": "z"}, "never reached"),
        ({"edges": [{"from": "x", "to": "y", "when": "a"}], "terminal": "x"}, "terminal"),
        ({"edges": [{"from": "x", "to": "y", "when": "a"}], "ends": 1}, "unknown keys"),
    ],
)
def test_machines_that_cannot_be_meant_are_one_error(content, message):
    with pytest.raises(InvalidSetting, match=message):
        RewardMachine.read(content, ("a", "b", "c"))


def test_unknown_names_have_their_close_matches():
    with pytest.raises(UnknownName, match="door"):
        RewardMachine.read({"formula": "F dor"}, ("door",))
    with pytest.raises(UnknownName, match="lots"):
        RewardMachine.read({"edges": [{"from": "x", "to": "y", "when": "a"}], "terminal": "lots"}, ("a",))
    with pytest.raises(InvalidSetting, match="too many labels"):
        RewardMachine.read({"formula": " & ".join(f"F l{n}" for n in range(13))}, [f"l{n}" for n in range(13)])
    with pytest.raises(InvalidSetting, match="too large"):
        RewardMachine.read({"formula": " & ".join(f"F l{n}" for n in range(9))}, [f"l{n}" for n in range(9)])


def test_a_repeated_reward_must_be_wanted():
    machine = RewardMachine.read({"edges": [{"from": "x", "to": "x", "when": "a", "reward": 1}], "repeats": True}, ("a",))
    assert machine.step(0, 1) == (0, 1.0)
