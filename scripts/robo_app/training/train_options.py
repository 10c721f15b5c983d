"""Options of `robo-rl train`, and the recipe that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal

import tyro

from robo_app.arguments.carla_servers import with_server
from robo_app.arguments.help_pages import group_asked, help_page, print_help
from robo_app.arguments.options import read_options, whole_numbers
from robo_app.arguments.recipe_settings import mappings_in, with_mappings
from robo_app.recipes.defaults import completed, with_dataset, with_environment, with_online_phase
from robo_app.recipes.recipe import Learner, Recipe, read_recipe
from robo_app.training.collecting import CollectingSettings

EXAMPLES = """robo-rl train arm-pick-rlpd
robo-rl train sac --environment my_package.envs:MyEnv     (your own class or function: docs/simulators/own-environments.md)
robo-rl train dqn --environment CartPole-v1 --steps 20000
robo-rl train arm-pick-rlpd --seed 1 --evaluation.episodes 100
robo-rl train arm-pick-rlpd --seeds 0-4     (side by side, one table, one report)
robo-rl train arm-pick-rlpd --seeds 0-9 --ray 10.0.0.1:6379     (on the machines of a Ray cluster: docs/training/clusters.md)
robo-rl train halfcheetah-ppo --collectors 4     (processes that act for one learner)
robo-rl train halfcheetah-sac --collectors 4 --ray auto     (the same on a Ray cluster; or HOST:PORT)
robo-rl train arm-pick-bc --demonstrations.dataset data/pick     (made by `robo-rl record` with the recipe's action_repeat=3)
robo-rl train offline-iql --dataset data/pick --labels my-labels     (rewards of a model, made by `robo-rl label`)
robo-rl train offline-iql --dataset data/pick --then online --online.steps 5000
robo-rl train drive-route --carla-host gpu-machine --carla-port 2000 --learner.num-envs 1
robo-rl train my-recipe.yaml --dry-run
robo-rl train hyperparams/sac.yml#HalfCheetah-v5     (settings of an rl-zoo file)"""


@dataclass(frozen=True)
class Train(Generic[Learner]):
    """Recipe to train, and folder of the run."""

    recipe: Annotated[Recipe[Learner], tyro.conf.arg(name="")]
    out: Path = Path("runs")
    """Folder in which the run folder is made."""
    environment: str = ""
    """Short for --environment.name: one of `robo-rl envs`, package.module:Class of your own, or an id of Gymnasium."""
    dataset: str = ""
    """Short for --demonstrations.dataset."""
    labels: str = ""
    """Short for --demonstrations.labels: rewards of a model (`robo-rl label`) in the place of the recorded ones."""
    then: Literal["nothing", "online"] = "nothing"
    """"online": continue in the environment after the updates of a learner from recorded data (--online.steps)."""
    seeds: str = ""
    """Concurrent seeds in separate processes, such as 0-9 or 0,3,7-9; the same command resumes."""
    jobs: int = 0
    """Trainings at once with `--seeds`; 0 for as many as there are cores for."""
    ray: str = ""
    """With `--seeds` or `--collectors`: on a Ray cluster, "auto" for one of this machine that ends with the command, or
    HOST:PORT of a head."""
    collectors: int = 0
    """Processes that act in environments for the learner (docs/training/collectors.md); 0: it acts itself."""
    patience: float = CollectingSettings(1).patience
    """[s] after which a collector (`--collectors`) that has not answered counts as hung, and is replaced."""
    most_stale: int = 0
    """Largest age of the collectors' parameters in steps, if the learner is off-policy; 0 for 128 per collector."""
    callbacks: tuple[str, ...] = ()
    """Classes of yours that hear of metrics and evaluations, package.module:Class (docs/training/callbacks.md)."""
    dry_run: bool = False
    """Print the resolved recipe and stop."""
    carla_host: str = ""
    """For a recipe that drives: host of a CARLA server, instead of a world in this process; "stand-in" starts a stand-in and
    drives through the client. Short for --environment.arguments.host."""
    carla_port: tuple[int, ...] = ()
    """Port of that CARLA server, or ports of several, one for each environment that is trained in at once."""

    COMMAND: ClassVar[str] = "train"
    EXAMPLES: ClassVar[str] = EXAMPLES


def recipe_of(arguments: Sequence[str]) -> Recipe[Any]:
    """Return the recipe that the arguments of `robo-rl train` give."""
    return resolved(parsed(Train, arguments[0], arguments[1:]))


def resolved(order: Train[Any]) -> Recipe[Any]:
    """Return the recipe of parsed options, completed by their dataset, environment and server."""
    recipe = with_environment(with_dataset(order.recipe, order.dataset, order.labels), order.environment)
    arguments = with_server(recipe.environment.arguments, order)
    recipe = replace(recipe, environment=replace(recipe.environment, arguments=arguments))
    return completed(with_online_phase(recipe) if order.then == "online" else recipe)


def parsed(kind: Any, name: str, arguments: Sequence[str]) -> Any:
    """Return the parsed options after a recipe's name. kind: `Train` or a subclass."""
    recipe, command = read_recipe(name), f"robo-rl {kind.COMMAND} {name}"
    group = group_asked(arguments)
    additions, arguments = mappings_in(recipe, ["--help"] if group is not None else whole_numbers(arguments))
    read = partial(
        read_options,
        kind[type(recipe.learner)],
        arguments,
        default=kind(recipe),
        prog=command,
        description="\n\n".join([recipe.summary, "examples:", *kind.EXAMPLES.splitlines()]),
        config=(tyro.conf.AvoidSubcommands,),
    )
    if group is not None:
        print_help(help_page(read, group, command))
    order = read()
    return replace(order, recipe=with_mappings(order.recipe, additions))
