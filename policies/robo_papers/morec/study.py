"""Do judges choose better steps? Worlds of the pendulum: error of imagined paths, drawn, chosen by judges, chosen by chance.

python -m robo_papers.morec.study --seeds 3
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from robo_app.experiments.results import Results, add_archive_option
from robo_papers.morec.learner import candidates, choice, pick
from robo_papers.morec.plausibility import GameConfig, Plausibility
from robo_rl.environments.make import make_environment
from robo_rl.rollout.episode import RandomPolicy, rollout
from robo_rl.spec.environment import EnvironmentSpec, Observation, specification
from robo_rl.types import Episode
from robo_rl.worlds.dynamics import DynamicsConfig
from robo_rl.worlds.fitting import DynamicsFit
from robo_rl.worlds.imagining import Imagination
from robo_rl.worlds.steps import Steps

EPISODES, HELD_OUT, LENGTH, CANDIDATES, TEMPERATURE = 50, 20, 20, 10, 0.1
WORLD = DynamicsConfig(hidden=(64, 64), members=5, elites=5, epochs=40)
GAME = GameConfig(hidden=(64, 64), judges=10, updates=2000)
METHODS = {"judges": "chosen by judges (MOREC)", "none": "one draw", "chance": "chosen by scores of chance"}
Floats = npt.NDArray[np.float32]


class Pumping(RandomPolicy):
    """Pushes along the motion, as no recorded episode does."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        super().__init__(spec, 0)

    def act(self, observation: Observation, *, deterministic: bool = True) -> Floats:
        """Return full torque in the direction of the velocity."""
        speed = float(np.concatenate([np.ravel(value) for value in observation.values()])[2])
        return np.array([1.0 if speed >= 0 else -1.0], np.float32)


def fitted(seed: int) -> tuple[Imagination, Plausibility, Floats, list[Episode]]:
    """Return a world and judges of random motion, the deviations (S,) of its states, and episodes of another policy."""
    environment = make_environment("gym:Pendulum-v1")
    spec = specification(environment)
    recorded, others = RandomPolicy(spec, seed), Pumping(spec)
    episodes = [rollout(environment, recorded, seed=1000 * seed + number) for number in range(EPISODES)]
    held_out = [rollout(environment, others, seed=1000 * seed + 500 + number) for number in range(HELD_OUT)]
    environment.close()
    steps = Steps.joined([Steps.of_episode(spec, each) for each in episodes])
    imagination = Imagination(spec, DynamicsFit(steps, replace(WORLD, seed=seed)).run().eval())
    some = np.random.default_rng([seed, 1]).permutation(len(steps))[:5000]  # as in the archive
    judges = Plausibility(spec.observation.size, spec.action.size, GAME, seed).fit(steps)
    return imagination, judges, steps.states[some].std(0), held_out


def measured(seed: int) -> dict[str, dict[str, float]]:
    """Return for each method the error of paths, in deviations of the recorded states, and the area of the judges."""
    imagination, judges, scale, held_out = fitted(seed)
    parts = [Steps.of_episode(imagination.spec, each) for each in held_out]
    windows = [(part, place) for part in parts for place in range(0, len(part) - LENGTH, LENGTH)]
    begins = np.stack([part.states[place] for part, place in windows])
    actions = np.stack([part.actions[place : place + LENGTH] for part, place in windows])
    ends = np.stack([part.following[place + LENGTH - 1] for part, place in windows])
    found = {}
    for method in METHODS:
        random, states = np.random.default_rng(seed), begins
        for step in range(LENGTH):
            asked = states, actions[:, step]
            drawn = candidates(imagination, *asked, 1 if method == "none" else CANDIDATES, random)
            scores = np.stack([judges.scores(*asked, each.states) for each in drawn])
            if method == "chance":
                scores = random.permuted(scores, axis=0)
            states = pick(drawn, choice(scores, TEMPERATURE, random)).states
        found[method] = {"error": float(np.sqrt(np.square((states - ends) / scale).mean()))}
    every = Steps.joined(parts)
    drawn_once = candidates(imagination, every.states, every.actions, 1, np.random.default_rng(seed))[0]
    real, made = (judges.scores(every.states, every.actions, after) for after in (every.following, drawn_once.states))
    return {method: {**each, "area": float((real[:, None] > made[None, ::10]).mean())} for method, each in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    add_archive_option(parser, "morec")
    given = parser.parse_args()
    settings = {"episodes": EPISODES, "length": LENGTH, "candidates": CANDIDATES, "game": GAME, "world": WORLD}
    results = Results("morec", given.archive, settings)
    print(f"| next state | error after {LENGTH} steps, each seed | area under the ROC curve of real steps |\n|---|---|---|")
    made: dict[int, dict[str, dict[str, float]]] = {}

    def figures(method: str, seed: int) -> dict[str, float]:
        if seed not in made:
            made[seed] = measured(seed)
        return made[seed][method]

    for method, name in METHODS.items():
        found = [results.measured(name, seed, partial(figures, method, seed)) for seed in range(given.seeds)]
        errors, areas = (", ".join(f"{each[figure]:.3f}" for each in found) for figure in ("error", "area"))
        print(f"| {name} | {errors} | {areas} |", flush=True)


if __name__ == "__main__":
    main()
