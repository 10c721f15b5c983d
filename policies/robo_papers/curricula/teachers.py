"""A grid whose start is too far from its goal: episodes until it is mastered, by how a teacher of other starts is paid.

python -m robo_papers.curricula.teachers --seeds 5

SOAR: a teacher proposes starts; copies of the student practise them; the teacher is paid by a copy's gain on the far start, and
the best copy that gains enough becomes the student. The episodes of all copies and of their trials are counted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from robo_papers.curricula.study import softmax

Floats = npt.NDArray[np.float64]
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
SIZE, LONGEST = 9, 36
WALLS = frozenset((row, 4) for row in range(8))
"""A wall with a gap at its end; a random walk gets past it to the goal in one episode of 2,000."""
GROUP, RATE, TEACHER_RATE = 8, 0.5, 20.0
UPDATES, PROPOSALS, TRIALS = 5, 4, 128
"""Groups of episodes that a copy of the student practises, copies per round, and episodes from the far start that judge each
copy."""
LEAST_GAIN, MASTERED, MOST = 0.01, 0.9, 100_000
GOAL = SIZE * SIZE - 1
STARTS = [SIZE * row + column for row in range(SIZE) for column in range(SIZE) if (row, column) not in WALLS][:-1]
"""Numbers of all free places but the goal; the first one is the far start."""


def moved() -> npt.NDArray[np.int64]:
    """Return the grid cell that each action leads to from each cell, (cells, 4): row * SIZE + column."""
    found = np.zeros((SIZE * SIZE, len(MOVES)), np.int64)
    for place in range(SIZE * SIZE):
        for action, (down, right) in enumerate(MOVES):
            there = place // SIZE + down, place % SIZE + right
            is_free = all(0 <= part < SIZE for part in there) and there not in WALLS
            found[place, action] = SIZE * there[0] + there[1] if is_free else place
    return found


AFTER = moved()


def played(logits: Floats, start: int, count: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Play episodes of a tabular student from one start.

    Returns:
        Outcomes (count,), and the gradient of each episode's log-probability (count, places, 4).
    """
    chances = softmax(logits)
    rising = np.cumsum(chances, 1)
    places, alive = np.full(count, start), np.ones(count, np.bool_)
    gradient, rows = np.zeros((count, *logits.shape)), np.arange(count)
    for _ in range(LONGEST):
        actions = np.minimum((random.random(count)[:, None] > rising[places]).sum(1), len(MOVES) - 1)
        gradient[rows[alive], places[alive]] -= chances[places[alive]]
        gradient[rows[alive], places[alive], actions[alive]] += 1.0
        places = np.where(alive, AFTER[places, actions], places)
        alive &= places != GOAL
    return (places == GOAL).astype(np.float64), gradient


def practised(logits: Floats, start: int, random: np.random.Generator) -> tuple[Floats, float]:
    """Let a copy of the student practise from one start; return the copy's logits and its mean success while practising."""
    outcomes = []
    for _ in range(UPDATES):
        found, gradient = played(logits, start, GROUP, random)
        logits = logits + RATE * np.tensordot(found - found.mean(), gradient, 1)
        outcomes.append(found.mean())
    return logits, float(np.mean(outcomes))


Paid = Callable[[Floats, Floats], Floats]
"""Function (gains, successes) of the proposals -> pay of the teacher for each."""
TEACHERS: dict[str, Paid] = {
    "paid by the gain on the far start (SOAR)": lambda gains, successes: gains,
    "control: paid by success in practice": lambda gains, successes: successes,
    "control: paid by nothing": lambda gains, successes: np.zeros_like(gains),
}


def taught(paid: Paid, seed: int) -> int:
    """Let a teacher propose starts; return the number of episodes until the far start is mastered, MOST if it never is."""
    random, wishes = np.random.default_rng(seed), np.zeros(len(STARTS))
    student, episodes = np.zeros((SIZE * SIZE, len(MOVES))), TRIALS
    before = played(student, STARTS[0], TRIALS, random)[0].mean()
    while episodes < MOST and not is_mastered(student, seed):
        chances = softmax(wishes[None])[0]
        chosen = random.choice(len(STARTS), size=PROPOSALS, p=chances)
        copies = [practised(student, STARTS[each], random) for each in chosen]
        after = np.array([played(copy, STARTS[0], TRIALS, random)[0].mean() for copy, _ in copies])
        episodes += PROPOSALS * (UPDATES * GROUP + TRIALS)
        pay = paid(after - before, np.array([success for _, success in copies]))
        for each, own in zip(chosen, pay, strict=True):  # leave-one-out, as in the paper
            others = (pay.sum() - own) / (PROPOSALS - 1)
            wishes += TEACHER_RATE * (own - others) * (np.eye(len(STARTS))[each] - chances) / PROPOSALS
        best = int(after.argmax())
        if after[best] - before > LEAST_GAIN:
            student, before = copies[best][0], after[best]
    return min(episodes, MOST)


def untaught(starts: Sequence[int], seed: int) -> int:
    """Practise from these starts, drawn uniformly; return the number of episodes until the far start is mastered."""
    random, student, episodes = np.random.default_rng(seed), np.zeros((SIZE * SIZE, len(MOVES))), 0
    while episodes < MOST and not is_mastered(student, seed):
        student, _ = practised(student, starts[int(random.integers(len(starts)))], random)
        episodes += UPDATES * GROUP
    return min(episodes, MOST)


def is_mastered(student: Floats, seed: int) -> bool:
    """Return True if the student succeeds in nine of ten of 200 episodes from the far start.

    These episodes are not counted.
    """
    outcomes, _ = played(student, STARTS[0], 200, np.random.default_rng([seed, 1]))
    return bool(outcomes.mean() >= MASTERED)


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    rows: dict[str, Callable[[int], int]] = {
        "the far start alone": lambda seed: untaught(STARTS[:1], seed),
        "all starts alike": lambda seed: untaught(STARTS, seed),
    }
    rows |= {name: partial(taught, paid) for name, paid in TEACHERS.items()}
    print("| teacher | episodes, median | of each seed |\n|---|---|---|")
    for name, episodes in rows.items():
        found = [episodes(seed) for seed in seeds]
        shown = ", ".join(f"{each:,}" if each < MOST else "never" for each in found)
        middle = int(np.median(found))
        print(f"| {name} | {f'{middle:,}' if middle < MOST else 'never'} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
