"""Coffee, then the office, on a grid of 7 x 7: Q-learning with a reward machine, its counterfactual experience, its potentials.

python -m robo_papers.reward_machines.study --seeds 5
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.reward_machines.machine import RewardMachine

SIZE, START, COFFEE, OFFICE = 7, (0, 0), (6, 1), (1, 6)
LONGEST, MOST, CHECK, DISCOUNT, EXPLORES = 60, 8000, 50, 0.9, 0.1
MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
SHORTEST = 7 + 10
"""Steps from the start over the coffee to the office."""
MACHINE = RewardMachine.read({"formula": "F (coffee & X F office)"}, ("coffee", "office"))


@dataclass(frozen=True)
class Kind:
    """Method of the study: the settings that differ between methods."""

    name: str
    counterfactual: bool = False
    shaping: float = 0.0
    """Factor of the machine's potential in the reward; 0 for no shaping."""
    observes: bool = True
    switches: bool = True
    """False leaves the machine's state of imagined steps as it is: a control."""


KINDS = (
    Kind("machine"),
    Kind("counterfactual", counterfactual=True),
    Kind("shaped, +V", shaping=1.0),
    Kind("shaped, -V", shaping=-1.0),
    Kind("counterfactual, +V", counterfactual=True, shaping=1.0),
    Kind("counterfactual, -V", counterfactual=True, shaping=-1.0),
    Kind("state of the machine not observed", observes=False),
    Kind("counterfactual, states not switched", counterfactual=True, switches=False),
)


def moved(cell: tuple[int, int], action: int) -> tuple[tuple[int, int], int]:
    """Return the grid cell after an action, and the number of the set of labels that hold there."""
    row, column = (int(np.clip(at + by, 0, SIZE - 1)) for at, by in zip(cell, MOVES[action], strict=True))
    names = [name for name, place in (("coffee", COFFEE), ("office", OFFICE)) if place == (row, column)]
    return (row, column), MACHINE.number(names)


def steps_of(values: npt.NDArray[np.float64], observes: bool) -> int:
    """Return how many steps the greedy policy of the values takes until the machine is done; LONGEST if it never is."""
    cell, state = START, 0
    for step in range(LONGEST):
        cell, holds = moved(cell, int(values[(*cell, state if observes else 0)].argmax()))
        state, paid = MACHINE.step(state, holds)
        if paid:
            return step + 1
    return LONGEST


def steps_to_solve(kind: Kind, first: float, seed: int) -> int:
    """Return the number of training steps until the greedy policy takes at most 2 steps more than the shortest way.

    MOST if never.

    Args:
        kind: Kind of Q-learning.
        first: Initial value of all states and actions.
        seed: Seed of the training.
    """
    random, states = np.random.default_rng(seed), len(MACHINE.states)
    values = np.full((SIZE, SIZE, states, 4), first)
    potentials = kind.shaping * MACHINE.potentials(DISCOUNT)
    cell, state, length = START, 0, 0
    for step in range(1, MOST + 1):
        seen = state if kind.observes else 0
        row = values[(*cell, seen)]
        greedy = int(random.choice(np.flatnonzero(row == row.max())))
        action = int(random.integers(4)) if random.random() < EXPLORES else greedy
        after, holds = moved(cell, action)
        states_now = np.flatnonzero(~MACHINE.terminal).tolist() if kind.counterfactual else [state]
        for each in states_now:
            following, reward = MACHINE.step(each, holds)
            is_over = bool(MACHINE.terminal[following])
            aim = reward + (0.0 if is_over else DISCOUNT * potentials[following]) - potentials[each]
            place, next_place = (each, following) if kind.observes else (0, 0)
            if not kind.switches and each != state:
                place = next_place = state
            values[(*cell, place, action)] = aim + (0.0 if is_over else DISCOUNT * values[(*after, next_place)].max())
        state, _ = MACHINE.step(state, holds)
        cell, length = after, length + 1
        if MACHINE.terminal[state] or length == LONGEST:
            cell, state, length = START, 0, 0
        if step % CHECK == 0 and steps_of(values, kind.observes) <= SHORTEST + 2:
            return step
    return MOST


def solved(kind: Kind, first: float, seed: int) -> dict[str, float]:
    """Train a policy, and return the number of training steps until the task is solved, under the name "steps"."""
    return {"steps": steps_to_solve(kind, first, seed)}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    add_archive_option(parser, "machines-office")
    given = parser.parse_args()
    seeds, results = range(given.seeds), Results("machines-office", given.archive, {"most": MOST, "longest": LONGEST})
    print("| median steps | all values 0 at first | all values 2 at first |\n|---|---|---|")
    for kind in KINDS:
        medians = []
        for first in (0.0, 2.0):
            on = f"all values {first:g} at first"
            solve = [partial(solved, kind, first, seed) for seed in seeds]
            found = [results.measured(kind.name, seed, solve[seed], on=on, kind=kind) for seed in seeds]
            medians.append(int(np.median([each["steps"] for each in found])))
        cells = (f"{median:,}" if median < MOST else f"not in {MOST:,}" for median in medians)
        print(f"| {kind.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
