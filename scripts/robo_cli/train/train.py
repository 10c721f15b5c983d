"""robo-rl train: from a recipe to an evaluated policy and a report."""

from __future__ import annotations

import sys
from typing import Any

import robo_rl
from robo_app.experiments.seeds import seeds_of, train_seeds
from robo_app.recipes.environments import spec_of
from robo_app.recipes.loop_choice import ROBOT
from robo_app.recipes.recipe import Recipe, to_yaml
from robo_app.training.collecting import CollectingSettings
from robo_app.training.train_options import EXAMPLES, Train, parsed, resolved
from robo_rl.errors import InvalidSetting
from robo_rl.runs.run import NO_UPDATE


def main(arguments: list[str]) -> int:
    """Train. The first argument names the recipe, the others override its values."""
    if not arguments or arguments[0].startswith("-"):
        print(f"usage: robo-rl train RECIPE [--key value ...] [--dry-run] [--out FOLDER]\n\n{EXAMPLES}\n")
        print("`robo-rl train RECIPE --help` lists the keys of that recipe, group by group, `robo-rl recipes` the recipes.")
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    order = parsed(Train, arguments[0], arguments[1:])
    recipe = resolved(order)
    if order.dry_run:
        _require_environment(recipe)
        print(to_yaml(recipe), end="")
        return 0
    if order.ray and not (order.seeds or order.collectors):
        raise InvalidSetting(
            "A cluster trains several seeds, or collects for one.",
            got="--ray without --seeds or --collectors",
            fix="--seeds 0-9 or --collectors 4, or leave --ray out",
        )
    if order.seeds and order.collectors:
        raise InvalidSetting(
            "Several seeds and collectors cannot be combined so far.",
            got=f"--seeds {order.seeds} --collectors {order.collectors}",
            fix="leave one of them out",
        )
    if order.seeds:
        return train_seeds(recipe, seeds_of(order.seeds), order.out, order.jobs, order.ray)
    run = robo_rl.train(recipe, collectors=_collectors(order), out=order.out, progress=True, callbacks=order.callbacks)
    return int(bool(run.description.get(NO_UPDATE)))


def _collectors(order: Train[Any]) -> dict[str, Any] | int:
    """Return the collectors that an order asks for, 0 for none."""
    if not order.collectors:
        return 0
    return CollectingSettings(order.collectors, order.ray, order.patience, order.most_stale).to_json()


def _require_environment(recipe: Recipe[Any]) -> None:
    """Raise the error of an environment that cannot be made; robots are not contacted."""
    if not recipe.environment.name.startswith(ROBOT):
        spec_of(recipe)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
