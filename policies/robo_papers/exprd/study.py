"""Q-learning in four rooms with the task's reward, with designed ones, and with a potential: steps to 95 % of the optimum.

python -m robo_papers.exprd.study --seeds 10
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.exprd.designer import Designer, ExpRDSettings
from robo_papers.exprd.reward import seen_policy
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.statistics import student_interval
from robo_sims.policy_iteration import optimal_values

Table = npt.NDArray[np.float64]
DISCOUNT, STEPS, CHECK = 0.95, 40_000, 250
LEARNING_RATE, EXPLORATION, LENGTH = 0.5, 0.1, 60


def value_of(moves: Table, rewards: Table, policy: npt.NDArray[np.int64]) -> float:
    """Return the exact discounted value of a deterministic policy (S,) from state 0."""
    states = np.arange(len(rewards))
    values = np.linalg.solve(np.eye(len(states)) - DISCOUNT * moves[states, policy], rewards[states, policy])
    return float(values[0])


def steps_to_solve(
    moves: Table, task: Table, paid: Table, seed: int, adapted: Callable[[Table], Table] | None = None, every: int = 250
) -> int:
    """Return the number of steps of Q-learning until its greedy policy reaches 95 % of the optimum; STEPS if never.

    Args:
        moves: (S, A, S) probabilities of transitions.
        task: Reward of the task, which judges.
        paid: (S, A, S) reward of each transition that it learns from.
        seed: Seed of the learner.
        adapted: Returns another reward to learn from, given counts of steps (S, A); None keeps the reward.
        every: Steps between two calls of `adapted`.
    """
    taken = np.zeros(task.shape)
    random, states = np.random.default_rng(seed), len(task)
    values, target = np.zeros(task.shape), 0.95 * optimal_values(moves, task, DISCOUNT).max(1)[0]
    state = 0
    for step in range(STEPS):
        greedy = random.choice(np.flatnonzero(values[state] == values[state].max()))
        action = int(random.integers(4)) if random.random() < EXPLORATION else int(greedy)
        following = int(random.choice(states, p=moves[state, action]))
        taken[state, action] += 1.0
        if adapted is not None and (step + 1) % every == 0:
            paid, taken = adapted(taken), 0.5 * taken
        aim = paid[state, action, following] + DISCOUNT * values[following].max()
        values[state, action] += LEARNING_RATE * (aim - values[state, action])
        state = 0 if following == states - 1 or (step + 1) % LENGTH == 0 else following
        if (step + 1) % CHECK == 0 and value_of(moves, task, values.argmax(1)) >= target:
            return step + 1
    return STEPS


def solved(moves: Table, task: Table, paid: Table, seed: int, adapt: Callable[[Table], Table] | None) -> dict[str, float]:
    """Return the number of steps until the task is solved, as a figure by name."""
    return {"steps": steps_to_solve(moves, task, paid, seed, adapt)}


def main() -> None:
    """Run the study of this module as a command, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--largest", type=float, default=10.0, help="bound of designed rewards; the task pays 1")
    add_archive_option(parser, "exprd")
    arguments = parser.parse_args()
    seeds, results = range(arguments.seeds), Results("exprd", arguments.archive, {"steps": STEPS, "largest": arguments.largest})
    rooms = make_environment("tabular/FourRooms-v0").get_wrapper_attr("simulation")
    moves, task = rooms.moves, rooms.rewards
    goal = np.flatnonzero(task.any(1)).tolist()
    designer = Designer(moves, task, ExpRDSettings(discount=DISCOUNT, largest=arguments.largest))
    best = optimal_values(moves, task, DISCOUNT).max(1)
    shaped = task[:, :, None] + DISCOUNT * best[None, None, :] - best[:, None, None]
    rewards = {"the task's own": np.repeat(task[:, :, None], len(task), 2)}
    for more in (0, 1, 3, 5):
        design = designer.grown(goal, more)
        name = f"exprd, goal and {more} states (I = {design.informativeness:.4f})"
        rewards[name] = np.repeat(design.rewards[:, :, None], len(task), 2)
    rewards["the task's own and the potential V*"] = shaped

    def adapting(states: Sequence[int]) -> Callable[[Table], Table]:
        return lambda taken: np.repeat(designer.adapted(states, *seen_policy(taken))[:, :, None], len(task), 2)

    everywhere = np.flatnonzero(designer.gaps > 0).tolist()
    first = np.repeat(designer.grown(goal, 3).rewards[:, :, None], len(task), 2)
    adapted = {"expadard, the same goal and 3 states": adapting(designer.grown(goal, 3).states)}
    adapted["expadard, any states"] = adapting([*goal, *everywhere])
    rewards |= dict.fromkeys(adapted, first)
    print("| reward | steps to 95 % of the optimum | seeds that get there |\n|---|---|---|")
    for name, paid in rewards.items():
        steps: list[float] = []
        for seed in seeds:
            solve = partial(solved, moves, task, paid, seed, adapted.get(name))
            steps.append(results.measured(name, seed, solve)["steps"])
        found = student_interval(steps)
        there = sum(count < STEPS for count in steps)
        print(f"| {name} | {found.estimate:,.0f} [{found.low:,.0f}, {found.high:,.0f}] | {there} of {len(steps)} |")


if __name__ == "__main__":
    main()
