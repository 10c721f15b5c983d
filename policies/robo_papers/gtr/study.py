"""A corrector at each step on a walled grid: right, wrong at random or in places, and words that the outcome does not grade.

python -m robo_papers.gtr.study --seeds 4
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt

from robo_app.experiments.results import Results, add_archive_option
from robo_bench.walled_grid import FAR, MOVES, SIZE, played

Floats = npt.NDArray[np.float64]
UPDATES, EPISODES, ASKED, RATE, BATCH = 100, 64, 64, 0.5, 256
TURNS = ((5, 2), (0, 4))
"""Places through which each way to the goal leads, and in which a biased corrector is always wrong."""


@dataclass(frozen=True)
class Kind:
    """Method of the study: the learner's settings that differ between methods."""

    name: str
    corrector: Literal["none", "random", "noisy", "biased"] = "none"
    rewards: bool = True
    fades: bool = False
    filters: bool = False
    """True to skip corrections towards an action that was tried and is worth less than the best that was."""


KINDS = (
    Kind("the outcome alone"),
    Kind("outcome, and a corrector that draws at random", "random"),
    Kind("corrector right in 60 %: cloned (DAgger)", "noisy", rewards=False),
    Kind("corrector right in 60 %: cloned, and outcome", "noisy"),
    Kind("corrector right in 60 %: cloned at first, fading, and outcome", "noisy", fades=True),
    Kind("corrector wrong at two turns: cloned (DAgger)", "biased", rewards=False),
    Kind("corrector wrong at two turns: cloned, and outcome", "biased"),
    Kind("corrector wrong at two turns: filtered, and outcome", "biased", filters=True),
)


def best_actions() -> npt.NDArray[np.int64]:
    """Return for each grid cell (S,) an action that leads nearer to the goal."""
    found = np.zeros(SIZE * SIZE, np.int64)
    for place in range(SIZE * SIZE):
        row, column = divmod(place, SIZE)
        there = [(row + int(down), column + int(right)) for down, right in MOVES]
        inside = [0 <= one < SIZE and 0 <= other < SIZE for one, other in there]
        found[place] = int(np.argmin([FAR[cell] if is_in else np.inf for cell, is_in in zip(there, inside, strict=True)]))
    return found


BEST = best_actions()


def corrected(place: int, kind: Kind, random: np.random.Generator) -> int:
    """Return the corrector's action at a place, which is wrong as the method says."""
    right = int(BEST[place])
    if kind.corrector == "random" or (kind.corrector == "noisy" and random.random() > 0.6):
        return int(random.integers(4))
    if kind.corrector == "biased" and divmod(place, SIZE) in TURNS:
        return (right + 2) % 4
    return right


def softmax(logits: Floats) -> Floats:
    """Return the softmax of logits along the last axis."""
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


class Worth:
    """Table of the mean outcome of each action that was tried at each place."""

    def __init__(self) -> None:
        self.sums, self.counts = np.zeros((2, SIZE * SIZE, 4))

    def add(self, places: list[int], actions: list[int], outcome: float) -> None:
        """Add the outcome of an episode to the table, for each of its places and actions."""
        np.add.at(self.sums, (places, actions), outcome)
        np.add.at(self.counts, (places, actions), 1.0)

    def refuses(self, place: int, action: int) -> bool:
        """Return True if the action was tried at this place and is worth less than another one."""
        means = np.where(self.counts[place] > 0, self.sums[place] / np.maximum(self.counts[place], 1), -1.0)
        return bool(means[action] >= 0 and means[action] < means.max())


def learned(kind: Kind, seed: int) -> float:
    """Train a policy, and return its share of successful episodes over the last ten updates."""
    random, logits, worth = np.random.default_rng(seed), np.zeros((SIZE * SIZE, 4)), Worth()
    corrections, successes = list[tuple[int, int]](), list[float]()
    for update in range(UPDATES):
        policy, visited, steps = softmax(logits), list[int](), list[tuple[list[int], list[int], float]]()
        for _ in range(EPISODES):
            cells, actions, success = played(policy, random)
            steps.append((cells[:-1], actions, float(success)))
            visited += cells[:-1]
            worth.add(cells[:-1], actions, float(success))
        gradient, mean = np.zeros_like(logits), float(np.mean([outcome for *_, outcome in steps]))
        for cells, actions, outcome in steps if kind.rewards else []:
            for cell, action in zip(cells, actions, strict=True):
                gradient[cell] += (outcome - mean) * (np.eye(4)[action] - policy[cell]) / EPISODES
        if kind.corrector != "none":
            asked = random.choice(visited, size=ASKED)
            corrections += [(int(place), corrected(int(place), kind, random)) for place in asked]
            weight = max(0.0, 1.0 - 2.0 * update / UPDATES) if kind.fades else 1.0
            for number in random.integers(len(corrections), size=BATCH).tolist():
                place, action = corrections[number]
                if not (kind.filters and worth.refuses(place, action)):
                    gradient[place] += weight * (np.eye(4)[action] - policy[place]) * SIZE * SIZE / BATCH
        logits += RATE * gradient
        successes.append(mean)
    return float(np.mean(successes[-10:]))


def phases(weight: float, seed: int) -> tuple[float, float]:
    """Train a policy that also says in which third of the way it is; return its success, and the share of right phases.

    The outcome does not grade its words. It begins as a clone of both, and learns from the outcome of both together, as of one
    action, with so large a step that the words drift; weight: of corrections of the phase alone.
    """
    random = np.random.default_rng(seed)
    truth = np.minimum((np.where(np.isfinite(FAR), FAR, 0.0).ravel() * 3 / (FAR[0, 0] + 1)).astype(np.int64), 2)
    acts, says = np.eye(4)[BEST], 3.0 * np.eye(3)[truth]
    success, right = list[float](), list[float]()
    for _ in range(3 * UPDATES):
        policy, sayings, rows = softmax(acts), softmax(says), list[tuple[list[int], list[int], list[int], float]]()
        for _ in range(EPISODES // 4):
            cells, actions, reached = played(policy, random)
            said = [int(random.choice(3, p=sayings[cell])) for cell in cells[:-1]]
            rows.append((cells[:-1], actions, said, float(reached)))
        mean = float(np.mean([outcome for *_, outcome in rows]))
        pushes, drifts = np.zeros_like(acts), np.zeros_like(says)
        for cells, actions, said, outcome in rows:
            for cell, action, saying in zip(cells, actions, said, strict=True):
                pushes[cell] += (outcome - mean) * (np.eye(4)[action] - policy[cell])
                drifts[cell] += (outcome - mean) * (np.eye(3)[saying] - sayings[cell])
                drifts[cell] += weight * (np.eye(3)[truth[cell]] - sayings[cell])
        acts, says = acts + RATE * pushes, says + RATE * drifts
        success.append(mean)
        are_right = [np.asarray(said) == truth[cells] for cells, _, said, _ in rows]
        right.append(float(np.concatenate(are_right).mean()))
    return float(np.mean(success[-10:])), float(np.mean(right[-10:]))


def success(kind: Kind, seed: int) -> dict[str, float]:
    """Train a policy, and return its share of successful episodes under the name "success"."""
    return {"success": learned(kind, seed)}


def spoken(weight: float, seed: int) -> dict[str, float]:
    """Return the success and the share of right phases that `phases` measures, by name."""
    return dict(zip(("success", "right phases"), phases(weight, seed), strict=True))


def main() -> None:
    """Run the study of this module as a command, and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=4)
    add_archive_option(parser, "gtr")
    given = parser.parse_args()
    seeds = range(given.seeds)
    results = Results("gtr", given.archive, {"updates": UPDATES, "episodes": EPISODES, "rate": RATE})
    print("| learned from | success of each seed over the last ten updates |\n|---|---|")
    for kind in KINDS:
        runs = [results.measured(kind.name, seed, partial(success, kind, seed), kind=kind)["success"] for seed in seeds]
        print(f"| {kind.name} | {', '.join(f'{share:.2f}' for share in runs)} |", flush=True)
    print("\n| corrections of the phase | success | right phases |\n|---|---|---|")
    for weight in (0.0, 0.1):
        name = f"phases corrected with {weight:g}"
        found = [results.measured(name, seed, partial(spoken, weight, seed)) for seed in seeds]
        columns = (", ".join(f"{each[key]:.2f}" for each in found) for key in ("success", "right phases"))
        print(f"| {'with' if weight else 'none'} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
