"""Clone the rows of a finished DAgger run once more, and drive with each clone: what the network and the labels are worth.

    python -m robo_bench.same_rows RUN --out FOLDER
    python -m robo_bench.same_rows RUN --out FOLDER --only expert blind --elsewhere map grid_test_1 --episodes 25

Each clone takes as many updates as the run did, from the rows in its last checkpoint: the run's own network, an MLP that
standardises its inputs, an MLP of inputs in their units, and the run's network with shuffled labels. `expert` is the
environment's scripted one itself; `blind` is that one without others, lights and signs in what it sees
(`--environment.arguments.blind true` of any command): it keeps to route, bends and limits alone. FOLDER/NAME.json, or with
`elsewhere` NAME-KEY=VALUE.json, holds each evaluation, on the seeds of the run's own, as `robo-rl evaluate RUN --json` writes
it; one that is there is not repeated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robo_app.training.assembly import judged_arguments, recipe_of, scripted_expert
from robo_rl.environments.make import make_environment
from robo_rl.evaluation.evaluation import Evaluation, evaluate
from robo_rl.protocols.components import Policy
from robo_rl.replay.buffer import ReplayBuffer
from robo_rl.runs.run import Run
from robo_rl.settings import updated
from robo_rl.system.plain_files import parse_yaml
from robo_rl.system.threads import tensor_threads

CLONES: Mapping[str, Mapping[str, Any]] = {
    "again": {},
    "mlp": {"network": {"encoder": None}},
    "mlp-in-units": {"network": {"encoder": None, "normalization_rows": 0}},
    "shuffled-labels": {"shuffled_labels": True},
}
"""Name -> settings that differ from the run's."""
SCRIPTS: Mapping[str, Mapping[str, Any]] = {"expert": {}, "blind": {"blind": True}}
"""Name of a scripted driver -> arguments of its environment."""


@dataclass(frozen=True)
class SameRows:
    """Settings of the command."""

    run: Annotated[str, tyro.conf.Positional]
    """Folder of a run of the learner dagger."""
    out: Path
    """Folder of the results."""
    only: tuple[str, ...] = (*SCRIPTS, *CLONES)
    """Names of clones, expert or blind."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Other arguments of the environment, such as `map grid_test_1`, `walkers 4` or `route_length 1000`."""
    episodes: int = 0
    """Episodes of each evaluation; 0 for those of the recipe."""


def judged(run: Run, name: str, elsewhere: Mapping[str, str], episodes: int) -> Evaluation:
    """Return the evaluation of a clone of a run's rows, or of a scripted driver.

    Args:
        run: Run of the learner dagger.
        name: Name of the clone or driver.
        elsewhere: Arguments of the environment in place of those of the run's evaluation.
        episodes: Number of episodes; 0 for that of the run's evaluation.
    """
    recipe = recipe_of(run)
    seeds = range(recipe.evaluation.seed, recipe.evaluation.seed + (episodes or recipe.evaluation.episodes))
    read = {key: parse_yaml(value, key) for key, value in elsewhere.items()}
    arguments = {**judged_arguments(recipe), **SCRIPTS.get(name, {}), **read}
    with closing(make_environment(recipe.environment.name, **arguments)) as environment:
        is_script = name in SCRIPTS
        policy = scripted_expert(environment, recipe.environment.name)(seed=0) if is_script else clone(run, name)
        return evaluate(policy, environment, seeds=seeds, deterministic=True, training_seed=recipe.seed)


def clone(run: Run, name: str) -> Policy:
    """Return a policy that was cloned from the rows of a run."""
    recipe, parts = recipe_of(run), run.load().parts
    config = updated(recipe.learner, CLONES[name])
    learner, sampling = config.build(run.spec, recipe.seed), config.sampling
    spec = learner.policy.environment_spec
    memory = ReplayBuffer(
        spec, sampling.capacity, recipe.seed, extras=sampling.extras, environments=max(recipe.environments, 1)
    )
    memory.load_state_dict(parts["replay"])
    for _ in range(sampling.updates(int(parts["training"]["step"]))):
        learner.update(memory.sample(sampling.batch_size))
    policy: Policy = learner.policy
    return policy


def main() -> None:
    """Run the command."""
    settings = tyro.cli(SameRows, description=__doc__)
    settings.out.mkdir(parents=True, exist_ok=True)
    run = Run(Path(settings.run))
    for name in settings.only:
        file = settings.out / ("-".join([name, *map("=".join, settings.elsewhere.items())]) + ".json")
        if not file.exists():
            with tensor_threads(1):
                file.write_text(json.dumps(judged(run, name, settings.elsewhere, settings.episodes).to_json()))
        print(f"{name}\n{Evaluation.read(file)}", flush=True)


if __name__ == "__main__":
    main()
